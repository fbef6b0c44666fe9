"""The command of the vocabulary report; tests/browser/test_vocabulary.py opens its page."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import api
from experiments.cli import main
from superbpe import train_superbpe
from tests import texts
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, count_pretokens, patterns, train_bpe


@pytest.fixture(scope="module")
def folders(tmp_path_factory, trained):
    root = tmp_path_factory.mktemp("tokenizers")
    for name in ("superwords", "gpt2"):
        trained[name].save(root / name)
    (root / "empty.txt").touch()
    (root / "text.txt").write_text("\n".join(texts.english()[1][:15]), encoding="utf-8")
    return root


def inspected(out, *words):
    assert main.run(["inspect", *map(str, words), "--out", str(out)]) == 0
    return json.loads((out / "vocabulary.json").read_text(encoding="utf-8"))


def test_one_tokenizer_without_a_text(folders, tmp_path, trained, capsys):
    report = inspected(out := tmp_path / "out", folders / "gpt2")
    assert sorted(path.name for path in out.iterdir()) == ["tokens-gpt2.parquet", "vocabulary.html", "vocabulary.json"]
    assert (report["text"], report["tokenizers"][0]["on_text"]) == (None, None)
    assert report["tokenizers"][0]["ordinary"] == trained["gpt2"].vocab_size - len(trained["gpt2"].special_tokens)
    page = (out / "vocabulary.html").read_text(encoding="utf-8")
    assert "No text was given" in page
    assert report["tokenizers"][0]["opens_in"]["llama.cpp"] == "yes"
    assert "<td>llama.cpp</td>" in page
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', outside_scripts) == []
    assert "bytes per token" not in capsys.readouterr().out


def test_a_tokenizer_without_merges_and_an_imported_tokenizer_json(folders, tmp_path):
    raw = Tokenizer.from_ranks([], pattern=patterns.resolve("none"), special_tokens=["<|endoftext|>"])
    raw.save(tmp_path / "bytes")
    copy = tmp_path / "superwords.json"
    assert main.run(["export", str(folders / "superwords"), str(copy), "--to=hf"]) == 0
    words = ["--against", copy, "--text", folders / "text.txt"]
    found, imported = inspected(tmp_path / "out", tmp_path / "bytes", *words)["tokenizers"]
    assert (found["ordinary"], found["merges"], found["superwords"]) == (256, 0, 0)
    assert found["on_text"]["bytes_per_token"] == 1
    # The file has no phases and its pattern lets words join: pretokens are those of the released SuperBPE's stage 1.
    assert (imported["label"], imported["pretokens_by"]) == ("superwords", "superbpe")
    assert imported["superwords"] > 0


def test_split_words_and_residues_in_a_text(folders, tmp_path, trained):
    report = inspected(out := tmp_path / "out", folders / "superwords", "--text", folders / "text.txt")
    text, tokenizer = (folders / "text.txt").read_text(encoding="utf-8"), trained["superwords"]
    rows = report["split"]["rows"]
    assert [row["cuts"] for row in rows] == sorted((row["cuts"] for row in rows), reverse=True)
    for row in rows[:50]:
        before, after = row["around"]
        assert before + row["word"] + after in text
        assert row["word"] in "".join(token["text"] for token in row["tokens"])
        assert len(row["tokens"]) > 1
    found, columns = report["residues"], pq.read_table(out / "tokens-superwords.parquet").to_pydict()
    assert found["n"] == sum(columns["residue"]) > 0
    for row in found["rows"]:
        before, after = row["around"]
        token = tokenizer.vocab[row["id"]]
        if token.decode(errors="ignore").encode() == token:
            assert before + row["text"] + after in text
        assert (row["count"], row["inside"]) == (columns["count"][row["id"]], columns["inside"][row["id"]])
        assert row["count"] <= 0.05 * (row["count"] + row["inside"])
        assert token in tokenizer.vocab[row["host"]["id"]]


def test_what_a_text_does_not_have_is_not_measured(folders, tmp_path, capsys):
    (tmp_path / "dots.txt").write_text("... !? ...\n")
    report = inspected(tmp_path / "out", folders / "gpt2", "--text", tmp_path / "dots.txt")
    (one,) = report["tokenizers"]
    assert [one["on_text"][name] for name in ("strr", "continued_words", "digit_boundaries")] == [None] * 3
    assert (one["residues"], one["on_text"]["cut_characters"], report["split"]["words"]) == (None, 0, 0)
    for said in (capsys.readouterr().out, (tmp_path / "out" / "vocabulary.html").read_text(encoding="utf-8")):
        assert said.count("not measured") >= 4
        assert "NaN" not in re.sub(r"<script.*?</script>", "", said, flags=re.DOTALL)


def test_two_tokenizers_on_a_text(folders, tmp_path, trained, capsys):
    command = [f"Super/words: 1={folders / 'superwords'}", "--against", folders / "gpt2"]
    report = inspected(out := tmp_path / "out", *command, "--text", folders / "text.txt", "--alpha", "2")
    said = capsys.readouterr().out
    assert "Rényi efficiency (α=2)" in said
    assert "function words only" in said
    tokenizer = trained["superwords"]
    text = (folders / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode_ordinary(text)
    measured = report["tokenizers"][0]["on_text"]
    assert (measured["tokens"], measured["bytes"], measured["alpha"]) == (len(ids), len(text.encode()), 2)
    superwords, crossing = tokenizer.superword_ids(), tokenizer.crossing_ids()
    assert [len(report["superwords"][name]) for name in ("most_frequent", "longest")] == [min(300, len(superwords))] * 2
    assert sum(row["superwords"] for row in report["superwords"]["kinds"]) == len(superwords)
    assert report["tokenizers"][0]["crossing"] == len(np.setdiff1d(crossing, superwords)) > 0
    assert "other tokens across pretokens" in said
    assert [[only["label"] for only in pair] for pair in report["only"]] == [["Super/words: 1", "gpt2"]]
    table = pq.read_table(out / "tokens-Super-words-1.parquet").to_pydict()
    assert table["count"] == np.bincount(ids, minlength=tokenizer.vocab_size).tolist()
    assert table["token"] == tokenizer.vocab
    theirs = set(trained["gpt2"].vocab)
    for token, known, special in zip(table["token"], table["in gpt2"], table["special"], strict=True):
        assert (token in theirs) == known or special


def test_every_file_has_a_share_of_the_text(tmp_path):
    for name, lines in {"a": 90, "b": 90, "c": 3, "d": 0}.items():
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name * 10}"}}\n' * lines)
    shares = api._read(Corpus(CorpusConfig([str(tmp_path)])), 230)
    assert [batch.text(0)[0] * len(batch) for batch in shares] == ["ccc", "a" * 10, "b" * 10]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{root}/gpt2/tokenizr.json"], "/gpt2/tokenizer.json'?) does not exist"),
        (["{root}/gpt2", "--history"], "--history needs a text"),
        (["{root}/gpt2", "--pattern", "x=gpt2"], "no tokenizer is called 'x'"),
        (["{root}/gpt2", "--text", "{root}/text.txt", "--alpha", "-1"], "'-1' is not a number above 0"),
        (["{root}/gpt2", "--text", "{root}/empty.txt"], "empty.txt contains text"),
    ],
)
def test_mistakes_are_one_line(arguments, said, folders, tmp_path, mistake):
    command = [argument.format(root=folders) for argument in arguments]
    assert said in mistake("inspect", *command, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_history_is_a_log_per_tokenizer(tmp_path):
    text = "\n".join(text[:1000] for text in texts.english()[0][:6])
    (tmp_path / "text.txt").write_text(text)
    batch = Batch.from_texts([text])
    phase1 = train_bpe(count_pretokens([batch], "superbpe", unit="line"), 256 + 40 + 1)
    both = train_superbpe(phase1, lambda: [batch], vocab_size=256 + 60 + 1, rules="uw-2025", transition_merges=30)
    phase1.save(tmp_path / "bpe")
    both.save(tmp_path / "superbpe")
    command = [f"plain={tmp_path / 'bpe'}", "--against", tmp_path / "superbpe", "--text", tmp_path / "text.txt"]
    inspected(out := tmp_path / "out", *command, "--history")
    log = pq.read_table(out / "merges-superbpe.parquet").to_pylist()
    assert [row["phase"] for row in log] == [1] * 30 + [2] * 30
    assert log[-1]["tokens"] == len(both.encode_ordinary(text))
    assert pq.read_table(out / "merges-plain.parquet").num_rows == 40

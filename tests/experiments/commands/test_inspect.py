"""The command of the vocabulary report; tests/browser/test_vocabulary.py opens its page."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.cli import main
from superbpe import train_superbpe
from tests import texts
from tokenizer import Batch, Tokenizer, count_pretokens, patterns, train_bpe


@pytest.fixture(scope="module")
def folders(tmp_path_factory, trained):
    root = tmp_path_factory.mktemp("tokenizers")
    for name in ("superwords", "gpt2"):
        trained[name].save(root / name)
    (root / "text.txt").write_text("\n".join(texts.english()[1][:15]), encoding="utf-8")
    return root


def test_one_tokenizer_without_a_text(folders, tmp_path, trained, capsys):
    out = tmp_path / "out"
    assert main.run(["inspect", str(folders / "gpt2"), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["tokens-gpt2.parquet", "vocabulary.html", "vocabulary.json"]
    report = json.loads((out / "vocabulary.json").read_text(encoding="utf-8"))
    assert report["text"] is None
    assert report["tokenizers"][0]["on_text"] is None
    assert report["tokenizers"][0]["ordinary"] == trained["gpt2"].vocab_size - len(trained["gpt2"].special_tokens)
    page = (out / "vocabulary.html").read_text(encoding="utf-8")
    assert "No text was given" in page
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', outside_scripts) == []
    assert "bytes per token" not in capsys.readouterr().out


def test_a_tokenizer_without_merges(folders, tmp_path):
    Tokenizer.from_ranks([], pattern=patterns.resolve("none"), special_tokens=["<|endoftext|>"]).save(
        tmp_path / "bytes"
    )
    command = [str(tmp_path / "bytes"), "--against", str(folders / "gpt2"), "--text", str(folders / "text.txt")]
    assert main.run(["inspect", *command, "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "vocabulary.json").read_text(encoding="utf-8"))
    found = report["tokenizers"][0]
    assert (found["ordinary"], found["merges"], found["superwords"]) == (256, 0, 0)
    assert found["on_text"]["bytes_per_token"] == 1


def test_two_tokenizers_on_a_text(folders, tmp_path, trained, capsys):
    out = tmp_path / "out"
    command = [f"Super/words: 1={folders / 'superwords'}", "--against", str(folders / "gpt2")]
    command += ["--text", str(folders / "text.txt"), "--alpha", "2"]
    assert main.run(["inspect", *command, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Rényi efficiency (α=2)" in said
    assert "function words only" in said
    tokenizer = trained["superwords"]
    text = (folders / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode_ordinary(text)
    report = json.loads((out / "vocabulary.json").read_text(encoding="utf-8"))
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
    assert all(
        (token in theirs) == known or special
        for token, known, special in zip(table["token"], table["in gpt2"], table["special"], strict=True)
    )


def test_an_imported_tokenizer_json(folders, tmp_path):
    out = tmp_path / "out"
    assert main.run(["inspect", str(folders / "superwords" / "tokenizer.json"), "--out", str(out)]) == 0
    (row,) = json.loads((out / "vocabulary.json").read_text(encoding="utf-8"))["tokenizers"]
    assert row["label"] == "superwords"
    # The file has no phases and its pattern lets words join: pretokens are those of the released SuperBPE's stage 1.
    assert row["pretokens_by"] == "superbpe"
    assert row["superwords"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{root}/nothing"], "nothing"),
        (["{root}/gpt2", "--against", "{root}/gpt2"], "write NAME=PATH"),
        (["{root}/gpt2", "--history"], "--history needs a text"),
        (["{root}/gpt2", "--pattern", "x=gpt2"], "no tokenizer is called 'x'"),
        (["{root}/gpt2", "--text", "{root}/none.txt"], "none.txt"),
        (["{root}/gpt2", "--text", "{root}/text.txt", "--alpha", "-1"], "'-1' is not a number above 0"),
        (["{root}/gpt2", "--text", "embedded", "{root}/text.txt"], "use one of them"),
    ],
)
def test_mistakes_are_one_line(arguments, said, folders, tmp_path, mistake):
    command = [argument.format(root=folders) for argument in arguments]
    assert said in mistake("inspect", *command, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


TEXT = "\n".join(text[:1000] for text in texts.english()[0][:6])


@pytest.fixture(scope="module")
def phases(tmp_path_factory):
    """A text with the folders of a plain tokenizer and one with superwords, and the latter."""
    root = tmp_path_factory.mktemp("history")
    (root / "text.txt").write_text(TEXT)
    batch = Batch.from_texts([TEXT])
    phase1 = train_bpe(count_pretokens([batch], "superbpe", unit="line"), 256 + 40 + 1)
    both = train_superbpe(phase1, lambda: [batch], vocab_size=256 + 60 + 1, rules="uw-2025", transition_merges=30)
    phase1.save(root / "bpe")
    both.save(root / "superbpe")
    return root, both


def test_the_history_is_a_log_per_tokenizer(phases, tmp_path, capsys):
    root, both = phases
    command = [f"plain={root / 'bpe'}", "--against", str(root / "superbpe"), "--text", str(root / "text.txt")]
    assert main.run(["inspect", *command, "--history", "--out", str(tmp_path)]) == 0
    log = pq.read_table(tmp_path / "merges-superbpe.parquet").to_pylist()
    assert [row["phase"] for row in log] == [1] * 30 + [2] * 30
    assert log[-1]["tokens"] == len(both.encode_ordinary(TEXT))
    assert pq.read_table(tmp_path / "merges-plain.parquet").num_rows == 40

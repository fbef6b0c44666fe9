"""Tokens that tokenizers need for a text: the numbers, their intervals, the command and its page."""

import csv
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from experiments.cli import main
from experiments.fertility import measures
from experiments.fertility.measures import ratio
from experiments.fertility.tallies import ALL, SCRIPT, SOURCE, read, tally
from lm.data.scripts import script
from lm.evaluate.deployment import Deployment
from superbpe.inspection.measures import renyi_entropy
from tests import other_tokenizers, texts
from tests.superbpe.inspection.test_boundaries import numbers_of, words_of
from tokenizer import Corpus, CorpusConfig, Tokenizer
from tokenizer.errors import UserError
from tokenizer.external.load import load_pretrained
from tokenizer.reference import encoding

MIXED = ["Привет, мир! Как дела?", "日本語のテキストです。", "1 + 1 = 2", "naïve café", "   "]
MIXED += ["one\u00a0two\tthree\u3000four"]


class Made(NamedTuple):
    """Files, and tokenizers in folders."""

    root: Path
    english: list[str]
    other: list[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory, trained):
    root = tmp_path_factory.mktemp("fertility")
    for name in ("superwords", "gpt2"):
        trained[name].save(root / name)
    prose = texts.prose()
    english = [prose[i % len(prose)][: 100 + 37 * (i % 11)] + f" {i}" for i in range(60)]
    other = [f"{MIXED[i % len(MIXED)]} {i}" if i % len(MIXED) != 4 else " " * (i + 1) for i in range(24)]
    for name, documents in (("english", english), ("other", other)):
        lines = [json.dumps({"text": text, "lang": f"{name}/{i % 3}"}) for i, text in enumerate(documents)]
        (root / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (root / "array.json").write_text('[{"text": "in an array"}]')
    (root / "table.csv").write_text("text\none two\nthree")
    return Made(root, english, other)


def encode(tokenizer, text):
    """Ids of the reference encoder."""
    ids = {token: i for i, token in enumerate(tokenizer.vocab)}
    pattern = tokenizer.pattern if tokenizer.fence is None else tokenizer.fence
    return [ids[token] for token in encoding.encode(text, tokenizer.merges, pattern.regex)]


def text_of(made, **settings):
    sources = {"english.jsonl": str(made.root / "english.jsonl"), "mixed": str(made.root / "other.jsonl")}
    return Corpus(CorpusConfig(sources=sources, **settings))


def counted(tokenizers, made, threads=2, **settings):
    text = text_of(made, **settings)
    documents = read(text)
    return documents, tally(tokenizers, text, documents, threads=threads)


def measured(tally, documents, reference):
    rows = measures.rows("x", tally, documents, reference, alpha=2.5, deployed=Deployment())
    return [row.save() for row in rows]


def test_totals_equal_those_of_the_reference_encoder(made, trained):
    arms = [trained["gpt2"], trained["superwords"]]
    documents, tallies = counted(arms, made)
    every = [*made.english, *made.other]
    source = ["english.jsonl"] * len(made.english) + ["mixed"] * len(made.other)
    assert documents.n_bytes.tolist() == [len(text.encode()) for text in every]
    assert documents.n_words.tolist() == [len(text.split()) for text in every]
    ids = [[encode(tokenizer, text) for text in every] for tokenizer in arms]
    for tokenizer, found, rows_of_ids in zip(arms, tallies, ids, strict=True):
        assert found.tokens.tolist() == [len(row) for row in rows_of_ids]
        rows = measured(found, documents, tallies[0])
        assert [row["by"] for row in rows].count(SOURCE) == 2
        assert {row["group"] for row in rows if row["by"] == SCRIPT} == {script(text) for text in every}
        for row in rows:
            chosen = [
                i for i, text in enumerate(every)
                if row["by"] == ALL or row["group"] == (source[i] if row["by"] == SOURCE else script(text))
            ]  # fmt: skip
            tokens = [token for i in chosen for token in rows_of_ids[i]]
            n_bytes = sum(len(every[i].encode()) for i in chosen)
            words = sum(len(every[i].split()) for i in chosen)
            counts = [row[name] for name in ("documents", "bytes", "words", "tokens")]
            assert counts == [len(chosen), n_bytes, words, len(tokens)]
            assert row["bytes_per_token"] == n_bytes / len(tokens)
            assert (row["tokens_per_word"] is None) == (words == 0)
            assert row["parity"] == len(tokens) / sum(len(ids[0][i]) for i in chosen)
            assert row["vocabulary"] == tokenizer.vocab_size - len(tokenizer.special_tokens)
            if row["by"] == ALL:
                assert row["used"] == len(set(tokens))
                assert row["renyi_efficiency"] == pytest.approx(
                    renyi_entropy(np.bincount(tokens), 2.5) / math.log2(row["vocabulary"]), rel=1e-12
                )
            assert (row["changed_documents"], row["lost_bytes"]) == (0, 0)
    # Threads and batches do not change the counts.
    _, again = counted(arms, made, threads=3, batch_bytes=700)
    for one, other in zip(tallies, again, strict=True):
        assert (one.counts == other.counts).all()
        assert (one.tokens == other.tokens).all()


def kept_in_one_token(text, spans, vocab, ids):
    """Number of spans of characters that lie in one token."""
    ends = np.cumsum([len(vocab[i]) for i in ids])
    places = [(len(text[:a].encode()), len(text[:b].encode())) for a, b in spans]
    return sum(not ((ends > a) & (ends < b)).any() for a, b in places)


def test_published_measures_equal_those_of_the_reference_encoder(made, trained):
    tokenizer = trained["superwords"]
    documents, (found,) = counted([tokenizer], made)
    every = [*made.english, *made.other]
    ids = [encode(tokenizer, text) for text in every]
    kept = [kept_in_one_token(text, words_of(text), tokenizer.vocab, row) for text, row in zip(every, ids, strict=True)]
    whole = [
        kept_in_one_token(text, [(i, i + 1) for i in range(len(text))], tokenizer.vocab, row)
        for text, row in zip(every, ids, strict=True)
    ]
    rows = {(row["by"], row["group"]): row for row in measured(found, documents, found)}
    english = range(len(made.english))
    for group, chosen in (((ALL, "all text"), range(len(every))), ((SOURCE, "english.jsonl"), english)):
        words = sum(len(words_of(every[i])) for i in chosen)
        strr = sum(kept[i] for i in chosen) / words
        characters = sum(len(every[i]) for i in chosen)
        row = rows[group]
        assert row["strr"] == pytest.approx(strr) == 1 - row["continued_words"]
        assert row["strr_low"] < strr < row["strr_high"]
        assert row["cut_characters"] == pytest.approx(1 - sum(whole[i] for i in chosen) / characters)
        assert (row["digit_boundaries"] is None) == (not any(numbers_of(every[i]) for i in chosen))
    costs = [rows[SOURCE, name]["tokens"] / rows[SOURCE, name]["bytes"] for name in ("english.jsonl", "mixed")]
    assert rows[ALL, "all text"]["gini"] == pytest.approx((max(costs) - min(costs)) / 2 / sum(costs))
    assert rows[SOURCE, "mixed"]["gini"] is rows[SOURCE, "mixed"]["premium"] is None


def test_premium_of_translations(trained, tmp_path, mistake, capsys):
    original = texts.prose()[:30]
    translated = [text[: len(text) // 2] + "é" * 40 for text in original]
    for name, documents in (("en", original), ("fr", translated)):
        rows = [{"text": text[:2000], "id": i} for i, text in enumerate(documents)]
        rows.append({"text": f"only in {name}, of which nothing is a translation"})
        lines = [json.dumps(row) for row in (rows if name == "en" else rows[::-1])]  # the order does not matter
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "line.txt").write_text("one line")
    trained["gpt2"].save(tmp_path / "gpt2")
    given = [str(tmp_path / "gpt2"), f"en={tmp_path / 'en.jsonl'}", f"fr={tmp_path / 'fr.jsonl'}"]
    report = run(tmp_path / "out", *given, "--parallel", "id")
    rows = {row["group"]: row for row in report["rows"] if row["by"] == "source"}
    tokens = [sum(len(encode(trained["gpt2"], text[:2000])) for text in texts) for texts in (original, translated)]
    assert (rows["en"]["premium"], rows["fr"]["premium"]) == (1, tokens[1] / tokens[0])
    assert rows["fr"]["premium_low"] < rows["fr"]["premium"] < rows["fr"]["premium_high"]
    assert report["rows"][0]["gini"] == pytest.approx(abs(tokens[1] - tokens[0]) / 2 / sum(tokens))
    assert "Premium of each source, against en" in capsys.readouterr().out
    for options, message in (
        (given[:2], "--parallel id needs at least two sources"),
        ([*given, f"few={tmp_path / 'line.txt'}"], "(documents: en: 0, fr: 0, few: 1; --separator STRING divides it"),
        ([*given, "--source-field", "id"], "--parallel id compares named sources (NAME=PATH); leave out source_field"),
    ):
        assert message in mistake("fertility", *options, "--parallel", "id", "--out", tmp_path / "x")


def test_what_is_not_there_is_not_measured(made, tmp_path, capsys):
    """Text without words and numbers, of one source: no NaN, and no share of nothing."""
    (tmp_path / "text.txt").write_text("... !? ...\n")
    report = run(tmp_path / "out", str(made.root / "gpt2"), str(tmp_path / "text.txt"))
    row = report["rows"][0]
    names = ("strr", "continued_words", "digit_boundaries", "premium", "gini")
    assert [row[name] for name in names] == [None] * 5
    assert row["cut_characters"] == 0
    assert "NaN" not in (tmp_path / "out" / "fertility.json").read_text()
    for said in (capsys.readouterr().out, (tmp_path / "out" / "fertility.html").read_text(), latex(tmp_path / "out")):
        assert said.count("not measured") >= 4


def latex(folder):
    """The tables for papers; every row has as many cells as its table has columns."""
    text = (folder / "fertility.tex").read_text(encoding="utf-8")
    for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        rows = [line for line in body.split("\n") if line.endswith(r" \\")]
        assert rows
        assert all(len(re.split(r"(?<!\\)&", row)) == len(columns) for row in rows)
    return text


def test_software_that_normalizes_or_drops_text_is_not_located(made, trained, tmp_path):
    """Tokens that do not account for the bytes of a document cut nothing that is known; others of the text count."""
    documents, (found,) = counted([load_pretrained(other_tokenizers.write(tmp_path, "word_pieces")).tokenizer], made)
    spaced = [" " in text for text in [*made.english, *made.other]]
    assert not found.located[spaced].any()
    assert measured(found, documents, found)[0]["strr"] is None


def test_copies_of_a_document_are_no_evidence(made, trained, tmp_path):
    lines = [json.dumps({"text": text}) for text in [*made.english, *made.english[:1] * 900]]
    (tmp_path / "copies.jsonl").write_text("\n".join(lines))
    text = Corpus(CorpusConfig([str(tmp_path / "copies.jsonl")]))
    documents = read(text)
    (found,) = tally([trained["gpt2"]], text, documents, threads=1)
    row, *_ = measured(found, documents, found)
    tokens, n_bytes = found.tokens.astype(float), documents.n_bytes.astype(float)
    tokens[0], n_bytes[0] = tokens[0] * 901, n_bytes[0] * 901
    expected = ratio(n_bytes[:60], tokens[:60])
    assert (row["documents"], row["bytes_per_token"]) == (960, expected[0])
    assert (row["bytes_per_token_low"], row["bytes_per_token_high"]) == pytest.approx(expected[1:])


def test_few_documents_have_no_interval():
    few, one_has_all = np.arange(1, measures.LEAST_DOCUMENTS), np.array([7] + [0] * 20)
    assert ratio(few, few * 2) == (0.5, None, None)
    assert ratio(few, few * 0) == (None, None, None)
    assert ratio(one_has_all, one_has_all) == (1.0, None, None)


def test_only_the_largest_sources_are_measured_apart(tmp_path):
    for i in range(4):
        lines = [json.dumps({"text": f"{i} {'x' * 50 * i} {j}"}) + "\n" for j in range(i + 1)]
        (tmp_path / f"{i}.jsonl").write_text("".join(lines))
    text = Corpus(CorpusConfig(sources={f"{i}": str(tmp_path / f"{i}.jsonl") for i in range(4)}))
    for most, expected in ((4, {"3": 4, "2": 3, "1": 2, "0": 1}), (3, {"3": 4, "2": 3, "1": 2})):
        groups = read(text, most_sources=most).groups
        assert {group.name: len(group.documents) for group in groups if group.by == SOURCE} == expected
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match=r"empty\.txt"):
        read(Corpus(CorpusConfig([str(tmp_path / "empty.txt")])))


@pytest.mark.slow
def test_lost_text_is_counted(made, tmp_path, mistake):
    path = other_tokenizers.write(tmp_path, "word_pieces")
    tokenizer = load_pretrained(path).tokenizer
    documents, (found,) = counted([tokenizer], made)
    rows = {row["group"]: row for row in measured(found, documents, found)}
    every = [*made.english, *made.other]
    changed = [tokenizer.decode(tokenizer.encode_ordinary(text)) != text for text in every]
    assert rows["all text"]["changed_documents"] == sum(changed) > 0
    unknown = tokenizer.encode_ordinary("Њ")
    assert unknown == [tokenizer.unknown_id]
    spaces = every.index(next(text for text in every if not text.strip()))
    assert found.lost[spaces] == documents.n_bytes[spaces]
    assert found.tokens[spaces] == 0
    assert 0 < rows["Latin"]["lost_bytes"] < rows["Latin"]["bytes"]
    # A source may have no tokens.
    (tmp_path / "spaces.txt").write_text(" " * 100)
    given = [str(path), str(made.root / "gpt2"), str(tmp_path / "spaces.txt")]
    report = run(tmp_path / "out", *given, str(made.root / "english.jsonl"))
    row = next(row for row in report["rows"] if row["group"] == "spaces.txt")
    assert (row["tokens"], row["bytes_per_token"], row["lost_bytes"]) == (0, None, 100)
    assert "word_pieces loses text" in (tmp_path / "out" / "fertility.html").read_text(encoding="utf-8")
    assert "word_pieces gives no token" in mistake("fertility", *given, "--out", tmp_path / "none")


def run(out, *arguments):
    assert main.run(["fertility", *arguments, "--out", str(out)]) == 0
    return json.loads((out / "fertility.json").read_text(encoding="utf-8"))


def test_the_command_writes_page_json_and_csv(made, tmp_path, capsys):
    root, out = made.root, tmp_path / "out"
    given = [f"plain={root / 'gpt2'}", str(root / "superwords"), str(root / "english.jsonl")]
    report = run(out, *given, f"mixed={root / 'other.jsonl'}", "--reference", "superwords")
    assert [arm["name"] for arm in report["tokenizers"]] == ["plain", "superwords"]
    assert report["tokenizers"][0]["vocab_size"] == Tokenizer.load(root / "gpt2").vocab_size
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == "all"}
    assert overall["superwords"]["parity"] == overall["superwords"]["parity_low"] == 1
    assert overall["plain"]["parity_low"] < overall["plain"]["parity"] < overall["plain"]["parity_high"]
    with (out / "fertility.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["tokenizer"], row["by"], row["group"]) for row in table] == [
        (row["tokenizer"], row["by"], row["group"]) for row in report["rows"]
    ]
    assert float(table[0]["bytes_per_token"]) == report["rows"][0]["bytes_per_token"]
    assert r"\caption{What tokens cut. STRR predicted" in latex(out)
    page = (out / "fertility.html").read_text(encoding="utf-8")
    assert re.findall('id="chart-([^"]*)"', page) == ["parity-source"]  # too few documents of each script
    assert "plain needs the fewest tokens" in page
    assert "Japanese" in page
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', outside_scripts) == []
    said = capsys.readouterr().out
    assert "Tokens by source" in said
    own = [row for row in report["rows"] if row["tokenizer"] == "superwords" and row["by"] != SCRIPT]
    assert all(f"{row['tokens']:,}" in said for row in own)
    assert "The measured text may be in the training text" not in said  # they recorded that they were not


def test_training_text_that_is_measured_is_named(made, tmp_path, capsys):
    training = tmp_path / "trained-on.jsonl"
    documents = [*made.english[:7], "something else", made.other[0]]
    training.write_text("\n".join(json.dumps({"text": text}) for text in documents), encoding="utf-8")
    given = [str(made.root / name) for name in ("gpt2", "superwords", "english.jsonl", "other.jsonl")]
    gpt2, superwords = run(tmp_path / "out", *given, "--training", f"gpt2={training}")["tokenizers"]
    assert (gpt2["training_text"], superwords["in_training"]["documents"]) == (["trained-on.jsonl"], 0)
    n_bytes = sum(len(text.encode()) for text in [*made.english[:7], made.other[0]])
    expected = {"documents": 8, "bytes": n_bytes, "sources": ["english.jsonl", "other.jsonl"]}
    assert {key: gpt2["in_training"][key] for key in expected} == expected
    page = (tmp_path / "out" / "fertility.html").read_text(encoding="utf-8")
    for said in (capsys.readouterr().out, page):
        assert "trained on 8 of the 84 measured documents" in said
        assert "trained-on.jsonl" in said


def test_the_training_text_in_a_tokenizers_own_folder_is_found(made, tmp_path, capsys):
    (tmp_path / "some.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in made.english[:9]))
    trained = ["train", str(tmp_path / "some.jsonl"), "--vocab-size", "300", "--to", str(tmp_path / "trained")]
    assert main.run(trained) == 0
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.jsonl").write_bytes((made.root / "english.jsonl").read_bytes())
    given = [str(tmp_path / "trained"), "--text", str(tmp_path / "text"), "--source-field", "lang"]
    report = run(tmp_path / "out", *given)
    assert {row["group"] for row in report["rows"] if row["by"] == "source"} == {"english"}
    (tokenizer,) = report["tokenizers"]
    assert (tokenizer["training_text"], tokenizer["in_training"]["documents"]) == (["some.jsonl"], 9)
    (tmp_path / "some.jsonl").unlink()
    (again,) = run(tmp_path / "again", *given)["tokenizers"]
    assert again == tokenizer
    (tmp_path / "trained" / "training-documents.npy").unlink()
    capsys.readouterr()
    (tokenizer,) = run(tmp_path / "again", *given)["tokenizers"]
    assert (tokenizer["training_text"], tokenizer["in_training"]) == (["some.jsonl"], None)
    said = " ".join(capsys.readouterr().out.split())
    assert "text of trained that cannot be looked up: the hashes of its training documents were left out" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{root}/gpt2"], "no text given"),
        (["{root}/array.json", "{root}/table.csv"], "no tokenizer given"),
        (["{root}/gpt2", "{root}/none.jsonl"], "none.jsonl"),
        (["{root}/none/", "{root}/english.jsonl"], "does not exist"),
        (["{root}/gpt2", "a={root}", "{root}/english.jsonl"], "if it is a folder of text, name it after --text"),
        (["{root}/gpt2", "{root}/gpt2", "{root}/english.jsonl"], "gpt2'; write NAME=PATH"),
        (["{root}/gpt2", "a={root}/english.jsonl", "b={root}/*.jsonl"], "is in the sources a and b"),
        (["{root}/gpt2", "a={root}/english.jsonl", "a={root}/other.jsonl"], "two texts are called 'a'"),
        (["{root}/gpt2", "other.jsonl={root}/english.jsonl", "{root}/other.jsonl"], "are called 'other.jsonl'"),
        (["{root}/gpt2", "{root}/english.jsonl", "--reference", "gtp2"], "the names are gpt2"),
        (["{root}/gpt2", "{root}/english.jsonl", "--training", "x={root}/other.jsonl"], "no tokenizer is called 'x'"),
        (["{root}/gpt2", "{root}/english.jsonl", "--pattern", "gpt2"], "takes no pattern"),
        (["{root}/gpt2", "{root}/english.jsonl", "--alpha", "0"], "'0' is not a number above 0"),
        (["{root}/gpt2", "{root}/english.jsonl", "--field", "body"], "body"),
        (["{root}/gpt2", "{root}/english.jsonl", "--deployment", "dense-9b"], "dense-8b"),
    ],
)
def test_mistakes_give_one_line(arguments, said, made, tmp_path, mistake):
    given = [argument.format(root=made.root) for argument in arguments]
    assert said in mistake("fertility", *given, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["", "text", "text/sub/new", "elsewhere"])
def test_results_are_not_written_among_text(out, made, tmp_path, mistake):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("some text")
    model = made.root / "gpt2"
    commands = [
        ["fertility", model, "--text", f"a={tmp_path}/text"],
        ["fertility", model, made.root / "english.jsonl", "--training", tmp_path / "text"],
        ["inspect", model, "--text", tmp_path / "text"],
        ["choose", f"a={tmp_path}/text:2"],
    ]
    for command in commands if out != "elsewhere" else commands[2:3]:
        words = [*map(str, command), "--out", str(tmp_path / out)]
        if out == "elsewhere":
            assert main.run(words) == 0
        else:
            assert "would mix its tables with the text in" in mistake(*words)
    assert [path.name for path in (tmp_path / "text").iterdir()] == ["a.txt"]

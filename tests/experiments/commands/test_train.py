"""`superbpe train`: weighted sources and counts."""

import json
from pathlib import Path

import pytest

from experiments.cli.main import run
from experiments.fertility.grid import Cell, GridTrainer
from experiments.progress import quiet
from tests import texts
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two texts, and with copies of their documents in the proportion 2 to 3."""
    english = [text[:3000] for text in texts.english()[0][:12]]
    german = [f"der die das und so weiter, und so fort: {i} Zeit für Straße" * 4 for i in range(20)]
    for name, documents in {"web": english, "de=1:2": german, "copies": 2 * english + 3 * german}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments):
    """Run the command; returns the tokenizer, or the exit code."""
    name = f"made-{len(list(Path().glob('made-*')))}"
    code = run(["train", *arguments, "--vocab-size", "400", "--to", name])
    return Tokenizer.load(name) if code == 0 else code


@pytest.mark.parametrize("options", [[], ["--superbpe", "uw-2025"]])
def test_weights_are_exact_copies_in_both_phases(folder, options):
    copies = train("copies.jsonl", *options)
    for web, german in (("web=web.jsonl:2", "de=de=1:2.jsonl:3"), ("web.jsonl", "de=1:2.jsonl:1.5")):
        weighted = train(web, german, *options)
        assert weighted.sha256 == copies.sha256
        for phase in copies.provenance.keys() & {"phase1", "phase2"}:
            assert weighted.provenance[phase]["last_count"] == copies.provenance[phase]["last_count"]


def test_choose_trains_with_weights_as_does_python(folder):
    corpus = Corpus(CorpusConfig(sources={"web": "web.jsonl:2", "de": "de=1:2.jsonl:3"}))
    counts = count_pretokens(folder / "copies.jsonl", "o200k")
    assert list(count_pretokens(corpus, "o200k").items()) == list(counts.items())
    trainer = GridTrainer(corpus, folder / "trained", {}, quiet(), 1)
    cells = [Cell(400, "o200k"), Cell(400, "o200k", preset="digits", transition=300)]
    copies = GridTrainer(Corpus(CorpusConfig(paths=["copies.jsonl"])), folder / "copies", {}, quiet(), 1)
    for quarter in (None, 1):  # a quarter of copies has the same documents
        found, expected = trainer.train(cells, quarter), copies.train(cells, quarter)
        assert [one.tokenizer.sha256 for one in found.values()] == [one.tokenizer.sha256 for one in expected.values()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["web.jsonl:0"], "whose weight is not a positive number; write PATH or PATH:3"),
        (["web.jsonl:x"], "whose weight is not a positive number"),
        (["web.jsonl:0.0000003", "copies.jsonl"], "above 1,000,000; use weights that differ less"),
        (["a=web.jsonl:2", "a=copies.jsonl"], "two texts are called 'a'; write another NAME=copies.jsonl"),
        (["none.jsonl:3"], "none.jsonl: no such file"),
        (["web.jsonl", "--pretokenized"], "add --counts"),
        (
            ["web.jsonl", "--counts", "--superbpe", "digits"],
            "train superwords on text afterwards, with superbpe extend",
        ),
        (["web.jsonl", "--counts", "--on-error", "skip"], "is about text"),
        (["web.jsonl", "--counts"], "record 0 has no field 'count'"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(folder, arguments, message, capsys):
    assert train(*arguments) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line for line in errors if line.startswith("error")] == errors[-1:]
    assert message in errors[-1]
    assert not [path for path in folder.iterdir() if path.is_dir()]


def test_counts_give_the_tokenizer_of_their_text(folder, capsys):
    expected = train("copies.jsonl", "--pattern", "gpt2")
    count_pretokens(folder / "web.jsonl", "gpt2").save(folder / "web.parquet")
    counts = count_pretokens(folder / "de=1:2.jsonl", "gpt2")
    rows = [{"text": pretoken.decode(), "count": count} for pretoken, count in counts.items()]
    (folder / "words.json").write_text(json.dumps(rows))
    assert train("web=web.parquet:2", "words.json:3", "--counts").sha256 == expected.sha256
    capsys.readouterr()
    (folder / "counts.csv").write_text("text,count\n" + "a b c d e f,3\n" * 9)
    train("counts.csv")
    assert "counts.csv: the column count is not used; add --counts" in capsys.readouterr().out
    (folder / "a.jsonl").write_text('{"text": "a b", "count": 3}\n')
    assert b"a b" in train("a.jsonl", "--counts", "--pretokenized", "--unit", "line").vocab


def test_sources_are_balanced_and_their_costs_printed(folder, capsys):
    for name, words, more in (("en", "the quick brown fox", 90), ("ja", "素早い茶色の狐", 0)):
        rows = [{"text": f"{words} {i}", "id": i % 10} for i in range(10)] + [{"text": f"{words} again"}] * more
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = ["en=en.jsonl", "ja=ja.jsonl"]
    tokenizer = train(*sources, "--parallel", "id")
    assert tokenizer.provenance["phase1"]["balanced"].keys() == {"parallel_bytes"}
    printed = capsys.readouterr().out
    assert "tokens of parallel text; Gini coefficient of BPE 0." in printed
    assert [line.split()[0] for line in printed.splitlines() if line.startswith((" en", " ja"))] == ["en", "ja"]
    balanced = train(*sources, "--ratios", "en=1", "ja=1.5", "--superbpe", "digits", "--transition", "290")
    assert balanced.provenance["phase1"]["balanced"] == {"ratios": {"en": 1.0, "ja": 1.5}}
    assert "tokens per byte, times the ratio" in capsys.readouterr().out
    for options, message in (
        ([*sources, "--parallel", "none"], "no text is parallel"),
        (["en=en.jsonl", "--parallel", "id"], "--parallel id needs at least two sources"),
        (
            ["en=en.jsonl:2", "ja=ja.jsonl", "--parallel", "id"],
            "--parallel id compares sources by themselves, so that weights do not change phase 1; drop",
        ),
        ([*sources, "--ratios", "en=1"], "each of the sources, which are en, ja"),
        ([*sources, "--ratios", "en=1", "en=2", "ja=1"], "names en more than once"),
        ([*sources, "--parallel", "id", "--ratios", "en=1", "ja=1"], "leave one out"),
        ([*sources, "--parallel", "id", "--superbpe", "boundless"], "--parallel id needs a transition"),
        ([*sources, "--parallel", "id", "--counts"], "use --ratios"),
    ):
        assert train(*options) == 2
        assert message in capsys.readouterr().err

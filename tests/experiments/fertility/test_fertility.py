"""Tokens that tokenizers need for a text: the numbers, their intervals, the command and its page."""

from __future__ import annotations

import csv
import json
import math
import re
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from experiments.cli.main import run as run_stage
from experiments.fertility import command, measures
from experiments.fertility.counting import Tally, tally
from experiments.fertility.documents import ALL, SCRIPT, SOURCE, Documents, Text
from experiments.fertility.measures import ratio
from experiments.fertility.reading import LocalReading
from lm.data.scripts import script
from lm.data.shards import END_OF_TEXT
from lm.evaluate.deployment import Deployment, serving_cost
from superbpe.inspection.measures import renyi_entropy
from tests import other_tokenizers, texts
from tests.experiments.conftest import tiny_overrides, write_corpus
from tokenizer import Corpus, CorpusConfig, Tokenizer
from tokenizer.errors import UserError
from tokenizer.interface import TokenizerLike
from tokenizer.pretrained import load_pretrained
from tokenizer.reference import encoding

MIXED = [
    "Привет, мир! Как дела?",
    "日本語のテキストです。",
    "1 + 1 = 2",
    "naïve café",
    "   ",
    "one\u00a0two\tthree\u3000four",
]


class Made(NamedTuple):
    """Files, and tokenizers in folders."""

    root: Path
    english: list[str]
    other: list[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, trained: dict[str, Tokenizer]) -> Made:
    root = tmp_path_factory.mktemp("fertility")
    for name in ("superwords", "gpt2"):
        trained[name].save(root / name)
    prose = texts.prose()
    english = [prose[i % len(prose)][: 100 + 37 * (i % 11)] + f" {i}" for i in range(60)]
    other = [f"{MIXED[i % len(MIXED)]} {i}" if i % len(MIXED) != 4 else " " * (i + 1) for i in range(24)]
    for name, documents in (("english", english), ("other", other)):
        lines = [json.dumps({"text": text, "lang": f"{name}/{i % 3}"}) for i, text in enumerate(documents)]
        (root / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Made(root, english, other)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of the reference encoder."""
    ids = {token: i for i, token in enumerate(tokenizer.vocab)}
    pattern = tokenizer.pattern if tokenizer.fence is None else tokenizer.fence
    return [ids[token] for token in encoding.encode(text, tokenizer.merges, pattern.regex)]


def texts_of(made: Made) -> list[Text]:
    names = {"english": None, "other": "mixed"}
    return [Text(named, Corpus(CorpusConfig(paths=[str(made.root / f"{n}.jsonl")]))) for n, named in names.items()]


def counted(tokenizers: list[TokenizerLike], made: Made, **options: Any) -> tuple[Documents, list[Tally]]:
    read = texts_of(made)
    reading = LocalReading(read, options.pop("threads", 2))
    documents = reading.documents(50)
    settings = {"alpha": 2.5, "memory_bytes": 10**9} | options
    return documents, list(tally(reading, tokenizers, documents, **settings))


def test_totals_equal_those_of_the_reference_encoder(made: Made, trained: dict[str, Tokenizer]) -> None:
    arms = [trained["gpt2"], trained["superwords"]]
    documents, tallies = counted([*arms], made)
    every = [*made.english, *made.other]
    source = ["english.jsonl"] * len(made.english) + ["mixed"] * len(made.other)
    assert documents.n_bytes.tolist() == [len(text.encode()) for text in every]
    assert documents.n_words.tolist() == [len(text.split()) for text in every]
    ids = [[encode(tokenizer, text) for text in every] for tokenizer in arms]
    for tokenizer, found, rows_of_ids in zip(arms, tallies, ids, strict=True):
        assert found.tokens.tolist() == [len(row) for row in rows_of_ids]
        rows = measures.rows("x", found, tallies[0].tokens, 2.5, None)
        assert [row.by for row in rows].count(SOURCE) == 2
        assert {row.group for row in rows if row.by == SCRIPT} == {script(text) for text in every}
        for row in rows:
            chosen = [
                i for i, text in enumerate(every)
                if row.by == ALL or row.group == (source[i] if row.by == SOURCE else script(text))
            ]  # fmt: skip
            tokens = [token for i in chosen for token in rows_of_ids[i]]
            n_bytes = sum(len(every[i].encode()) for i in chosen)
            words = sum(len(every[i].split()) for i in chosen)
            assert (row.documents, row.bytes, row.words, row.tokens) == (len(chosen), n_bytes, words, len(tokens))
            assert row.bytes_per_token is not None
            assert row.bytes_per_token.value == n_bytes / len(tokens)
            assert (row.tokens_per_word is None) == (words == 0)
            assert row.parity is not None
            assert row.parity.value == len(tokens) / sum(len(ids[0][i]) for i in chosen)
            assert row.used == len(set(tokens))
            assert row.vocabulary == tokenizer.vocab_size - len(tokenizer.special_tokens)
            assert row.renyi_efficiency.value == pytest.approx(
                renyi_entropy(np.bincount(tokens), 2.5) / math.log2(row.vocabulary), rel=1e-12
            )
            assert (row.changed_documents, row.lost_bytes) == (0, 0)


def test_threads_memory_and_batches_do_not_change_the_counts(made: Made, trained: dict[str, Tokenizer]) -> None:
    arms: list[TokenizerLike] = [trained[name] for name in ("gpt2", "superwords", "llama3")]
    _, once = counted(arms, made)
    read = [
        text._replace(corpus=Corpus(CorpusConfig(text.corpus.config.paths, batch_bytes=700))) for text in texts_of(made)
    ]
    reading = LocalReading(read, 3)
    again = tally(reading, arms, reading.documents(50), alpha=2.5, memory_bytes=1)
    for one, other in zip(once, again, strict=True):
        assert (one.counts == other.counts).all()
        assert (one.tokens == other.tokens).all()
        for by in (ALL, SOURCE, SCRIPT):
            assert one.gradients[by] == pytest.approx(other.gradients[by])


def test_intervals_agree_with_a_plain_bootstrap(made: Made, trained: dict[str, Tokenizer]) -> None:
    documents, (gpt2, superwords) = counted([trained["gpt2"], trained["superwords"]], made)
    row = next(row for row in measures.rows("x", superwords, gpt2.tokens, 2.5, None) if row.group == "english.jsonl")
    chosen = np.arange(len(made.english))
    sizes, tokens, before = documents.n_bytes[chosen], superwords.tokens[chosen], gpt2.tokens[chosen]
    by_document = np.array([np.bincount(encode(trained["superwords"], text), minlength=1200) for text in made.english])
    rng = np.random.default_rng(1)
    weights = np.array([np.bincount(rng.integers(0, 60, 60), minlength=60) for _ in range(2000)])
    efficiencies = np.array([renyi_entropy(draw @ by_document, 2.5) for draw in weights]) / math.log2(row.vocabulary)
    draws = {
        "bytes_per_token": (weights @ sizes) / (weights @ tokens),
        "tokens_per_word": (weights @ tokens) / (weights @ documents.n_words[chosen]),
        "parity": (weights @ tokens) / (weights @ before),
        "renyi_efficiency": efficiencies,
    }
    for name, values in draws.items():
        found = getattr(row, name)
        low, high = np.quantile(values, [0.025, 0.975])
        assert found.high - found.low == pytest.approx(high - low, rel=0.2), name
        assert found.value == pytest.approx(values.mean(), abs=0.1 * (high - low)), name


def test_intervals_cover_though_documents_differ_in_size() -> None:
    rng = np.random.default_rng(0)
    for sigma in (0.7, 1.8):
        sizes = rng.lognormal(8, sigma, (1000, 30))
        tokens = sizes * rng.lognormal(-1, 0.2, sizes.shape)
        truth = math.exp(-1 + 0.2**2 / 2)
        found = [ratio(*each) for each in zip(tokens.astype(np.int64), sizes.astype(np.int64), strict=True)]
        covered = np.mean([one.low <= truth <= one.high for one in found if one is not None and one.low and one.high])
        assert 0.925 < covered < 0.985


def test_few_documents_have_no_interval() -> None:
    few = np.arange(1, measures.LEAST_DOCUMENTS)
    assert ratio(few, few * 2) == (0.5, None, None)
    assert ratio(few, few * 0) is None
    one_has_all = np.array([7] + [0] * 20)
    assert ratio(one_has_all, one_has_all) == (1.0, None, None)


def test_only_the_largest_sources_are_kept_apart(made: Made) -> None:
    read = [Text(None, Corpus(CorpusConfig([str(made.root / "english.jsonl")], separator=None)))]
    names = [Text(f"{i}", Corpus(CorpusConfig([str(path)]))) for i, path in enumerate(_parts(made, 4))]
    assert len([group for group in LocalReading(names, 1).documents(4).groups if group.by == SOURCE]) == 4
    documents = LocalReading(names, 1).documents(3)
    groups = [group for group in documents.groups if group.by == SOURCE]
    assert {group.name for group in groups[1:]} | {groups[0].name} >= {"3", "2 other sources"}
    assert sum(len(group.documents) for group in groups) == len(documents) == 10
    assert len(LocalReading(read, 1).documents(3).groups) > 1


def test_memory_grows_linearly_with_sources(tmp_path: Path) -> None:
    path = tmp_path / "hosts.jsonl"
    path.write_text("".join(json.dumps({"text": "x" * (1 + i % 7), "url": f"{i}"}) + "\n" for i in range(3000)))
    read = [Text(None, Corpus(CorpusConfig([str(path)], source_field="url")))]
    tracemalloc.start()
    documents = LocalReading(read, 1).documents(4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000  # a byte for each pair of sources takes 9 MB
    assert [name for name, _ in documents.cells] == ["2997 other sources", "6", "13", "20"]


def _parts(made: Made, n: int) -> list[Path]:
    paths = []
    for i in range(n):
        path = made.root / f"part-{i}.jsonl"
        path.write_text("".join(json.dumps({"text": f"{i} {'x' * 50 * i} {j}"}) + "\n" for j in range(i + 1)))
        paths.append(path)
    return paths


def test_lost_text_is_counted(made: Made, tmp_path: Path) -> None:
    path = other_tokenizers.write(tmp_path, "word_pieces")
    tokenizer = load_pretrained(path, add_special_tokens=[END_OF_TEXT]).tokenizer
    documents, (found,) = counted([tokenizer], made)
    rows = {row.group: row for row in measures.rows("x", found, found.tokens, 2.5, None)}
    every = [*made.english, *made.other]
    changed = [tokenizer.decode(tokenizer.encode_ordinary(text)) != text for text in every]
    assert rows["all text"].changed_documents == sum(changed) > 0
    unknown = tokenizer.encode_ordinary("Њ")
    assert unknown == [tokenizer.unknown_id]
    spaces = every.index(next(text for text in every if not text.strip()))
    assert found.lost[spaces] == documents.n_bytes[spaces]
    assert found.tokens[spaces] == 0
    assert 0 < rows["Latin"].lost_bytes < rows["Latin"].bytes


def run(out: Path, *arguments: str) -> dict[str, Any]:
    assert command.run([*arguments, "--out", str(out)]) == 0
    report: dict[str, Any] = json.loads((out / "fertility.json").read_text(encoding="utf-8"))
    return report


def test_the_command_writes_page_json_and_csv(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = made.root, tmp_path / "out"
    given = [f"plain={root / 'gpt2'}", str(root / "superwords"), str(root / "english.jsonl")]
    report = run(out, *given, f"mixed={root / 'other.jsonl'}", "--reference", "superwords", "--figures", "csv")
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
    assert {path.name for path in (out / "figures").iterdir()} == {
        "bytes.csv", "sizes.csv", "efficiency.csv", "parity-source.csv", "parity-script.csv"
    }  # fmt: skip
    page = (out / "fertility.html").read_text(encoding="utf-8")
    assert "No tokenizer needs significantly fewer tokens than superwords" in page
    assert "Japanese" in page
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', outside_scripts) == []
    said = capsys.readouterr().out
    assert "Tokens against superwords by source" in said
    assert "Training text unknown" in said


def test_a_source_may_have_no_tokens(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pieces = other_tokenizers.write(tmp_path, "word_pieces")
    (tmp_path / "spaces.txt").write_text(" " * 100)
    given = [str(pieces), str(made.root / "gpt2"), str(tmp_path / "spaces.txt")]
    report = run(tmp_path / "out", *given, str(made.root / "english.jsonl"))
    row = next(row for row in report["rows"] if row["group"] == "spaces.txt")
    assert (row["tokens"], row["bytes_per_token"], row["lost_bytes"]) == (0, None, 100)
    assert "word_pieces loses text" in (tmp_path / "out" / "fertility.html").read_text(encoding="utf-8")
    assert command.run([*given, "--out", str(tmp_path / "none")]) == 2
    assert "word_pieces gives no token" in capsys.readouterr().err


def test_serving_is_priced_at_the_deployment(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(made.root / name) for name in ("gpt2", "superwords", "english.jsonl")]
    report = run(tmp_path / "out", *given, "--deployment", "dense-70b", "context_bytes=4096", "batch=1")
    deployed = Deployment(**{name: value for name, value in report["deployment"].items() if name != "name"})
    assert (deployed.n_layers, deployed.context_bytes, deployed.batch) == (80, 4096, 1)
    for row in report["rows"]:
        cost = serving_cost(deployed, vocab_size=1200, tokens_per_byte=row["tokens"] / row["bytes"])
        assert row["decode_flops_per_byte"] == cost.decode.flops_per_byte
        assert row["prefill_seconds_per_byte"] == cost.prefill.seconds_per_byte
        assert row["cache_bytes_per_byte"] == cost.cache_bytes_per_byte
    assert "Serving, dense-70b context_bytes=4096 batch=1" in capsys.readouterr().out


def test_a_text_may_have_sources_in_a_field_and_be_a_folder(made: Made, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.jsonl").write_bytes((made.root / "english.jsonl").read_bytes())
    report = run(tmp_path / "out", str(made.root / "gpt2"), "--text", str(tmp_path / "text"), "--source-field", "lang")
    assert {row["group"] for row in report["rows"] if row["by"] == "source"} == {"english"}


def test_training_text_that_is_measured_is_named(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = tmp_path / "trained-on.jsonl"
    documents = [*made.english[:7], "something else", made.other[0]]
    training.write_text("\n".join(json.dumps({"text": text}) for text in documents), encoding="utf-8")
    root = made.root
    command_line = [
        str(root / "gpt2"),
        str(root / "superwords"),
        str(root / "english.jsonl"),
        str(root / "other.jsonl"),
    ]
    report = run(tmp_path / "out", *command_line, "--training", f"gpt2={training}")
    gpt2, superwords = report["tokenizers"]
    assert gpt2["training_text"] == ["trained-on.jsonl"]
    assert gpt2["in_training"]["documents"] == 8
    assert gpt2["in_training"]["bytes"] == sum(len(text.encode()) for text in [*made.english[:7], made.other[0]])
    assert gpt2["in_training"]["sources"] == ["english.jsonl", "other.jsonl"]
    assert superwords["in_training"] is None
    page = (tmp_path / "out" / "fertility.html").read_text(encoding="utf-8")
    for said in (capsys.readouterr().out, page):
        assert "gpt2 was trained on 8 of the 84 measured documents" in said
        assert "trained-on.jsonl" in said


def test_the_training_text_of_an_artifact_is_found(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "tiny.jsonl")
    tiny = tiny_overrides(corpus, tmp_path)
    assert run_stage("train_superbpe", tiny) == 0
    (superbpe,) = (tmp_path / "artifacts").glob("superbpe-*")
    (bpe,) = (tmp_path / "artifacts").glob("bpe-*")
    arms = [f"bpe={bpe}", f"superbpe={superbpe}", f"elsewhere={tmp_path / 'copy'}"]
    Tokenizer.load(next((tmp_path / "artifacts").glob("tokenizer-*"))).save(tmp_path / "copy")
    assert command.run([*arms, str(corpus), "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "fertility.json").read_text(encoding="utf-8"))
    found = {arm["name"]: arm["in_training"] for arm in report["tokenizers"]}
    n_documents = report["text"]["documents"]
    assert found["bpe"] == found["superbpe"]
    assert 0.5 * n_documents < found["bpe"]["documents"] < n_documents  # all but the held-out documents
    assert found["elsewhere"] is None
    with corpus.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"text": "one more"}) + "\n")
    assert command.run([arms[0], str(corpus), "--out", str(tmp_path / "again")]) == 0
    report = json.loads((tmp_path / "again" / "fertility.json").read_text(encoding="utf-8"))
    assert report["tokenizers"][0]["in_training"] is None  # the files are not those that it was trained on


def test_the_training_text_that_a_tokenizer_itself_names_is_found(made: Made, tmp_path: Path) -> None:
    training = tmp_path / "trained-on.jsonl"
    training.write_text("\n".join(json.dumps({"text": text}) for text in made.english[:7]), encoding="utf-8")
    tokenizer = Tokenizer.load(made.root / "gpt2")
    for name, text in (("known", training), ("gone", tmp_path / "gone.jsonl")):
        Tokenizer(tokenizer.definition, {"phase1": {"text": [str(text)]}}).save(tmp_path / name)
    report = run(tmp_path / "out", str(tmp_path / "known"), str(tmp_path / "gone"), str(made.root / "english.jsonl"))
    known, gone = report["tokenizers"]
    assert (known["training_text"], known["in_training"]["documents"]) == (["trained-on.jsonl"], 7)
    assert gone["in_training"] is None


def test_splits_of_the_same_training_file_overlap_separately(made: Made) -> None:
    path = str(made.root / "english.jsonl")
    configs = [CorpusConfig([path]), CorpusConfig([path], max_bytes=1000), CorpusConfig([path], heldout_fraction=0.5)]
    loaded = load_pretrained(made.root / "gpt2")
    arms = [command.Arm(str(i), loaded, [Corpus(config)]) for i, config in enumerate(configs)]
    found = command._overlaps(arms, LocalReading(texts_of(made), 1))
    for arm in arms:
        overlap = found[arm.name]
        assert overlap is not None
        assert overlap.documents.sum() == len(list(arm.training[0].documents()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{root}/gpt2"], "no text given"),
        (["{root}/english.jsonl"], "no tokenizer given"),
        (["{root}/gpt2", "{root}/none.jsonl"], "none.jsonl"),
        (["{root}/none/", "{root}/english.jsonl"], "does not exist"),
        (["{root}/gpt2", "{root}/gpt2", "{root}/english.jsonl"], "two tokenizers are called 'gpt2'; write NAME=PATH"),
        (["{root}/gpt2", "{root}/english.jsonl", "{root}/*.jsonl"], "is named twice"),
        (["{root}/gpt2", "{root}/english.jsonl", "--reference", "gtp2"], "the names are gpt2"),
        (["{root}/gpt2", "{root}/english.jsonl", "--training", "x={root}/other.jsonl"], "no tokenizer is called 'x'"),
        (["{root}/gpt2", "{root}/english.jsonl", "--pattern", "gpt2"], "NAME=PATTERN"),
        (["{root}/gpt2", "{root}/english.jsonl", "--alpha", "0"], "must be greater than 0"),
        (["{root}/gpt2", "{root}/english.jsonl", "--sources", "1"], "--sources 1 must be at least 2"),
        (["{root}/gpt2", "{root}/english.jsonl", "--field", "body"], "body"),
        (["{root}/gpt2", "{root}/english.jsonl", "--deployment", "dense-9b"], "dense-8b"),
    ],
)
def test_mistakes_give_one_line(
    arguments: list[str], said: str, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(root=made.root) for argument in arguments]
    assert command.run([*given, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_ctrl_c_writes_nothing(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tally, "weigh", interrupted)
    given = [str(made.root / "gpt2"), str(made.root / "english.jsonl"), "--out", str(tmp_path / "out")]
    assert command.run(given) == 130
    assert not (tmp_path / "out").exists()


def test_an_empty_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match=re.escape("empty.txt")):
        LocalReading([Text(None, Corpus(CorpusConfig([str(tmp_path / "empty.txt")])))], 1).documents(50)

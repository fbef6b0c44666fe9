"""`superbpe choose`: the grid, its prices, the finalists and the command that compares them."""

import dataclasses
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import deployments
from experiments.cli import main
from experiments.compose import load
from experiments.config import part
from experiments.fertility import choice, search
from experiments.fertility.choosing import Candidate, Contender, cost_curve, finalists, margin, price
from experiments.fertility.grid import Cell, Trained, grid
from experiments.fertility.losses import Loss
from experiments.fertility.measures import Measure
from experiments.fertility.splitting import divide, held_out_sources
from experiments.fertility.tallies import Documents
from lm.evaluate.deployment import Deployment, serving_cost
from superbpe import train_superbpe
from superbpe.inspection.boundaries import UnitCounts
from tests import other_tokenizers, texts
from tests.properties import quick_first
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens, train_bpe
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.errors import UserError
from tokenizer.files import digest

GRID = ["--patterns", "o200k", "--presets", "uw-2025", "--transitions", "0.5", "--sizes", "600", "1200"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("choose") / "text.jsonl"
    prose = [part for text in texts.prose() for part in text.split("\n\n") if len(part) > 200]
    lines = [json.dumps({"text": f"{text} {i}", "from": f"kind{i % 2}: {i % 4}"}) for i, text in enumerate(prose)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(text):
    return choose(text, text.parent / "out")


def command_line(text, out, *more):
    return ["choose", str(text), "--out", str(out), "--heldout", "0.4", "--source-field", "from", *GRID, *more]


def choose(text, out, *more):
    assert main.run(command_line(text, out, *more)) == 0
    return json.loads((out / "choose.json").read_text(encoding="utf-8"))


def words_of(document):
    return re.findall(r"\w+", document.lower().replace("_", " "))


def sequences_of(document):
    words = words_of(document)
    return [tuple(words[i : i + 13]) for i in range(len(words) - 12)]


def covered(document, sequences):
    """Share of the words of a document that are in one of these sequences of 13 words."""
    inside = [False] * len(words_of(document))
    for i, sequence in enumerate(sequences_of(document)):
        if sequence in sequences:
            inside[i : i + 13] = [True] * 13
    return sum(inside) / max(len(inside), 1)


def test_the_grid_has_every_combination_once():
    cells = grid(None, ["uw-2025", "boundless"], [0.5, 400, 9000], [800, 1600], ["o200k", "gpt2"])
    assert [cell.name for cell in cells] == [
        "bpe-o200k-800", "bpe-o200k-1_6k", "bpe-gpt2-800", "bpe-gpt2-1_6k",
        "uw-2025-800-t400", "uw-2025-1_6k-t800", "uw-2025-1_6k-t400",
        "boundless-800", "boundless-1_6k",
    ]  # fmt: skip
    assert cells[4] == Cell(800, "superbpe", "line", "uw-2025", 400)
    crossed = grid(["gpt2", "o200k"], ["runs"], [0.5], [800], [])
    assert [cell.name for cell in crossed] == ["bpe-gpt2-800", "bpe-o200k-800", "runs-gpt2-800-t400", "runs-800-t400"]


def test_tokenizers_equal_those_that_are_trained_alone(text, report):
    corpus = Corpus(CorpusConfig(paths=[str(text)], heldout_fraction=0.4))
    trained = {Tokenizer.load(path).sha256 for path in (text.parent / "out" / "trained").iterdir() if path.is_dir()}
    bpe = train_bpe(count_pretokens(corpus, "o200k"), 1200)
    lines = train_bpe(count_pretokens(corpus, "o200k", unit="line"), 601)
    assert bpe.sha256 in trained
    assert train_superbpe(lines, corpus, vocab_size=1200, rules="uw-2025", transition=600).sha256 in trained
    assert {one["name"] for one in report["tokenizers"]} == {
        "bpe-o200k-600", "bpe-o200k-1_2k", "uw-2025-o200k-600-t300", "uw-2025-o200k-1_2k-t600",
    }  # fmt: skip
    saved = {one["name"]: Tokenizer.load(one["folder"]) for one in report["finalists"]}
    assert saved["bpe-o200k-1_2k"].sha256 == bpe.sha256
    assert all(tokenizer.provenance["choose"] == report["split"] for tokenizer in saved.values())

    # Training, selection and test are disjoint and complete.
    def documents(split, **settings):
        return set(Corpus(CorpusConfig(paths=[str(text)], heldout_fraction=0.4, **settings)).documents(split))

    training, test = documents("train"), documents("heldout", heldout_sample=0.5)
    lines = (text.parent / "out" / "selection.jsonl").read_text(encoding="utf-8").splitlines()
    selection = {json.loads(line)["text"] for line in lines}
    assert len(selection) == report["text"]["documents"]
    near = documents("all") - training - test - selection
    assert training | selection | test | near == documents("all")
    assert len(training) + len(selection) + len(test) + len(near) == len(documents("all"))
    assert len(near) == report["overlap"]["near_duplicates"] > 0
    sequences = {words for document in training for words in sequences_of(document)}
    for some, repeated in ((selection, False), (near, True)):
        shares = [covered(document, sequences) for document in some]
        assert all((share >= 0.5) is repeated for share in shares)


def test_numbers_equal_those_of_fertility(text, report, tmp_path):
    selection = text.parent / "out" / "selection.jsonl"
    folders = [f"{one['name']}={one['folder']}" for one in report["finalists"]]
    words = ["fertility", *folders, str(selection), "--source-field", "source", "--out", str(tmp_path)]
    assert main.run([*words, "--reference", report["reference"]]) == 0
    rows = json.loads((tmp_path / "fertility.json").read_text(encoding="utf-8"))["rows"]
    names = {one["name"] for one in report["finalists"]}
    assert len(names) > 1
    assert {row["in_training_bytes"] for row in rows} == {0}  # the folders record their training text
    expected = [{**row, "in_training_bytes": None} for row in rows]
    assert [row for row in report["rows"] if row["tokenizer"] in names] == sorted(
        expected, key=lambda row: [one["name"] for one in report["tokenizers"]].index(row["tokenizer"])
    )
    assert {row["group"] for row in rows if row["by"] == "kind"} == {"kind0", "kind1"}


@pytest.mark.slow
def test_the_command_for_the_models_is_a_configuration_with_the_split_of_the_finalists(report, text, tmp_path, capsys):
    words = report["bakeoff"]["command"]
    assert words[:2] == ["pipeline", "experiment=bakeoff"]
    config = load(words[1:])
    assert [arm.file for arm in config.arms.values()] == [one["folder"] for one in report["finalists"]]
    assert report["finalists"][0]["name"] == report["reference"]
    assert config.corpus.paths == [str(text)]
    assert (config.corpus.heldout_fraction, config.corpus.heldout_sample) == (0.4, 0.5)  # the documents not read here
    assert report["bakeoff"]["seconds"] > 0
    assert config.eval.context_bytes == choice.CONTEXT_BYTES
    assert digest(Corpus(part(CorpusConfig, config.corpus)).identity()) == report["split"]["corpus"]
    for changed, message in (
        ([], ""),
        (["corpus.heldout_fraction=0.3"], "with another split of the text"),
        (["corpus.heldout_sample=0.9"], "corpus.heldout_sample of at most 0.5"),
        (["corpus.sample=0.5"], "corpus.heldout_fraction=0.4"),
    ):
        more = [*words[1:], *changed, f"artifacts={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}"]
        assert main.run(["pipeline", "--until", "train-bpe", *more]) == (2 if message else 0)
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == bool(message)


def test_the_page_names_the_finalists_and_a_second_run_trains_nothing(text, report, monkeypatch, capsys):
    page = (text.parent / "out" / "choose.html").read_text(encoding="utf-8")
    for one in report["finalists"]:
        assert one["folder"] in page
        assert one["why"].replace(" %", "\N{NO-BREAK SPACE}%") in page.replace("&#39;", "'")
        assert one["opens_in"]["tokenizers 0.23"] == "yes"
    assert "<td>llama.cpp</td>" in page
    assert "kind1" in page
    assert "superbpe pipeline experiment=bakeoff" in page
    for name in ("count_pretokens", "train_bpe", "train_superbpe"):
        monkeypatch.setattr(f"experiments.fertility.grid.{name}", lambda *_, **__: pytest.fail("trains again"))
    again = choose(text, text.parent / "out")
    assert again["tokenizers"] == report["tokenizers"]
    assert "next:  superbpe pipeline experiment=bakeoff" in capsys.readouterr().out
    (other := text.with_name("other.jsonl")).write_bytes(text.read_bytes())
    assert main.run(command_line(other, text.parent / "out")) == 2
    assert f"has the answer for other text ({text})" in capsys.readouterr().err


@pytest.mark.parametrize("damage", quick_first(["edited", "gone", "record"]))
def test_damaged_results_are_made_again(damage, text, report, tmp_path):
    """Every file that a kill may leave behind or someone may change, each damaged in its own way."""
    shutil.copytree(text.parent / "out", out := tmp_path / "out")
    trained = [path for path in (out / "trained").rglob("*") if path.is_file() and path.suffix != ".md"]
    damaged = [(out / "selection.jsonl", damage)]
    if damage == "record":
        damaged.append((out / "selection.json", damage))
    else:
        damaged += zip(trained[::3], itertools.cycle(["cut", "edited", "empty", "gone"]), strict=False)
    for path, how in damaged:
        data = path.read_bytes()
        changed = {"cut": data[: len(data) // 2], "edited": data.replace(b"e", b"a", 1), "record": b"{", "empty": b""}
        path.unlink() if how == "gone" else path.write_bytes(changed[how])
    again = choose(text, out)
    for key in ("tokenizers", "rows", "reference"):
        assert again[key] == report[key]
    assert (out / "selection.jsonl").read_bytes() == (text.parent / "out" / "selection.jsonl").read_bytes()


@pytest.mark.slow
def test_existing_tokenizers_are_compared_and_extended_or_measured_on_a_sample(
    text, report, tmp_path, monkeypatch, capsys
):
    train_bpe(texts.sample(60_000), 500).save(tmp_path / "mine")
    n_bytes, n_documents = (report["text"][key] for key in ("bytes", "documents"))
    monkeypatch.setattr(search, "SAMPLE_BYTES", n_bytes // 3)
    monkeypatch.setattr(choice, "CONTEXT_BYTES", 5)
    against = [f"mine={tmp_path / 'mine'}", f"other={other_tokenizers.write(tmp_path, 'lowercased_bytes')}"]
    mine = choose(text, text.parent / "out", "--against", *against, "--reference", "mine")
    assert mine["bakeoff"]["command"][-1].startswith("eval.context_bytes=")
    assert mine["reference"] == "mine"
    rows = {one["name"]: one for one in mine["tokenizers"]}
    assert rows["mine"]["relative"] == 1
    assert rows["mine-extended"]["superwords"] > 0
    assert rows["mine-extended"]["vocab_size"] == 625
    assert mine["finalists"][0]["folder"] == str(tmp_path / "mine")
    assert rows["other"]["documents"] == -(-n_documents // 4)  # of other software
    found, alone = rows["bpe-o200k-600"], {one["name"]: one for one in report["tokenizers"]}["bpe-o200k-600"]
    assert found == alone | {key: found[key] for key in found if key.startswith(("reference", "relative"))}
    said = capsys.readouterr().out
    assert f", on {rows['other']['documents']} documents" in said
    assert "mine opens in tokenizers 0.23, " in said


def test_prices_are_those_of_the_deployment(report):
    deployed = deployments.read(["dense-70b", "context_bytes=4096"])
    assert (deployed.rate, deployments.read(["rate=0.04"]).rate) == (None, 0.04)
    assert (deployed.n_layers, deployed.context_bytes) == (80, 4096)
    for tokens_per_byte in (0.15, 0.42):
        cost = serving_cost(deployed, vocab_size=5000, tokens_per_byte=tokens_per_byte)
        expected = cost.prefill.flops_per_byte + cost.decode.flops_per_byte
        assert cost_curve(deployed, 5000)(tokens_per_byte) == pytest.approx(expected, rel=1e-12)
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == "all"}
    for one in report["tokenizers"]:
        rows = (overall[one["name"]], overall[one["reference"]])
        cost, other = (row["prefill_flops_per_byte"] + row["decode_flops_per_byte"] for row in rows)
        assert one["relative"] == pytest.approx(cost / other, rel=1e-12)
        assert one["flops_per_byte"] == pytest.approx(cost, rel=1e-12)
        size = {other["name"]: other["vocab_size"] for other in report["tokenizers"]}
        assert (size[one["reference"]], one["reference"][:9]) == (one["vocab_size"], "bpe-o200k")
        assert one["name"] == one["reference"] or one["relative_low"] < one["relative"] < one["relative_high"]
    for mistake in ("dense-9b", "n_layer=3", "n_layers=many"):
        with pytest.raises(UserError, match="deployment: "):
            deployments.read([mistake])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--reference", "bpe"], "--reference 'bpe' is not a tokenizer; the names are bpe-o200k-600"),
        (["--patterns", "o20k"], "did you mean 'o200k'"),
        (["--heldout", "0.01"], "documents are held out"),
    ],
)
def test_mistakes_are_one_line(text, tmp_path, more, message, mistake):
    assert message in mistake(*command_line(text, tmp_path / "out", *more))


def test_a_tokenizer_that_was_trained_on_the_text_is_not_compared(text, tmp_path, mistake, capsys):
    assert main.run(["train", str(text), "--vocab-size", "400", "--to", str(tmp_path / "seen")]) == 0
    given = command_line(text, tmp_path / "out", "--against", f"seen={tmp_path / 'seen'}")
    assert re.search(r"--against seen was trained on (\d+) of the \1 documents, so", mistake(*given))
    assert main.run(["inspect", str(tmp_path / "seen"), "--text", str(text), "--out", str(tmp_path / "page")]) == 0
    assert "(seen was trained on " in " ".join(capsys.readouterr().out.split())


def test_ctrl_c_keeps_what_is_trained(text, tmp_path, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.fertility.grid.train_superbpe", stop)
    assert main.run(command_line(text, tmp_path / "out")) == 130
    assert "the same command resumes after them" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "trained").glob("*.json"))) == 2  # phase 1 of documents and lines
    assert not (tmp_path / "out" / "choose.html").exists()


@pytest.mark.slow
def test_no_slow_package_is_needed(text, tmp_path):
    words = ["choose", str(text), "--out", str(tmp_path), "--quick", "--sizes", "300", "--patterns", "gpt2"]
    words += ["--presets", "--heldout", "0.4"]
    code = (
        f"import sys; from experiments.cli.main import run; assert run({words}) == 0;"
        "sys.exit(', '.join({'torch', 'hydra', 'omegaconf', 'wandb', 'pyarrow'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def priced_at(name, cost, **changes):
    settings = {
        "name": name, "recipe": "bpe", "vocab_size": 500, "superwords": 0, "lossy": False, "flops_per_byte": cost,
        "reference": "ref", "relative": Measure(cost, cost - 0.01, cost + 0.01), "supported": True,
        "documents": 100, "bytes_per_token": 4.0, "cache_bytes_per_byte": 1.0, "parameters": 1, "last_count": 20,
        "software": None,
    }  # fmt: skip
    return Candidate(**settings | changes)


def test_a_saving_counts_beyond_what_other_training_text_would_change():
    """Two standard deviations of the savings on quarters of the text, and at least half a per cent."""
    assert margin([0.01, -0.01, 0.01, -0.01]) == pytest.approx(2 * 0.01 * math.sqrt(4 / 3))
    assert margin([-0.2] * 4) == 0.005
    every = [priced_at("ref", 1.0, relative=Measure(1.0)), priced_at("a", 0.96)]
    assert [list(finalists(every, least)) for least in (0.029, 0.031)] == [["ref", "a"], ["ref"]]


def test_prices_are_relative_on_common_documents_and_supported_with_their_reference():
    documents = Documents(np.full(40, 100), np.ones(40, int), [], np.arange(40, dtype=np.uint64))
    none, half = np.zeros(40, bool), np.arange(40) % 2 == 0

    def contender(tokens, measured, last_count):
        tokenizer = SimpleNamespace(vocab_size=500, superword_ids=list)
        counted = {"changed": none, "lost": none, "located": none, "cut": UnitCounts(*[none] * 3)}
        tally = SimpleNamespace(tokenizer=tokenizer, tokens=tokens, measured=measured, units=counted["cut"], **counted)
        return Contender(tally, "bpe", last_count)

    curve = cost_curve(Deployment(), 500)
    for last_counts, supported in (((10, 10), True), ((9, 10), False), ((10, 9), False)):
        ref, other = (
            contender(tokens, measured, last_count)
            for tokens, measured, last_count in zip(
                (np.where(half, 25, 0), np.where(half, 20, 90)), (half, ~none), last_counts, strict=True
            )
        )
        _, priced = price({"ref": ref, "other": other}, dict.fromkeys(("ref", "other"), "ref"), documents, Deployment())
        assert priced.relative.value == pytest.approx(curve(0.2) / curve(0.25))
        assert priced.supported is supported


def test_the_last_count_is_the_least_that_weights_leave(monkeypatch):
    config = SimpleNamespace(weights={"a": 1.0, "b": 3.0})
    trainer = SimpleNamespace(corpus=SimpleNamespace(config=config))
    found = search.GridSearch(trainer, None, None, None, "gpt2")
    monkeypatch.setattr(found, "tally", lambda _: [None])
    found.add({"x": Trained(None, np.array([90, 29]))})
    assert found.contenders["x"].last_count == 9


def test_finalists_are_of_one_size_and_supported_by_the_text():
    """The cheapest is compared with BPE of its size, whatever is cheaper at a size that the text does not support."""
    small = [priced_at("bpe-s", 1.0, reference="bpe-s", relative=Measure(1.0))]
    small += [priced_at("super-s", 0.8, reference="bpe-s", recipe="super", superwords=9)]
    small += [priced_at("other-s", 0.85, reference="bpe-s", recipe="other", superwords=9)]
    large = [priced_at("bpe-l", 0.7, vocab_size=900, reference="bpe-l", relative=Measure(1.0), supported=False)]
    large += [priced_at("super-l", 0.5, vocab_size=900, reference="bpe-l", recipe="super", supported=False)]
    why = finalists([*small, *large], 0.01)
    assert list(why) == ["bpe-s", "super-s", "other-s"]
    assert why["super-s"].endswith("−20.0 % FLOPs per byte against bpe-s (95 %: −21.0 to −19.0 %)")
    supported = [dataclasses.replace(one, supported=True) for one in large]
    assert list(finalists([*small, *supported], 0.01)) == ["bpe-l", "super-l"]
    mine = [priced_at("mine", 0.9, vocab_size=600, reference=None, relative=Measure(None))]
    mine += [priced_at("mine-extended", 0.6, vocab_size=750, reference="mine", frontier=True)]
    why = finalists([*small, *large, *mine], 0.01, ["mine"], {"mine-extended": "mine"})
    assert list(why) == ["bpe-s", "super-s", "mine", "mine-extended"]
    assert "keeps the ids of mine" in why["mine-extended"]


@pytest.mark.slow
def test_the_grid_grows_until_the_cheapest_is_inside(text, tmp_path):
    """Lower transitions are tried as long as the lowest is the cheapest."""
    corpus = Corpus(CorpusConfig(paths=[str(text)]))
    settings = {"sizes": [600], "patterns": ["o200k"], "presets": ["digits"], "heldout": 0.4, "out": tmp_path / "out"}
    grown = choice.choose_tokenizers(corpus, **settings)
    costs = {one.name.rpartition("-t")[2]: one.flops_per_byte for one in grown.tokenizers if one.superwords}
    assert list(costs) == ["480", "540", "420", "360"]
    assert min(costs, key=costs.get) == "420"
    assert grown.edges == ["The vocabulary of digits-600-t420 is the largest tried"]
    fixed = choice.choose_tokenizers(corpus, transitions=[0.8, 0.9], **settings)
    assert len(fixed.tokenizers) == 3
    assert any("80 % of the vocabulary) is the lowest tried" in edge for edge in fixed.edges)


def test_measured_losses_are_shown_beside_the_price(text, report, tmp_path, monkeypatch, capsys):
    best = report["finalists"][1]
    sha256 = Tokenizer.load(best["folder"]).sha256
    losses = {sha256: Loss("super", 1.25, Measure(-0.8, -1.2, -0.4)), "": Loss("another", 1.3, Measure(None))}
    monkeypatch.setattr(choice, "measured_losses", lambda run: losses if run == tmp_path else {})
    shutil.copytree(text.parent / "out", tmp_path / "out")
    found = choose(text, tmp_path / "out", "--with", str(tmp_path))
    rows = {one["name"]: one for one in found["tokenizers"]}
    assert (rows[best["name"]]["bits_per_byte"], rows[best["name"]]["loss_percent_low"]) == (1.25, -1.2)
    assert found["unmatched"] == ["another"]
    said = " ".join(capsys.readouterr().out.split())
    assert "1.2500" in said
    assert "also has another, of which no tokenizer is here" in said


def test_the_larger_vocabulary_gets_more_text_and_time(report):
    assert report["bakeoff"]["train_bytes"] == choice.BAKEOFF_BYTES  # at most 8,192 tokens
    corpus = Corpus(CorpusConfig(paths=report["text"]["files"], heldout_fraction=0.4))
    documents = Documents(np.ones(1), np.ones(1), [], np.ones(1, np.uint64))
    small, large = (
        choice._bakeoff(
            corpus,
            documents,
            [choice.Finalist(name, "", name, [], "", FakeTokenizer(size)) for name in ("a", "b")],
            ["dense-8b"],
        )
        for size in (8192, 16_384)
    )
    assert (small.train_bytes, large.train_bytes) == (3_200_000, 6_400_000)
    assert "budget.train_bytes=6400000" in large.command
    assert large.seconds > 2 * small.seconds > 2 * 2 * 650  # seconds of the models of a tokenizer


class FakeTokenizer:
    def __init__(self, size):
        self.vocab_size = size

    def token_byte_lengths(self):
        return np.ones(self.vocab_size)


def test_whole_sources_are_held_out_where_there_are_enough(tmp_path):
    sizes = {f"{kind}: {i}": 100 for kind in ("code", "prose") for i in range(8)}
    held = held_out_sources(sizes, 0.2)
    assert sorted(name.partition(":")[0] for name in held) == ["code", "code", "prose", "prose"]
    assert held < held_out_sources(sizes, 0.5)
    assert len(held_out_sources(sizes, 1.0)) == 14  # tokenizers are trained on every kind
    assert held_out_sources({f"{i}": 1 for i in range(9)}, 0.2) == set()
    assert held_out_sources({**sizes, "odd: 1": 1, "odd: 2": 1}, 0.2) == set()
    prose = [part for text in texts.prose() for part in text.split("\n\n") if len(part) > 200]
    lines = [json.dumps({"text": f"{text} {i}", "from": f"source {i % 12}"}) for i, text in enumerate(prose)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines), encoding="utf-8")
    text = Corpus(CorpusConfig(paths=[str(tmp_path / "text.jsonl")], source_field="from"))
    division = divide(text, tmp_path, 0.3)
    assert division.identity.by_source
    training, selection = (
        {source for source, _ in documents_by_origin(*side)}
        for side in ((division.corpus, "train"), (division.selection, "all"))
    )
    assert len(training | selection) == 12
    assert not training & selection
    again = divide(text, tmp_path, 0.3)
    assert again.identity == division.identity
    assert set(text.documents("all")) == {*division.corpus.documents("train"), *division.corpus.documents("heldout")}
    for i in range(12):
        (tmp_path / f"{i}.jsonl").write_text("\n".join(lines[i::12]), encoding="utf-8")
    named = divide(
        Corpus(CorpusConfig(sources={f"{i}": str(tmp_path / f"{i}.jsonl") for i in range(12)}, source_field="from")),
        tmp_path,
        0.3,
    )
    assert not named.identity.by_source  # languages, for example, of which the tokenizer reads each
    words = choice._bakeoff(
        division.corpus,
        Documents(np.ones(1), np.ones(1), [], np.ones(1, np.uint64)),
        [choice.Finalist(name, "", name, [], "", FakeTokenizer(500)) for name in ("a", "b")],
        ["dense-8b"],
    ).command
    config = load([word for word in words[1:] if not word.startswith("arms")])
    assert digest(Corpus(part(CorpusConfig, config.corpus)).identity()) == division.identity.corpus

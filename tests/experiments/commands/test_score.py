"""`superbpe score`: models from anywhere on one page."""

import json
import random
from functools import partial

import pytest
import torch

from experiments.cli import main
from experiments.report.combining import combine
from experiments.store import records
from lm.hf import pretrained
from lm.hf.export import export_hf
from lm.model.weights import load_model
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import paths
from tests.lm.hf.test_scoring import made, saved
from tokenizer.external.load import load_saved

pytestmark = pytest.mark.filterwarnings("ignore:.*its post-processor")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two models with their tokenizers, and documents of two kinds."""
    folder = tmp_path_factory.mktemp("score")
    for name, kind, tokens in (
        ("gpt", "GPT2", {"eos": "<eos>"}),
        ("llama", "Llama", {"bos": "<bos>", "eos": "<eos>", "adds_bos": True}),
    ):
        made(kind, spread=0.1).save_pretrained(folder / name)
        saved(folder / name, **tokens)
    rng = random.Random(0)
    words = ["def", "return", "the", "value", "of", "index", "café", "1", "22"]
    for kind in ("prose", "code"):
        with (folder / f"{kind}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(12):
                text = " ".join(rng.choices(words, k=rng.randint(20, 60)))
                file.write(json.dumps({"text": text, "name": f"{kind}-{number}"}) + "\n")
    return folder


def arguments(place, *models, text=("prose", "code"), out="out"):
    texts = [f"{kind}={place / kind}.jsonl" for kind in text]
    settings = ["--source-field", "name", "--out", place / out, "--artifacts", place / "artifacts"]
    return list(map(str, ["score", *models, *texts, *settings]))


def test_models_are_compared_as_given_and_scored_once(place, tmp_path, capsys, monkeypatch, mistake):
    words = arguments(place, f"small={place / 'gpt'}", place / "llama")
    assert main.run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    report = json.loads((place / "out" / "comparison.json").read_text())
    assert [row["label"] for row in report["tokenizers"]] == ["small", "llama"]
    assert report["verdict"]["sentence"].startswith("As given, ")
    assert {row["group"] for row in report["differences"] if row["by"] == "kind"} == {"prose", "code"}
    assert said.count("rows of the embedding belong to no id of the tokenizer") == 2
    for sentence in ("small <eos> (ends every text)", "llama <bos> (begins every text)"):
        assert sentence in said
        assert sentence in report["conditions"]
    page = (place / "out" / "comparison.html").read_text()
    assert "models as given" in page
    assert "training FLOPs" not in page
    result, _ = combine(records.finished([place / "out"])[0])
    assert result.labels == ["small", "llama"]
    assert result.shown.percent == report["verdict"]["percent"]
    assert main.run(["compare", str(place / "out"), "--out", str(tmp_path / "again")]) == 0
    again = " ".join(capsys.readouterr().out.split())
    assert again.partition(" wrote:")[0] == said[said.index("The text, models as given") :].partition(" wrote:")[0]
    monkeypatch.setattr(pretrained, "load", None)  # nothing is loaded again
    assert main.run(words) == 0
    again = json.loads((place / "out" / "comparison.json").read_text())
    assert again["differences"] == report["differences"]
    mistake = partial(mistake, "compare", place / "one", "--out", tmp_path / "again")
    assert main.run(arguments(place, place / "gpt", out="one")) == 0
    assert "contain only gpt: nothing to compare it with" in mistake()
    assert main.run([*arguments(place, place / "gpt", out="one"), "--start", "none=x"]) == 2
    assert "it failed: --start none=x" in mistake()


@pytest.mark.slow
def test_a_table_of_budgets_is_compared_over_compute(place, capsys):
    rows = ["arm,model,train_flops,train_bytes"]
    for arm, names in (("one", ["gpt", "llama"]), ("two", ["llama", "gpt"])):
        rows += [f"{arm},{place / name},{budget},1e9" for name, budget in zip(names, ("1e18", "4e18"), strict=True)]
    table = place / "models.csv"
    table.write_text("\n".join(rows) + "\n")
    assert main.run(arguments(place, table, out="ladder")) == 2  # one tokenizer each
    assert "give each tokenizer its own arm" in capsys.readouterr().err
    torch.manual_seed(0)
    for name in ("gpt", "llama"):
        model = pretrained.load(place / name)
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(0.5)
        model.save_pretrained(place / f"{name}-less")
        for file in (place / name).glob("tokenizer*"):
            (place / f"{name}-less" / file.name).write_bytes(file.read_bytes())
    rows = [
        f"{name},{name}{less},{budget},{budget}"
        for name in ("gpt", "llama")
        for less, budget in (("-less", "1e18"), ("", "4e18"))
    ]
    table.write_text("arm,model,train_flops,train_bytes\n" + "\n".join(rows) + "\n")
    assert main.run(arguments(place, table, out="ladder")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1e18 4e18" in said
    assert "At equal bytes of training text" in said
    numbers = json.loads((place / "ladder" / "ladder.json").read_text())
    assert [arm["flops"] for arm in numbers["arms"]] == [[1e18, 4e18]] * 2


def test_a_model_of_the_pipeline_scores_as_in_its_run_and_as_exported(tiny, tmp_path, place):
    run_stages("evaluate", tiny, tmp_path / "outputs")
    by_tokenizer = {}
    for folder in paths(tmp_path, "lm"):
        model = load_model(folder)
        tokenizer = load_saved(tmp_path / "artifacts" / f"tokenizer-{model.tokenizer_sha256[:12]}")
        export_hf(model, tokenizer, tmp_path / folder.name)
        by_tokenizer[tokenizer.sha256] = folder
    (documents,) = paths(tmp_path, "documents")
    assert documents.exists()
    words = []
    for number, folder in enumerate(by_tokenizer.values()):
        words += [f"own{number}={folder}", f"exported{number}={tmp_path / folder.name}"]
    settings = ["--context-bytes", "512", "--artifacts", str(tmp_path / "artifacts"), "--out", str(tmp_path / "out")]
    assert main.run(["score", *words, f"{place / 'prose'}.jsonl", *settings]) == 0
    numbers = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows, lines = numbers["tokenizers"], numbers["answer"]["lines"]
    for own, exported in zip(rows[::2], rows[1::2], strict=True):
        assert exported["bits_per_byte"] == pytest.approx(own["bits_per_byte"], abs=1e-5)
    for own, exported in zip(lines[::2], lines[1::2], strict=True):  # all by their own shapes
        assert exported["serving_flops_per_byte"] == pytest.approx(own["serving_flops_per_byte"])
    assert abs(lines[1]["serving_percent"]) < 0.05


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("pickle", "safetensors"),
        ("code", "trust-remote-code"),
        ("nan", "not finite"),
        ("truncated", "safetensors"),
        ("no tokenizer", "tokenizer"),
        ("no weights", "safetensors"),
    ],
)
def test_a_hostile_folder_is_one_line(fault, said, place, tmp_path, mistake):
    model = made("GPT2")
    saved(tmp_path / "bad", eos="<eos>")
    if fault == "nan":
        with torch.no_grad():
            model.transformer.wpe.weight[0] = float("nan")
    model.save_pretrained(tmp_path / "bad")
    weights = tmp_path / "bad" / "model.safetensors"
    if fault == "pickle":
        torch.save(model.state_dict(), tmp_path / "bad" / "pytorch_model.bin")
    if fault in ("pickle", "no weights"):
        weights.unlink()
    if fault == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    if fault == "no tokenizer":
        for file in (tmp_path / "bad").glob("tokenizer*"):
            file.unlink()
    if fault == "code":
        config = json.loads((tmp_path / "bad" / "config.json").read_text())
        config |= {
            "model_type": "unheard",
            "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
        }
        (tmp_path / "bad" / "config.json").write_text(json.dumps(config))
        (tmp_path / "bad" / "own.py").write_text("raise SystemExit('executed')")
    words = arguments(place, f"good={place / 'gpt'}", f"bad={tmp_path / 'bad'}", text=("prose",), out="bad")
    assert said in mistake(*words).replace("_", "-")
    assert not (place / "bad" / "comparison.html").exists()


def test_wrong_arguments_are_named(place, mistake, tmp_path):
    prose = place / "prose.jsonl"
    assert "no model" in mistake("score", prose, "--out", tmp_path / "out")
    assert "no text" in mistake("score", place / "gpt", "--out", tmp_path / "out")
    assert "is given twice" in mistake("score", place / "gpt", f"a={prose}", f"b={prose}", "--out", tmp_path / "out")
    weighted = ["score", place / "gpt", f"a={prose}", "--weights", "a=1", "c=2", "--out", tmp_path / "out"]
    assert "--weights c=2: name that text, as in c=" in mistake(*weighted)
    (table := tmp_path / "losses.csv").write_text("arm,document,bytes,nats\na,1,2,3\n")
    for row, message in (
        ("arm,doc,bytes,nats", "has no column document (it has arm, doc, bytes, nats)"),
        ("arm;document;bytes;nats", "are separated by ';'; separate them by commas"),
    ):
        (other := tmp_path / "other.csv").write_text(f"{row}\na,1,2,3\n")
        assert message in mistake("compare", other, "--out", tmp_path / "out")
    assert "--reference b: the first arm" in mistake("compare", table, "--reference", "b", "--out", tmp_path / "out")
    assert "named twice" in mistake(*arguments(place, f"a={place / 'gpt'}", f"a={place / 'gpt'}"))
    different = [f"a={place / 'gpt'}", f"a={place / 'llama'}"]
    assert "different tokenizers" in mistake(*arguments(place, *different))
    assert "--start '<no>'" in mistake(*arguments(place, place / "gpt"), "--start", "<no>")
    table = tmp_path / "models.csv"
    table.write_text(f"arm,model,train_flops\na,{place / 'gpt'},much\n")
    assert "train_flops='much' must be a number above 0" in mistake(*arguments(place, table))


def test_losses_from_elsewhere_are_compared(tmp_path, mistake, capsys):
    rng, rows = random.Random(0), ["arm,document,bytes,nats,seed,kind"]
    for arm, factor in (("bpe", 1.0), ("superbpe", 0.95)):
        for seed in range(3):
            for document in range(40):
                size = 500 + 13 * document
                nats = size * factor * (0.6 + 0.002 * (document % 7)) * rng.uniform(0.999, 1.001)
                rows.append(f"{arm},d{document},{size},{nats},{seed},{'code' if document % 2 else 'prose'}")
    table = tmp_path / "losses.csv"
    table.write_text("\n".join(rows) + "\n")
    assert main.run(["compare", str(table), "--out", str(tmp_path / "out")]) == 0
    numbers = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [row["group"] for row in numbers["differences"] if row["tokenizer"] == "superbpe"] == ["", "code", "prose"]
    assert numbers["differences"][0]["percent"] == pytest.approx(-5, abs=0.1)
    assert numbers["differences"][0]["decision"] == "superbpe"
    assert "superbpe" in capsys.readouterr().out
    for wrong, said in (
        (rows[:-1], "not all arms have document 'd39'"),
        ([*rows[:-1], rows[-1].replace(",1007,", ",1008,")], "bytes 1008 for superbpe and 1007 for bpe"),
        ([*rows[:-1], "superbpe,d39,1007,nan,2,code"], "row 240: nats='nan' must be a number"),
        ([*rows[:-1], "superbpe,d39,1007,much,2,code"], "row 240: nats='much'"),
        ([",".join(row.split(",")[:3]) for row in rows], "no column nats"),
    ):
        table.write_text("\n".join(wrong) + "\n")
        assert said in mistake("compare", table, "--out", tmp_path / "x")

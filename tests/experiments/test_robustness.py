"""The command `robustness`: a run's models on perturbed text."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments import robustness
from experiments.report import robustness as page
from experiments.report.combining import combine, find
from experiments.store import inventory, runs
from experiments.store.artifacts import Store
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.evaluation import evaluate
from lm.evaluate.perturbations import PERTURBATIONS
from lm.model.weights import load_model
from tests import other_tokenizers
from tests.experiments.outputs import run_until as run
from tokenizer import Batch

pytestmark = pytest.mark.slow
USED = "upper-case,typing-errors,decomposed"


@pytest.fixture(scope="module")
def finished(tiny_module: list[str]) -> Path:
    """Folder of a run with two arms and one seed."""
    assert run("evaluate", tiny_module) == 0
    (text,) = [text for text in tiny_module if text.startswith("hydra.run.dir=")]
    return Path(text.partition("=")[2])


def measured(finished: Path, out: Path, *options: str) -> dict:
    assert robustness.run([str(finished), "--documents", "12", "--out", str(out), *options]) == 0
    return json.loads((out / "robustness.json").read_text())


def test_scores_are_those_of_the_perturbed_documents(finished: Path, tmp_path: Path) -> None:
    report = measured(finished, tmp_path / "out", "--perturbations", USED)
    result, _ = combine(find([finished])[0])
    documents = robustness.draw(result, 12, 0)
    rows = {(row["perturbation"], row["tokenizer"]): row for row in report["rows"]}
    for each in result.arms:
        shards = tmp_path / each.label
        texts = [PERTURBATIONS["upper-case"](text) for text in documents.texts]
        write_shards(shards, each.tokenizer, [Batch.from_texts(texts)])
        lengths, config = each.tokenizer.token_byte_lengths(), each.evaluations[0].config
        found = evaluate(load_model(each.lm.path), Shards.open(shards), lengths, config)
        n_bytes = sum(len(text.encode()) for text in documents.texts)
        before = each.evaluations[0].text_nats[documents.places].sum()
        row = rows["upper-case", each.label]
        assert row["bits"] == pytest.approx((found.text_nats.sum() - before) / math.log(2) / n_bytes, rel=1e-6)
        tokens = each.evaluations[0].document_tokens[documents.places].sum()
        assert row["tokens"] == pytest.approx(found.document_tokens.sum() / tokens - 1, rel=1e-12)
        assert row["changed_documents"] == 12
        assert row["withheld"] == ("" if each is result.arms[0] else "1 seed, at least 3 are required")
        # The text is ASCII.
        assert rows["decomposed", each.label]["bits"] is None
        assert rows["decomposed", each.label]["changed_documents"] == 0


def test_page_and_table_show_the_numbers(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = measured(finished, tmp_path, "--perturbations", USED)
    shown = (tmp_path / "robustness.html").read_text()
    said = " ".join(capsys.readouterr().out.split())
    for sentence in page.sentences(report):
        assert sentence in shown
        assert " ".join(sentence.split()) in said
    assert "No document changes under: accents decomposed (NFD)." in shown
    assert "default-src 'none'" in shown
    with (tmp_path / "robustness.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["bits"] or "nan") for row in rows] == pytest.approx(
        [np.nan if row["bits"] is None else row["bits"] for row in report["rows"]], nan_ok=True
    )


def test_scores_are_reused_and_kept(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = measured(finished, out, "--perturbations", "wrapped", "--share", "0.2")
    assert "2 of 2 perturbed texts to score" in capsys.readouterr().out
    monkeypatch.setattr(robustness, "_score", lambda *_, **__: pytest.fail("scored again"))
    second = measured(finished, out, "--perturbations", "wrapped", "--share", "0.3")  # it is not random
    assert "to score" not in capsys.readouterr().out
    assert first["rows"] == second["rows"]
    # `experiments.clean` keeps the scores as long as the folder of the results exists.
    record = runs.load(out / runs.RECORD)
    store = Store(Path(record.store))
    assert record.status == "done"
    assert len(record.artifacts) == 2
    needed = {item.name: item.needed for item in inventory.take(store)}
    assert all(needed[name] for name in record.artifacts)
    shutil.rmtree(out)
    assert not any({item.name: item.needed for item in inventory.take(store)}[name] for name in record.artifacts)


def test_an_interrupted_command_resumes(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score, calls = robustness._score, []

    def once(*arguments, **options):
        calls.append(options["each"].label)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return score(*arguments, **options)

    monkeypatch.setattr(robustness, "_score", once)
    options = ["--perturbations", "title-case", "--documents", "12", "--out", str(tmp_path)]
    assert robustness.run([str(finished), *options]) == 130
    assert runs.load(tmp_path / runs.RECORD).status == "interrupted"
    assert robustness.run([str(finished), *options]) == 0
    assert calls == ["BPE", "SuperBPE", "SuperBPE"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--perturbations", "uppercase"], "unknown perturbation 'uppercase'; known: typing-errors"),
        (["--documents", "0"], "--documents 0 must be at least 1"),
        (["--share", "1.5"], "--share 1.5 must be above 0 and at most 1"),
        (["--reference", "GPT"], "unknown tokenizer 'GPT'"),
    ],
)
def test_mistakes_are_one_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert robustness.run([str(finished), *options, "--out", str(tmp_path / "out")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_run_is_not_overwritten(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / runs.RECORD).read_text()
    assert robustness.run([str(finished), "--out", str(finished)]) == 2
    assert "is the folder of a run; choose another folder" in " ".join(capsys.readouterr().err.split())
    assert (finished / runs.RECORD).read_text() == before


@pytest.mark.slow
def test_a_tokenizer_that_drops_the_perturbation_is_marked_and_not_compared(
    tiny_module: list[str], tmp_path: Path
) -> None:
    file = other_tokenizers.write(tmp_path, "lowercased_bytes")
    folder = tmp_path / "lowered"
    arms = ["arms=[bpe,lowered]", f"arms.lowered.file={file}", f"hydra.run.dir={folder}"]
    assert run("evaluate", [*tiny_module, *arms]) == 0
    report = measured(folder, tmp_path / "out", "--perturbations", "upper-case,lower-case")
    (kept, lost), (_, lower) = (
        [row for row in report["rows"] if row["perturbation"] == name] for name in ("upper-case", "lower-case")
    )
    assert (kept["text_lost"], lost["text_lost"]) == ("", "12 documents changed")
    assert lost["bits"] == pytest.approx(0, abs=1e-4) != pytest.approx(kept["bits"], abs=0.1)
    assert (lost["difference"], lost["withheld"]) == (None, "text is lost")
    assert lower["difference"] is not None  # lower-case text loses nothing
    shown = (tmp_path / "out" / "robustness.html").read_text()
    assert "loses text: 12 documents changed" in shown
    assert "lowered loses text under: UPPER CASE." in shown

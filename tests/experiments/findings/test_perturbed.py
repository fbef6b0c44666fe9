"""Tokenizers and models of a run on perturbed text."""

import json
import math

import pytest

from experiments.cli import main
from experiments.findings import perturbed
from experiments.report.combining import combine
from experiments.store import records
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.evaluation import evaluate
from lm.model.weights import load_model
from tests import other_tokenizers
from tests.experiments.outputs import run_until, setting
from tokenizer import Batch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tiny_module):
    """Folder of a run with two arms and one seed."""
    assert run_until("evaluate", tiny_module) == 0
    return setting(tiny_module, "hydra.run.dir")


def measured(finished, out):
    assert main.run(["compare", "--perturb", str(finished), "--documents", "12", "--out", str(out)]) == 0
    return json.loads((out / "robustness.json").read_text())


def test_scores_are_those_of_the_perturbed_documents(finished, tmp_path, capsys, mistake):
    report = measured(finished, tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    result, _ = combine(records.finished([finished])[0])
    chosen, documents = perturbed.draw(result, 12)
    rows = {(row["perturbation"], row["tokenizer"]): row for row in report["rows"]}
    assert report["n_documents"] == len(documents) == 12
    for each in result.arms:
        shards, before = tmp_path / each.label, each.evaluations[0]
        write_shards(shards, each.tokenizer, [Batch.from_texts([text.upper() for text in documents])])
        lengths = each.tokenizer.token_byte_lengths()
        found = evaluate(load_model(each.lm.path), Shards.open(shards), lengths, before.config)
        n_bytes = sum(len(text.encode()) for text in documents)
        row = rows["upper-case", each.label]
        nats = found.text_nats.sum() - before.text_nats[chosen].sum()
        assert row["bits"] == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-6)
        assert row["bits_low"] < row["bits"] < row["bits_high"]
        tokens = found.document_tokens.sum() / before.document_tokens[chosen].sum()
        assert row["tokens"] == pytest.approx(tokens - 1, rel=1e-12)
        assert row["changed_documents"] == 12
        assert f"+{100 * row['tokens']:.1f} %" in said
    assert not any(name == "decomposed" for name, _ in rows)  # the text is ASCII
    error = mistake("compare", "--perturb", finished, "--documents", "0", "--out", tmp_path / "none")
    assert "--documents: '0' is not a whole number of at least 1" in error
    assert not (tmp_path / "none").exists()


def test_a_tokenizer_that_drops_the_perturbation_is_marked(tiny_module, tmp_path):
    file = other_tokenizers.write(tmp_path, "lowercased_bytes")
    folder = tmp_path / "lowered"
    arms = ["arms=[bpe,lowered]", f"arms.lowered.file={file}", f"hydra.run.dir={folder}"]
    assert run_until("evaluate", [*tiny_module, *arms]) == 0
    report = measured(folder, tmp_path / "out")
    (kept, lost), (_, lower) = (
        [row for row in report["rows"] if row["perturbation"] == name] for name in ("upper-case", "lower-case")
    )
    assert (kept["text_lost"], lost["text_lost"]) == ("", "12 documents changed")
    assert lost["bits"] == pytest.approx(0, abs=1e-4) != pytest.approx(kept["bits"], abs=0.1)
    assert lower["text_lost"] == ""  # lower-case text loses nothing

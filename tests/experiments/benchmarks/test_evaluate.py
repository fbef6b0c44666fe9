"""The benchmark of evaluation on little text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from experiments.benchmarks import evaluate, interval_coverage
from experiments.benchmarks.interval_coverage import Scenario
from experiments.stages.documents import groupings
from tokenizer import Corpus, CorpusConfig, count_pretokens, train_bpe
from tokenizer.errors import UserError
from tokenizer.patterns import resolve

if TYPE_CHECKING:
    from pathlib import Path


def test_evaluation_beside_the_plain_forward_pass(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = count_pretokens(
        Corpus(CorpusConfig(paths=[str(corpus)])), resolve("gpt2"), special_tokens=["<|endoftext|>"]
    )
    train_bpe(counts, 300, special_tokens=["<|endoftext|>"]).save(tmp_path / "tokenizer")
    options = ["--tokenizer", str(tmp_path / "tokenizer"), "--rounds", "1", "--n-layers", "1", "--hidden-size", "32"]
    options += ["--context-bytes", "64", "--min-context-bytes", "0", "16", "--max-bytes", "5kB"]
    assert evaluate.main([str(corpus), *options]) == 0
    out = capsys.readouterr().out
    assert "plain forward" in out
    assert "min_context_bytes=16" in out
    assert evaluate.main([str(corpus), "--tokenizer", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("document", 30),
        Scenario("document", 30, "equal", "lognormal"),
        Scenario("document", 100, "lognormal", "exponential", 1.0),
        Scenario("document", 300, "Pareto 1.5", "t3"),
        Scenario("source", 5, "equal", "normal"),
        Scenario("source", 20, "Zipf", "exponential", 0.5),
        Scenario("document", 30, n_seeds=2, variance=(0.5, 0.5, 0.0)),
        Scenario("document", 100, "lognormal", "exponential", 0.5, 3, (0.2, 0.4, 0.4)),
        Scenario("source", 10, "equal", "exponential", 0.0, 3, (0.0, 0.0, 1.0)),
        Scenario("document", 100, "lognormal", "exponential", 0.5, 3, (0.4, 0.4, 0.2), n_arms=4),
    ],
)
def test_intervals_cover_the_truth(scenario: Scenario) -> None:
    found = interval_coverage.simulate(scenario, 600)
    assert 0.93 <= found.coverage <= 0.995
    assert found.withheld < 0.2


def test_few_effective_units_withhold_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert interval_coverage.simulate(Scenario("source", 5, "Zipf"), 10).withheld == 1
    assert interval_coverage.main(["--rounds", "2"]) == 0
    assert "100 % withheld" in capsys.readouterr().out


def test_descriptions_of_other_documents_are_refused(tmp_path: Path) -> None:
    arrays = {"bytes": np.array([3, 5]), "source": np.zeros(2, np.int32)}
    np.savez(tmp_path / "documents.npz", allow_pickle=False, **cast("Any", arrays))
    artifact = cast("Any", SimpleNamespace(path=tmp_path, contents=SimpleNamespace(names={"source": ["web"]})))
    assert groupings(artifact, np.array([3, 5]))["source"].names == ("web",)
    with pytest.raises(UserError, match="describes other documents"):
        groupings(artifact, np.array([3, 6]))

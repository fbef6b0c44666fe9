"""The announcement of a comparison's precision before its models are trained."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.compose import load
from experiments.findings.precision import SEED_SPREAD, UNIT_SPREAD, announce, half_width
from experiments.stages.heldout import check_weights, groupings, kinds_of
from lm.evaluate.significance import Ratio
from tokenizer.errors import UserError


def said(folder, n_sources, *overrides, copies=1, name="{}"):
    """The line about held-out text of ten documents of equal size for each source, in this many copies."""
    index = np.repeat(np.arange(n_sources), 10)
    np.savez(
        folder / "documents.npz",
        bytes=np.full(len(index), 100),
        source=index,
        script=index,
        hash=np.arange(len(index)) // copies,
    )
    documents = SimpleNamespace(
        path=folder, contents=SimpleNamespace(names={"source": [*map(name.format, range(n_sources))]})
    )
    lines = []
    context = SimpleNamespace(reporter=SimpleNamespace(say=lambda line, **_: lines.append(line)))
    config = load(overrides)
    announce(
        context,
        documents,
        config.eval,
        n_arms=len(config.arms),
        n_seeds=config.lm.n_seeds,
        mode=config.budget.mode,
        heldout_sample=config.corpus.heldout_sample,
    )
    return " ".join(lines)


@pytest.mark.slow
def test_a_run_that_can_decide_says_how_precisely(tmp_path):
    line = said(tmp_path, 20, "lm.n_seeds=5")
    assert "95 % interval, 5 seeds, held-out text that counts as 20.0 sources of equal size" in line
    widths = [float(said(tmp_path, 20, f"lm.n_seeds={n}").partition("±")[2].partition(" %")[0]) for n in (3, 5, 20)]
    assert widths == sorted(widths, reverse=True)
    of_kinds = said(tmp_path, 20, "lm.n_seeds=3", name="code: {}")
    assert float(of_kinds.partition("±")[2].partition(" %")[0]) < 0.7 * widths[0]
    assert said(tmp_path, 20, "arms=[bpe]") == ""
    # One that cannot decide names the change.
    for n_sources, overrides, remedy in (
        (20, [], "1 seed, at least 3 are required; add lm.n_seeds=3"),
        (4, ["lm.n_seeds=3"], "4.0 effective sources, at least 5 are required; add eval.cluster=document"),
        (1, ["lm.n_seeds=3", "corpus.heldout_sample=0.5", "eval.cluster=document"], ""),
        (4, [], "add lm.n_seeds=3 and eval.cluster=document"),
    ):
        line = said(tmp_path, n_sources, *overrides)
        assert remedy in line
        assert ("no verdict" in line) == bool(remedy)
    # Copies are one document, and are in the source of the first.
    three = ["lm.n_seeds=3"]
    assert "counts as 50.0 documents" in said(tmp_path, 20, "eval.cluster=document", *three, copies=4)
    assert "counts as 10.0 sources" in said(tmp_path, 20, *three, copies=20)


def test_the_expected_half_width_is_that_of_the_interval():
    """Simulated: 20 units of equal size, 5 seeds, with the spreads that are expected."""
    generator = np.random.default_rng(0)
    widths = []
    for _ in range(300):
        units = generator.normal(0, UNIT_SPREAD["source"], 20)
        seeds = generator.normal(0, SEED_SPREAD["equal_bytes"], (5, 1))
        low, high = Ratio.of(1 + units + seeds, np.ones(20)).interval(0.95)
        widths.append((high - low) / 2)
    assert np.mean(widths) == pytest.approx(half_width(5, 20, "source", 0.95, "equal_bytes"), rel=0.15)


def test_descriptions_of_other_documents_are_rejected(tmp_path):
    np.savez(tmp_path / "documents.npz", allow_pickle=False, bytes=np.array([3, 5]), source=np.zeros(2, np.int32))
    artifact = SimpleNamespace(path=tmp_path, contents=SimpleNamespace(names={"source": ["web"]}))
    assert groupings(artifact, np.array([3, 5]))["source"].names == ("web",)
    with pytest.raises(UserError, match="describes other documents"):
        groupings(artifact, np.array([3, 6]))


@pytest.mark.parametrize(
    ("sources", "weights", "message"),
    [
        (["code: a", "english: b"], {"english": 1.0}, ""),
        (
            ["code: a", "english: b"],
            {"englsh": 1.0},
            r"'englsh' \(did you mean 'english'\?\); the kinds of text are: code, e",
        ),
        (["code: a", "b"], {"code": 1.0}, "the held-out text has no kinds; name them by corpus.kind_field"),
        (["code: a", "b"], {}, ""),
        ([f"{i}: a" for i in range(100)], {"7": 1.0}, ""),
        ([f"{i}: a" for i in range(101)], {"7": 1.0}, "the held-out text has no kinds"),  # titles
    ],
)
def test_weights_of_unknown_kinds_are_rejected(sources, weights, message):
    with pytest.raises(UserError, match=message) if message else nullcontext():
        check_weights(kinds_of(sources), weights)

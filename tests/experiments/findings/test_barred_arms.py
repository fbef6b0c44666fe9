"""Arms that change text or learned nothing are shown, and take part in no verdict, table, record or sweep."""

import pytest

from experiments.config import BudgetConfig
from experiments.findings.compared import Findings, record
from experiments.findings.differences import differences
from experiments.findings.verdict import detail, verdict
from tests.experiments.arms import N_DOCUMENTS, measured_arm

_LOWER = "lower changes or loses text in 98 of 98 documents, 100 % of the bytes"


def test_a_lossy_arm_is_shown_and_decides_nothing():
    result = Findings.of(
        [measured_arm("bpe", 0.0), measured_arm("superbpe", 0.0), measured_arm("lower", -0.07, changed=N_DOCUMENTS)],
        BudgetConfig(),
    )
    assert (result.winner, result.leader, result.withheld) == (None, None, "")
    said = verdict(result)
    assert said.startswith("No significant difference between bpe and superbpe")
    assert said.endswith(f"Not part of the verdict: {_LOWER}.")
    assert {result.comparisons[i, 2].withheld for i in (0, 1)} == {_LOWER}
    assert "corrected" not in detail(result)
    rows = {row["tokenizer"]: row for row in differences(result) if row["reference"] == "bpe"}
    assert (rows["lower"]["decision"], rows["lower"]["withheld"]) == ("withheld", _LOWER)
    assert rows["superbpe"]["decision"] == "undecided"
    assert [arm.withheld for arm in record(result).arms] == ["", "", _LOWER]


@pytest.mark.parametrize(
    ("training", "heldout", "points"),
    [(4 / 1.069, 4 / 0.922, 14.7), (4, 4 / 0.97, 3.0), (4, 4 / 0.975, None), (4 / 0.9, 4, None), (5, 5, None)],
)
def test_an_arm_that_saves_more_tokens_on_held_out_than_on_training_text_is_named(training, heldout, points):
    """Whatever its record says: a tokenizer that was trained on the held-out text does."""
    arms = [measured_arm("bpe", 0.0), measured_arm("x", -0.1, bytes_per_token=(training, heldout))]
    warning = f"against bpe, x saves {points} points more tokens on held-out than on training text"
    assert (warning in verdict(Findings.of(arms, BudgetConfig()))) == (points is not None)
    apart = [arms[0], measured_arm("x", -0.1, bytes_per_token=(training, heldout), heldout_paths=["other.jsonl"])]
    assert "Warning" not in verdict(Findings.of(apart, BudgetConfig()))


@pytest.mark.parametrize("n_bytes", [989, 1011, 5000])
def test_an_arm_that_read_another_amount_decides_nothing(n_bytes):
    """From wherever its models come: 60 kB and 200 kB are no equal bytes."""
    other = f"x trained on {n_bytes:,} bytes and bpe on 1,000, which differ by more than 1 %"
    result = Findings.of(
        [measured_arm("bpe", 0.0), measured_arm("near", -0.1, n_bytes=1009), measured_arm("x", -0.1, n_bytes=n_bytes)],
        BudgetConfig(),
    )
    assert (result.winner.key, result.comparisons[0, 2].withheld) == ("near", other)
    assert verdict(result).endswith(f"Not part of the verdict: {other}.")
    assert (
        verdict(Findings.of([result.arms[0], result.arms[2]], BudgetConfig()))
        == f"No verdict about the tokenizers: {other}."
    )
    accepted = BudgetConfig(tolerance=5)
    assert Findings.of([result.arms[0], result.arms[2]], accepted).winner.key == "x"


def test_without_two_arms_that_may_be_compared_the_verdict_is_withheld():
    result = Findings.of([measured_arm("lower", -0.07, changed=N_DOCUMENTS), measured_arm("bpe", 0.0)], BudgetConfig())
    assert (result.winner, result.withheld, result.pair) == (None, _LOWER, (0, 1))
    assert verdict(result) == f"No verdict about the tokenizers: {_LOWER}."
    assert detail(result).startswith("bpe against lower")
    assert [arm.withheld for arm in record(result).arms] == [_LOWER, _LOWER]

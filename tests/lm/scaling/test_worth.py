"""Whether a tokenizer is worth it."""

from __future__ import annotations

import dataclasses

import pytest

from lm.scaling.equivalent import Equivalent, EquivalentGap
from lm.scaling.gap import Gap
from lm.scaling.worth import worth

GAP = Gap(
    arm="a",
    reference="b",
    flops=(1.0, 2.0),
    percent=(0.0, 0.0),
    intervals=((-1.0, 1.0),) * 2,
    signs=(0, 0),
    confidence=0.95,
    level=0.95,
    n_seeds=3,
    n_documents=100,
    effective_units=100.0,
    withheld="",
    trend=None,
    band=None,
    crossings=(),
)
MATCHED = [Equivalent(1.0, 1.0, 1.0, False, ""), Equivalent(2.0, 2.0, 1.0, False, "")]
UNMATCHED = [Equivalent(flops, None, None, False, "cannot be matched") for flops in (1.0, 2.0)]
NONE = EquivalentGap(None, None, "too far")


@pytest.mark.parametrize(
    ("interval", "answer"), [((-2.0, -1.0), "yes"), ((1.0, 2.0), "no"), ((-1.0, 1.0), "undecided"), (None, "unknown")]
)
def test_the_interval_at_equal_total_cost_answers(interval, answer):
    gaps = [NONE, EquivalentGap(0.0, interval, "")]
    assert worth(GAP, MATCHED, gaps)[:2] == (answer, 1)
    # A larger budget at which the curve cannot be read is passed over.
    assert worth(GAP, MATCHED, gaps[::-1])[:2] == (answer, 0)


def test_a_withheld_verdict_is_no_answer():
    gap = dataclasses.replace(GAP, withheld="1 seed, at least 3 are required")
    gaps = [NONE, EquivalentGap(-1.5, (-2.0, -1.0), "")]
    assert worth(gap, MATCHED, gaps) == ("withheld", 1, gap.withheld)
    assert worth(gap, UNMATCHED, [NONE, NONE]) == ("no", None, "cannot be matched")
    assert worth(GAP, MATCHED, [NONE, NONE]) == ("unknown", None, "too far")

"""Whether a tokenizer is worth it at a deployment: bits per byte where training and serving together cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from lm.scaling.equivalent import Equivalent, EquivalentGap
from lm.scaling.gap import Gap

Answer = Literal["yes", "no", "undecided", "withheld", "unknown"]
ANSWERS: dict[Answer, str] = {
    "yes": "worth it",
    "no": "not worth it",
    "undecided": "undecided",
    "withheld": "no verdict yet",
    "unknown": "unknown",
}
"""The answers in words."""


class Worth(NamedTuple):
    """Answer about an arm.

    Attributes:
        answer: `yes` or `no` if the interval of the equivalent gap excludes 0 or the serving cost cannot be matched;
            `withheld` where no tokenizer may be called better; `unknown` if there is no number or no interval.
        rung: Index of the largest budget at which the equivalent gap can be read; None if there is none.
        reason: Why the answer is not from an interval; empty if it is.
    """

    answer: Answer
    rung: int | None
    reason: str


def worth(gap: Gap, equivalents: Sequence[Equivalent], gaps: Sequence[EquivalentGap]) -> Worth:
    """Answer for one arm and one phase of serving.

    Args:
        gap: Gap of the arm at equal training FLOPs.
        equivalents: Equivalent bits per byte of the arm at each budget of the reference.
        gaps: Equivalent gap at each budget.
    """
    if equivalents[-1].flops is None:
        return Worth("no", None, equivalents[-1].reason)
    rung = next((i for i in reversed(range(len(gaps))) if gaps[i].percent is not None), None)
    if rung is None:
        return Worth("unknown", None, gaps[-1].reason)
    if gap.withheld:
        return Worth("withheld", rung, gap.withheld)
    interval = gaps[rung].interval
    if interval is None:
        return Worth("unknown", rung, "no interval can be computed")
    return Worth("yes" if interval[1] < 0 else "no" if interval[0] > 0 else "undecided", rung, "")

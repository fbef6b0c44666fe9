"""What the points of a comparison over compute show, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lm.evaluate.comparison import FEWEST_SEEDS
from lm.scaling.curve import Curve
from lm.scaling.gap import Gap, Trend


def verdict(gap: Gap) -> str:
    """The verdict about an arm: between which budgets it is better or worse than the reference, and the trend.

    With fewer than `FEWEST_SEEDS` runs per arm it is about the models, and with nothing to compute intervals from it
    only says what was measured. With too little held-out text it is withheld.
    """
    parts = _measured(gap) if gap.intervals is None and not gap.too_few else _shown(gap)
    if gap.too_few:
        parts.insert(0, f"the verdict is withheld: {gap.withheld}")
    if gap.trend is not None:
        parts.append(_trend(gap, gap.trend))
    return "; ".join(parts)


def statements(gap: Gap, curves: Sequence[Curve]) -> list[str]:
    """The verdict, and what limits it: runs, crossings, and curves that are not identified.

    Args:
        gap: Difference of an arm to the reference.
        curves: Curves of both.
    """
    said = [verdict(gap), _crossings(gap)]
    if gap.n_seeds == 1:
        said.append("one run per arm: this is about these models, and names no better tokenizer")
    elif gap.n_seeds < FEWEST_SEEDS:
        said.append(
            f"{gap.n_seeds} runs per arm: this is about these models, and names no better tokenizer; train "
            f"{FEWEST_SEEDS} seeds or more"
        )
    said += [f"the curve of {curve.name} only interpolates: {curve.reason}" for curve in curves if curve.law is None]
    return said


def decisions(gap: Gap) -> list[str]:
    """For each rung: `better`, `worse` or `undecided`, or `withheld` where no tokenizer may be called better."""
    return [
        "withheld" if gap.withheld else "undecided" if not sign else "worse" if sign > 0 else "better"
        for sign in gap.signs
    ]


def flops_text(flops: float) -> str:
    """A budget for a sentence.

    >>> flops_text(2e15), flops_text(2.6e20)
    ('2e15', '2.6e20')
    """
    return f"{flops:.2g}".replace("e+0", "e").replace("e+", "e")


def _subject(gap: Gap) -> tuple[str, str]:
    if gap.n_seeds >= FEWEST_SEEDS:
        return gap.arm, gap.reference
    models = "model" if gap.n_seeds == 1 else "models"
    return f"the {models} of {gap.arm}", f"the {models} of {gap.reference}"


def _range(gap: Gap, first: int, last: int) -> str:
    if first == last:
        return f"at {flops_text(gap.flops[first])} FLOPs"
    return f"between {flops_text(gap.flops[first])} and {flops_text(gap.flops[last])} FLOPs"


def _decimal(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # without a minus sign for 0


def _percent(values: Sequence[float]) -> str:
    low, high = _decimal(min(values)), _decimal(max(values))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _compared(gap: Gap, first: int, last: int) -> str:
    """Where the gap has one sign: who needs fewer bits per byte, and by how much."""
    arm, reference = _subject(gap)
    values = gap.percent[first : last + 1]
    verb = "needs" if gap.n_seeds == 1 or gap.n_seeds >= FEWEST_SEEDS else "need"
    which = "fewer" if sum(values) < 0 else "more"
    size = _percent([abs(value) for value in values])
    return f"{_range(gap, first, last)}, {arm} {verb} {which} bits per byte than {reference}, by {size}"


def _runs(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbours of equal value: (value, index of the first, index of the last)."""
    found, start = [], 0
    for value, group in groupby(values):
        n = len(list(group))
        found.append((value, start, start + n - 1))
        start += n
    return found


def _measured(gap: Gap) -> list[str]:
    signs = [int(value > 0) - int(value < 0) for value in gap.percent]
    return [
        _compared(gap, first, last) if sign else f"{_range(gap, first, last)}, no difference was measured"
        for sign, first, last in _runs(signs)
    ]


def _shown(gap: Gap) -> list[str]:
    parts = []
    for sign, first, last in _runs(gap.signs):
        if sign:
            parts.append(_compared(gap, first, last))
            continue
        part = f"{_range(gap, first, last)}, undecided: {_percent(gap.percent[first : last + 1])}"
        if gap.intervals is not None:
            among = gap.intervals[first : last + 1]
            low, high = min(each[0] for each in among), max(each[1] for each in among)
            level = "" if gap.level == gap.confidence else f", corrected to {100 * gap.level:.4g} %,"
            part += f", with {100 * gap.confidence:g} % intervals{level} from {_decimal(low)} to {_decimal(high)} %"
        parts.append(part)
    return parts


def _trend(gap: Gap, trend: Trend) -> str:
    numbers = f"slope {_decimal(trend.slope)} points per e-fold of FLOPs"
    if trend.interval is not None:
        numbers += f", {100 * trend.confidence:g} % interval {' to '.join(map(_decimal, trend.interval))}"
    if gap.too_few or not trend.direction:
        return f"no trend with compute is shown ({numbers})"
    signs = {value > 0 for value in gap.percent}
    if len(signs) > 1:
        return f"the gap {'rises' if trend.direction > 0 else 'falls'} with compute ({numbers})"
    grows = (trend.direction > 0) == signs.pop()
    return f"the gap {'grows' if grows else 'shrinks'} with compute ({numbers})"


def _crossings(gap: Gap) -> str:
    if gap.band is None:
        return "one budget: neither a trend nor a crossing can be seen"
    inside = f"{flops_text(gap.flops[0])} to {flops_text(gap.flops[-1])} FLOPs"
    if not gap.crossings:
        return f"the curves do not cross inside the measured {inside}"
    parts = []
    for crossing in gap.crossings:
        low, high = crossing.low, crossing.high
        if low is not None and high is not None:
            where = f"between {flops_text(low)} and {flops_text(high)}"
        elif high is not None:
            where = f"below {flops_text(high)}, if at all"
        elif low is not None:
            where = f"above {flops_text(low)}, if at all"
        else:
            where = "which is within the uncertainty"
        parts.append(f"near {flops_text(crossing.flops)} FLOPs ({where})")
    return f"inside the measured {inside} the curves cross {' and '.join(parts)}"

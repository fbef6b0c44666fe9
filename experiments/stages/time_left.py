"""Compute and time that the models of a run still need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.numbers import duration, si
from experiments.progress import Pace
from experiments.stages.models import Training, exists
from experiments.stages.plan import measure
from lm.train.config import trained_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.shards import EncodedArm
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig


def flops_left(
    context: Context, model: ModelConfig, arm: EncodedArm, chain: Sequence[Run], plans: Mapping[Run, TrainConfig]
) -> float:
    """Training FLOPs of the models of a chain that are not finished; a trunk that several share counts once."""
    missing = [plans[run] for run in chain if not exists(context, model, arm, Training(run, plans[run]))]
    return trained_steps(missing) * measure(model, missing[-1], arm).flops if missing else 0.0


class TimeLeft:
    """Says what the training of all models costs and, from its first steps on, how long it will take.

    Args:
        context: Context of the run.
        flops: Training FLOPs of each chain of models, in the order of training (`flops_left`).
    """

    def __init__(self, context: Context, flops: Sequence[float]) -> None:
        self._reporter = context.reporter
        self._left = list(flops)
        self._pace, self._measured, self._last = Pace(), 0.0, ("", 0.0)
        self._announced = not sum(flops)
        if sum(flops):
            self._reporter.say(f"the models need {si(sum(flops))} training FLOPs")

    def row(self, training: Training, row: Mapping[str, Any]) -> None:
        """Measure the speed by a row of training metrics, and announce the time of all models once it is known."""
        stage, flops = str(training), float(row["flops"])
        if stage == self._last[0]:  # steps before the first row may be from an earlier run or a trunk
            self._measured += flops - self._last[1]
        self._last = stage, flops
        self._pace.add(self._measured)
        if not self._announced and self._pace.seconds >= 3 and self._pace.rate:  # measured for long enough
            self._announced = True
            time = duration(sum(self._left) / self._pace.rate)
            self._reporter.say(f"  training will take about {time} by the speed of the first steps, plus evaluation")

    def done(self) -> None:
        """Announce the time left after the models of a chain."""
        self._left.pop(0)
        if (left := sum(self._left)) and self._pace.rate:
            self._announced, time = True, duration(left / self._pace.rate)
            self._reporter.say(f"  about {time} of training left, plus evaluation", style="dim")

"""Time left, space needed, and the one command that would settle what a comparison leaves open."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.cli.console import Pace, duration, si
from experiments.results import TrainedModel
from experiments.stages.models import Training, exists
from experiments.stages.plan import measure
from experiments.stages.shards import exist
from lm.evaluate.bits_per_byte import SOURCE
from lm.evaluate.comparison import DETECTABLE, FEWEST_EFFECTIVE, FEWEST_SEEDS
from lm.model.device import resolve_device
from lm.train.config import trained_steps
from tokenizer.errors import UserError
from tokenizer.files import check_free, free_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.results import ShardsFolder
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.shards import Encoded
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.data.sharding import ShardConfig
    from lm.evaluate.comparison import Comparison
    from lm.model.config import ModelConfig
    from lm.scaling.gaps import Gap
    from lm.train.config import TrainConfig

# Bytes per parameter on disk: a model in fp32, and the checkpoint that a trunk keeps, with the optimizer's state.
_MODEL_BYTES, _CHECKPOINT_BYTES = 4, 12
_DOCUMENT_BYTES, _COVERED_BYTES = 16, 4
"""Bytes of the files beside the tokens of shards, per document and, where tokens vary in bytes, per token."""
_ANNOUNCED_BYTES = 1e9
_TIMED_STEPS = 20
"""Steps to time before an estimate, unless they are slow."""
_MOST_HELDOUT = 0.3
"""Largest share of the text that is worth holding out."""


class Step(NamedTuple):
    """A change to the run, with its command.

    Attributes:
        what: The change.
        why: What it would settle.
        command: The command; empty if no setting helps.
        seconds: Estimate of its training time.
    """

    what: str
    why: str
    command: str = ""
    seconds: float = 0.0

    def sentence(self) -> str:
        """One line for the terminal."""
        time = f"; about {duration(self.seconds)} of training" if self.seconds else ""
        return f"To settle what is open: {self.what} ({self.why}{time})" + (f": {self.command}" if self.command else "")


def next_step(
    compared: Sequence[Comparison] | Sequence[Gap], settings: Mapping[str, Any], command: str, seed_seconds: float
) -> Step | None:
    """The command that would settle what comparisons leave open; None if it is settled or cannot be compared.

    Args:
        compared: The comparisons of a run; those that are barred count for nothing.
        settings: Settings of the reference (`experiments.settings.resolved`).
        command: Command line of the run.
        seed_seconds: Time to train the models of one seed of all arms.
    """
    between = [each for each in compared if not each.barred]
    if not between:
        return None
    one = between[0]
    # Variances from too little text are not worth planning with.
    needed = [each.needed for each in between if each.needed and not each.decided and not each.too_few]
    seeds = max([FEWEST_SEEDS, one.n_seeds, *(each.seeds or 0 for each in needed)])
    fewest, n_units, unit = FEWEST_EFFECTIVE[one.cluster], one.n_clusters, one.cluster
    too_few = one.too_few
    units = max([n_units, *(each.clusters for each in needed)])
    if too_few:
        units = max(units, math.ceil(fewest / max(one.effective_clusters, 1) * n_units))
    changes, whats, seconds = [], [], 0.0
    if seeds > one.n_seeds:
        changes.append(f"lm.n_seeds={seeds}")
        whats.append(f"train {seeds} seeds instead of {one.n_seeds}")
        seconds = seed_seconds * (seeds - one.n_seeds)
    if units > n_units:
        what = f"hold out about {units:,} {unit}s instead of {n_units:,}"
        sample = settings.get("corpus.heldout_sample", 1.0) * units / n_units
        share = (settings.get("corpus.heldout_fraction") or math.inf) * units / n_units
        if unit == SOURCE:
            what += "; if the sources are parts of one collection, eval.cluster=document compares documents instead"
        elif sample <= 1:
            changes.append(f"corpus.heldout_sample={math.ceil(100 * sample) / 100:g}")
        elif share <= _MOST_HELDOUT and not settings.get("corpus.heldout_paths"):
            changes.append(f"corpus.heldout_fraction={math.ceil(100 * share) / 100:g}")
            what += ", which changes the training text"
            seconds = seed_seconds * seeds
        else:
            what += " with corpus.heldout_paths"
        whats.append(what)
    if not whats:
        return None
    why = f"to show a difference of {100 * DETECTABLE:g} % with a probability of 80 %"
    if too_few:
        why = f"at least {fewest} effective {unit}s are required"
    elif one.n_seeds < FEWEST_SEEDS:
        why = f"a verdict about tokenizers requires {FEWEST_SEEDS} seeds"
    return Step("; ".join(whats), why, with_settings(command, changes) if changes else "", seconds)


def with_settings(command: str, settings: Sequence[str]) -> str:
    """A command line with some of its settings replaced.

    >>> with_settings("superbpe pipeline lm.n_seeds=2 lm=small", ["lm.n_seeds=3"])
    'superbpe pipeline lm=small lm.n_seeds=3'
    """
    replaced = {setting.partition("=")[0] for setting in settings}
    words = [word for word in shlex.split(command) if word.partition("=")[0].lstrip("+") not in replaced]
    return shlex.join([*words, *settings])


def check_space(
    context: Context,
    settings: ShardConfig,
    text: Text,
    heldout: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]],
    n_bytes: int,
    n_documents: int,
) -> None:
    """Raise a UserError if the disk has no room for the training shards of all arms.

    Args:
        context: Context of the run.
        settings: Settings of the shards.
        text: The corpus.
        heldout: The arms and their held-out shards, which give the bytes per token.
        n_bytes: Size of the training text.
        n_documents: Number of its documents.
    """
    needs = [0.0]
    for arm, shards in heldout:
        if not exist(context, settings, text, arm):
            per_token = np.dtype(shards.contents.dtype).itemsize + (0 if arm.tokenizer.fixed_bytes else _COVERED_BYTES)
            n_tokens = n_bytes / shards.contents.bytes_per_token + n_documents
            needs.append(n_tokens * per_token + n_documents * _DOCUMENT_BYTES)
    # The parts that a cluster encodes are second copies of an arm's tokens, and gone before the next one is encoded.
    needed = sum(needs) + (0 if context.runner.name == "local" else max(needs))
    root = context.store.root
    unfinished = 0
    for path in root.glob(".shards-*.partial/**/*"):
        with suppress(FileNotFoundError):  # another process is writing them
            unfinished += path.stat().st_size
    if needed > _ANNOUNCED_BYTES:
        free = free_bytes(root) + unfinished
        context.reporter.say(f"the training shards need about {si(needed)}B; {si(free)}B are free in {root}")
    remedy = "free some space, set artifacts to a folder on a larger disk, or use less text (corpus.sample)"
    check_free(root, round(needed) - unfinished, "training shards", remedy)


class Cost(NamedTuple):
    """Cost of training the models of one arm and one seed.

    Attributes:
        flops: Training FLOPs; a trunk that several models share counts once.
        n_bytes: Bytes on disk of the models and the checkpoints of their trunks.
        n_models: Number of models.
    """

    flops: float
    n_bytes: int
    n_models: int


def cost(
    context: Context, model: ModelConfig, arm: Encoded, chain: Sequence[Run], plans: Mapping[Run, TrainConfig]
) -> Cost:
    """Cost of the models of a chain (`experiments.runs.chains`), without finished ones."""
    missing = [plans[run] for run in chain if not exists(context, model, arm, Training(run, plans[run]))]
    if not missing:
        return Cost(0.0, 0, 0)
    measured = measure(model, missing[-1], arm)
    n_trunks = sum(plan.trunk is not None for plan in missing) if len(chain) > 1 else 0  # a single run makes no trunk
    per_parameter = len(missing) * _MODEL_BYTES + n_trunks * (_MODEL_BYTES + _CHECKPOINT_BYTES)
    return Cost(trained_steps(missing) * measured.step.flops, per_parameter * measured.parameters, len(missing))


class TimeLeft:
    """Says what the training of all models will cost, and while it runs, how long the rest will take.

    The first estimate uses the speed of the last model that was trained on this device. If there is none, it follows
    when the first steps have been measured.

    Args:
        context: Context of the run.
        costs: Cost of each chain of models, in the order of training.
        device: Device, as in `TrainConfig`.
    """

    def __init__(self, context: Context, costs: Sequence[Cost], device: str) -> None:
        self._reporter = context.reporter
        self._left = [cost.flops for cost in costs]
        self._pace, self._measured, self._timed, self._last = Pace(), 0.0, 0, ("", 0)
        self._trunk, self._own = 0.0, dict[str, float]()
        n = sum(cost.n_models for cost in costs)
        self._several = n > 1
        if not n:
            self._announced = True
            return
        speed = last_speed(context, device)
        self._announced = speed is not None
        self._reporter.say(
            f"{n} language model{'s' if n > 1 else ''} to train: {si(sum(self._left))} training FLOPs, "
            f"{si(sum(cost.n_bytes for cost in costs))}B on disk"
            + (f", about {duration(sum(self._left) / speed)} at the speed of the last model" if speed else "")
        )

    def row(self, training: Training, row: Mapping[str, Any], trunk_steps: int = 0) -> None:
        """Take note of a row of training metrics: the speed, and the time left of all models.

        Args:
            training: The training that it is of.
            row: The row. FLOPs of a training are in proportion to its steps.
            trunk_steps: Steps of the trunk that the training continues.
        """
        stage, step, per_step = str(training), row["step"], row["flops"] / row["step"]
        if training.kind == "trunk":
            self._trunk = step * per_step
        else:
            self._trunk = max(self._trunk, trunk_steps * per_step)
            self._own[stage] = (step - trunk_steps) * per_step
        # A resumed run was not timed before its first row.
        timed = step - self._last[1] if stage == self._last[0] else 1
        self._last, self._timed = (stage, step), self._timed + timed
        self._measured += timed * per_step
        self._pace.add(self._measured)
        if not self._pace.settled or not (self._timed >= _TIMED_STEPS or self._pace.full):
            return
        spent = self._trunk + sum(self._own.values())
        left = duration(max(sum(self._left) - spent, 0) / self._pace.rate)
        if not self._announced:
            self._announced = True
            self._reporter.say(f"  training will take about {left} by the speed of the first steps")
        if self._several:
            self._reporter.outlook(f"about {left} for all")  # short: 80 columns

    def done(self) -> None:
        """The models of the next chain are trained."""
        self._left.pop(0)
        self._trunk, self._own = 0.0, {}
        if (left := sum(self._left)) and self._pace.rate:
            self._reporter.say(f"  about {duration(left / self._pace.rate)} of training left", style="dim")


def last_speed(context: Context, device: str) -> float | None:
    """FLOPs per second of the model that was trained last on this device; None if there is none."""
    device = str(resolve_device(device))
    for name in context.store.latest("lm-"):
        with suppress(UserError):  # a damaged model is reported where it is used
            model = context.store.find(name, TrainedModel)
            if model is not None and model.contents.summary.device == device and model.contents.summary.seconds:
                return model.contents.summary.flops / model.contents.summary.seconds
    return None

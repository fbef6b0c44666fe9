"""What to run next to be surer about a ladder of budgets, with the command and an estimate of its time."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from lm.evaluate.bits_per_byte import SOURCE
from lm.evaluate.comparison import DETECTABLE, FEWEST_EFFECTIVE, FEWEST_SEEDS
from lm.scaling.curve import FARTHEST, FEWEST_RUNGS
from lm.train.config import TrainConfig, trained_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm.train.summary import TrainingSummary

_MOST_HELDOUT = 0.3
"""Largest share of the text that is worth holding out."""


class Spent(NamedTuple):
    """What the run cost and how it began, to plan the next one.

    Attributes:
        seed_seconds: Time to train the models of one seed of all arms, at all budgets.
        largest_seconds: Time to train the models of one seed of all arms at the largest budget.
        budgets: The budgets as configured, smallest first.
        unit: Their unit: `bytes` or `flops`.
        heldout_fraction: Share of the text that is held out; None if it is a text of its own.
        heldout_sample: Share of the held-out documents that is scored.
    """

    seed_seconds: float
    largest_seconds: float
    budgets: Sequence[int]
    unit: str
    heldout_fraction: float | None
    heldout_sample: float


def cost_of(
    depths: Sequence[Sequence[Sequence[Sequence[TrainingSummary]]]],
    settings: Mapping[str, Any],
    budgets: Sequence[int] = (),
    unit: str = "bytes",
) -> Spent:
    """Return what the models cost.

    Args:
        depths: For every depth, arm and budget, smallest first, the summary of each seed's model.
        settings: Settings of the reference, from `experiments.settings.resolved`.
        budgets: The budgets as configured, smallest first; if they are not recorded, the bytes of the models.
        unit: Unit of the budgets: `bytes` or `flops`.
    """
    n_seeds = len(depths[0][0][0])
    configs = [TrainConfig(**rung[0].run["train"]) for rung in depths[0][0]]
    largest = sum(summary.seconds for arms in depths for arm in arms for summary in arm[-1]) / n_seeds
    own_text = bool(settings.get("corpus.heldout_paths"))
    return Spent(
        largest * trained_steps(configs) / configs[-1].steps,
        largest,
        budgets or [config.train_bytes for config in configs],
        unit if budgets else "bytes",
        None if own_text else settings.get("corpus.heldout_fraction"),
        settings.get("corpus.heldout_sample", 1.0),
    )


def next_runs(found: Mapping[str, Any], cost: Spent, command: str) -> list[dict[str, Any]]:
    """What to run to be surer, most useful first.

    Args:
        found: Result of `lm.scaling.reprice.reprice`.
        cost: What the models cost.
        command: Command line of the run.

    Returns:
        Dictionaries with `what` (the advice), `why`, `command` (empty if no setting helps), and `seconds`: an estimate
        of the training time.
    """
    gaps, curves = found["gaps"], [arm["curve"] for arm in found["arms"]]
    if not gaps:
        return []
    n_seeds, effective, cluster = gaps[0]["n_seeds"], gaps[0]["effective_units"], gaps[0]["cluster"]
    n_units, fewest = gaps[0]["n_documents"], FEWEST_EFFECTIVE[cluster]
    undecided = [gap for gap in gaps if gap["decisions"][-1] == "undecided" and gap["needed"] is not None]
    seeds = max([FEWEST_SEEDS, *(gap["needed"]["seeds"] or 0 for gap in undecided)])
    clusters = max([0, *(gap["needed"]["clusters"] for gap in undecided)])
    if effective < fewest:
        clusters = max(clusters, math.ceil(fewest / effective * n_units))
    target = f"to show the measured gap, or {100 * DETECTABLE:g} % if that is more, with a probability of 80 %"
    advice: list[dict[str, Any]] = []

    def add(what: str, why: str, settings: Sequence[str], seconds: float) -> None:
        run = with_settings(command, settings) if settings else ""
        advice.append({"what": what, "why": why, "command": run, "seconds": seconds})

    if seeds > n_seeds:
        why = f"a verdict about tokenizers requires {FEWEST_SEEDS} seeds" if n_seeds < FEWEST_SEEDS else target
        more = cost.seed_seconds * (seeds - n_seeds)
        add(f"Train {seeds} seeds instead of {n_seeds}", why, [f"lm.n_seeds={seeds}"], more)
    if clusters > n_units:
        what = f"Hold out about {clusters:,} {cluster}s instead of {n_units:,}"
        why = f"at least {fewest} effective {cluster}s are required" if effective < fewest else target
        ratio = clusters / n_units
        sample, share = cost.heldout_sample * ratio, (cost.heldout_fraction or math.inf) * ratio
        if cluster == SOURCE:
            why += "; if the sources are parts of one collection, eval.cluster=document compares documents instead"
            add(what, why, [], 0.0)
        elif sample <= 1:
            add(
                what,
                f"{why}; only scored, without training",
                [f"corpus.heldout_sample={math.ceil(100 * sample) / 100:g}"],
                0.0,
            )
        elif share <= _MOST_HELDOUT:
            why += "; the training text changes, so all models are trained again"
            add(what, why, [f"corpus.heldout_fraction={math.ceil(100 * share) / 100:g}"], cost.seed_seconds * n_seeds)
        else:
            add(what, f"{why}; name more held-out text with corpus.heldout_paths", [], 0.0)
    budgets = cost.budgets
    if len(budgets) < FEWEST_RUNGS:
        wanted = _between(budgets)
        extra = sum(wanted) / budgets[-1] * cost.largest_seconds * n_seeds
        ladder = ",".join(map(str, sorted([*budgets[:-1], *wanted])))
        why = f"a curve, and thus any extrapolation, requires {FEWEST_RUNGS} budgets"
        add(f"Train at {FEWEST_RUNGS} budgets instead of {len(budgets)}", why, [f"budget.ladder=[{ladder}]"], extra)
    else:
        why = "the verdict holds for the measured budgets only"
        if any(curve["law"] is None for curve in curves):
            why += ", and the points do not identify every curve"
        largest = f"budget.train_{cost.unit}={FARTHEST * budgets[-1]:.0f}"
        settings = [largest, f"budget.ladder=[{','.join(map(str, budgets))}]"]
        longer = FARTHEST * cost.largest_seconds * n_seeds
        add(f"Add a budget {FARTHEST:g} times as large as the largest", why, settings, longer)
    return advice


def _between(budgets: Sequence[int]) -> list[int]:
    """Budgets that make a ladder one of `FEWEST_RUNGS`: geometric means of the neighbours that are farthest apart."""
    found = [budgets[-1] / 10, *budgets] if len(budgets) == 1 else list(map(float, budgets))
    while len(found) < FEWEST_RUNGS:
        i = max(range(len(found) - 1), key=lambda i: found[i + 1] / found[i])
        found.insert(i + 1, math.sqrt(found[i] * found[i + 1]))
    return [round(each) for each in found if each not in budgets]


def with_settings(command: str, settings: Sequence[str]) -> str:
    """A command line with some of its settings replaced.

    >>> with_settings("python -m experiments.pipeline lm.n_seeds=2 lm=small", ["lm.n_seeds=3"])
    'python -m experiments.pipeline lm=small lm.n_seeds=3'
    """
    replaced = {setting.partition("=")[0] for setting in settings}
    try:
        words = shlex.split(command)
    except ValueError:  # written by an earlier version, which did not quote
        words = command.split()
    kept = [word for word in words if word.partition("=")[0].lstrip("+") not in replaced]
    return shlex.join([*kept, *settings])

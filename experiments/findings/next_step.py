"""The one command that would settle what a comparison leaves open."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.numbers import duration, percent
from experiments.shell import command_text
from lm.evaluate.bits_per_byte import SOURCE
from lm.evaluate.comparison import DETECTABLE, FEWEST_EFFECTIVE, FEWEST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.progress import Reporter
    from lm.evaluate.comparison import Comparison
    from lm.scaling.gaps import Gap

FROM_ELSEWHERE = "given"
"""The recipe in the settings of models that are scored as given, wherever they were trained."""
_MOST_HELDOUT = 0.3
"""Largest share of the text that is worth holding out."""


class Step(NamedTuple):
    """A change to the run, with its command.

    Attributes:
        what: The change.
        why: The question that it would settle.
        command: The command; empty if no setting gives a verdict.
        seconds: Estimate of its training time.
    """

    what: str
    why: str
    command: str = ""
    seconds: float = 0.0

    def follow(self, reporter: Reporter) -> list[str]:
        """Print the change, and return its command as words, without the program; an empty list without a command."""
        time = f"; about {duration(self.seconds)} of training, plus evaluation" if self.seconds else ""
        reporter.say(f"To settle it: {self.what} ({self.why}{time})")
        words = shlex.split(self.command)
        return words[words.index("pipeline") :] if "pipeline" in words else []


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
    between = [pair for pair in compared if not pair.barred]
    if not between:
        return None
    one = between[0]
    # Variances from too little text are not worth planning with.
    needed = [pair.needed for pair in between if pair.needed and not pair.decided and not pair.too_few]
    seeds = max([FEWEST_SEEDS, one.n_seeds, *(pair.seeds or 0 for pair in needed)])
    fewest, n_units, unit = FEWEST_EFFECTIVE[one.cluster], one.n_clusters, one.cluster
    units = max([n_units, *(pair.clusters for pair in needed)])
    if one.too_few:
        units = max(units, math.ceil(fewest / max(one.effective_clusters, 1) * n_units))
    changes, whats, seconds, needs_text = [], [], 0.0, False
    elsewhere = settings.get("recipe") == FROM_ELSEWHERE
    if seeds > one.n_seeds:
        changes.append(f"lm.n_seeds={seeds}")
        whats.append(f"{'score models of' if elsewhere else 'train'} {seeds} seeds instead of {one.n_seeds}")
        seconds = seed_seconds * (seeds - one.n_seeds)
    if units > n_units:
        more = f"hold out about {round(units, 2 - len(str(units))):,} {unit}s instead of {n_units:,}"
        sampled = settings.get("corpus.heldout_sample", 1.0)
        sample = sampled * units / n_units
        share = (settings.get("corpus.heldout_fraction") or math.inf) * units / n_units
        if unit == SOURCE and sampled < 1:
            changes.append("corpus.heldout_sample=1")
            what = f"score all held-out documents instead of {percent(sampled, 0)}"
            whats.append(f"{what}; about {units:,} {unit}s like the {n_units:,} of this run are needed")
        elif unit == SOURCE:
            setting = "--cluster document" if elsewhere else "eval.cluster=document"
            unless = f"{setting}, if the sources are arbitrary parts of one collection"
            whats.append(f"{more}, which needs more text from you, or set {unless}")
            needs_text = True
        elif sample <= 1:
            changes.append(f"corpus.heldout_sample={math.ceil(100 * sample) / 100:g}")
            whats.append(more)
        elif share <= _MOST_HELDOUT and not settings.get("corpus.heldout_paths"):
            changes.append(f"corpus.heldout_fraction={math.ceil(100 * share) / 100:g}")
            whats.append(f"{more}, which changes the training text")
            seconds = seed_seconds * seeds
        else:
            if sampled < 1:
                changes.append("corpus.heldout_sample=1")
            whats.append(more if elsewhere else f"{more} with corpus.heldout_paths")
            needs_text = True
    if not whats:
        return None
    why = f"to show a difference of {100 * DETECTABLE:g} % with a probability of 80 %"
    if seeds > one.n_seeds and one.n_seeds in (2, 3):  # whose spread is hardly known
        why += f", a guess from {one.n_seeds} seeds"
    if one.too_few:
        why = f"at least {fewest} effective {unit}s are required"
    elif one.n_seeds < FEWEST_SEEDS:
        why = f"a verdict about tokenizers requires {FEWEST_SEEDS} seeds"
    if one.too_few and needs_text:
        changes = []  # no setting gives a verdict
    return Step("; ".join(whats), why, with_settings(command, changes) if changes and command else "", seconds)


def with_settings(command: str, settings: Sequence[str]) -> str:
    """A command line with some of its settings replaced.

    >>> with_settings("superbpe pipeline lm.n_seeds=2 lm=small", ["lm.n_seeds=3"])
    'superbpe pipeline lm=small lm.n_seeds=3'
    """
    replaced = {setting.partition("=")[0] for setting in settings}
    words = [word for word in shlex.split(command) if word.partition("=")[0].lstrip("+") not in replaced]
    return command_text([*words, *settings])

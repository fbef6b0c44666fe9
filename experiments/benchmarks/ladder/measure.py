"""Times of a training run, and their extrapolation to merges that were not done."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from experiments.benchmarks import common

if TYPE_CHECKING:
    import argparse

    from tokenizer import Corpus

PATTERN = "gpt2"
"""The pattern of the source documents."""

_FEW = 50
"""With fewer merges than this, a trend of their times is noise."""


def corpus(arguments: argparse.Namespace, max_bytes: int | None = None) -> Corpus:
    """The text that the command line names, or the beginning of it."""
    bounds = [bound for bound in (arguments.max_bytes, max_bytes) if bound is not None]
    return common.corpus(arguments.paths, arguments.field, min(bounds, default=None))


@dataclass(frozen=True)
class Seconds:
    """A time, measured or extrapolated."""

    value: float
    measured: bool = True

    def __str__(self) -> str:
        """For a table: `~` marks what was not measured."""
        digits = 0 if self.value >= 100 else 1 if self.value >= 10 else 2
        return f"{'' if self.measured else '~'}{self.value:,.{digits}f}"


@dataclass(frozen=True)
class Work:
    """What there is to do for each merge, known from the merges themselves.

    Attributes:
        merging: for the merges from the first: symbols to look at, or places to merge at.
        recounting: whether finding the best pair takes as much again, because all pairs are counted again.
    """

    merging: npt.NDArray[np.float64]
    recounting: bool = False


@dataclass
class Curve:
    """One trainer's run.

    Attributes:
        setup: seconds until the first merge: indexing, counting pairs.
        at: seconds from the first merge's beginning to each merge's end.
        selecting: the part of them that went into finding the best pair, up to each merge's end.
        finished: whether the run ended by itself, because it had all merges or no pair was left.
        scale: what the times have to be multiplied by: 1, or more for a run on a part of the corpus.
        work: what a merge costs beside finding its pair is proportional to this.
    """

    setup: float
    at: list[float]
    selecting: list[float]
    finished: bool
    scale: float = 1.0
    work: Work | None = None

    def total(self, n_merges: int) -> Seconds:
        """Seconds for a number of merges, setup included; extrapolated if the run stopped earlier."""
        done = len(self.at)
        if n_merges <= done or self.finished:
            merging = self.at[min(n_merges, done) - 1] if done and n_merges else 0.0
            return Seconds(self.scale * (self.setup + merging), self.scale == 1)
        return Seconds(self.scale * (self.setup + self.at[-1] + self._beyond(n_merges)), measured=False)

    def _beyond(self, n_merges: int) -> float:
        """Seconds for the merges after the last one done: merging by the work there is, selecting by its trend."""
        if self.work is None:
            return _trend(self.at, n_merges)
        done = len(self.at)
        work = self.work.merging[:n_merges]
        ratio = float(work[done:].sum() / work[:done].sum())
        if self.work.recounting:
            return self.at[-1] * ratio
        return (self.at[-1] - self.selecting[-1]) * ratio + _trend(self.selecting, n_merges)

    @property
    def selecting_share(self) -> float | None:
        """Share of the time after setup that went into finding the best pair; None if there was no merge."""
        return self.selecting[-1] / self.at[-1] if self.at else None

    def per_merge(self, first: int, last: int) -> float | None:
        """Mean seconds of the merges from number `first` up to, not including, number `last`; None if not all done."""
        if last - 1 > len(self.at) or last <= first:
            return None
        begin = self.at[first - 2] if first > 1 else 0.0
        return self.scale * (self.at[last - 2] - begin) / (last - first)


def _trend(at: list[float], n_merges: int) -> float:
    """Seconds for the merges after the last one done, if the trend continues.

    A power of the merge's number is fitted to the times of the second half of the run; after few merges its
    exponent is taken to be 0, so that time grows with the vocabulary, as *From Hours to Seconds* assumes.
    """
    done = len(at)
    each = np.diff(at, prepend=0.0)
    if done < _FEW:
        return float(each.mean()) * (n_merges - done)
    numbers = np.arange(1, done + 1)
    # Means of ten stretches: single merges differ by orders of magnitude.
    stretches = [part for part in np.array_split(np.arange(done // 2, done), 10) if len(part)]
    x = np.log([numbers[part].mean() for part in stretches])
    y = np.log([max(each[part].mean(), 1e-9) for part in stretches])
    exponent = float(np.clip(np.polyfit(x, y, 1)[0], -0.95, 0.5))
    level = math.exp(float(np.mean(y - exponent * x)))
    power = exponent + 1
    return float(level / power * (n_merges**power - done**power))

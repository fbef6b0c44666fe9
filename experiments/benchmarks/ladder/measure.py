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
"""Pattern of the source documents."""

_FEW = 50
"""With fewer merges than this, the trend of their times is noise."""


def corpus(arguments: argparse.Namespace, max_bytes: int | None = None) -> Corpus:
    """Return the text that the command line names, or its first `max_bytes` bytes."""
    bounds = [bound for bound in (arguments.max_bytes, max_bytes) if bound is not None]
    return common.corpus(arguments.paths, arguments.field, min(bounds, default=None))


@dataclass(frozen=True)
class Seconds:
    """A time, measured or extrapolated."""

    value: float
    measured: bool = True

    def __str__(self) -> str:
        """Format for a table: `~` marks an extrapolated time."""
        digits = 0 if self.value >= 100 else 1 if self.value >= 10 else 2
        return f"{'' if self.measured else '~'}{self.value:,.{digits}f}"


@dataclass(frozen=True)
class Work:
    """Work of each merge, as known from the merges themselves.

    Attributes:
        merging: For each merge: number of symbols to visit, or of places to merge at.
        recounting: Whether finding the best pair is as much work, because all pairs are counted again.
    """

    merging: npt.NDArray[np.float64]
    recounting: bool = False


@dataclass
class Curve:
    """Times of one trainer's run.

    Attributes:
        setup: Seconds before the first merge: indexing and counting pairs.
        at: Seconds from the start of the first merge to the end of each merge.
        selecting: Part of `at` that finding the best pair took.
        finished: Whether the run ended by itself, because it had all merges or no pair was left.
        scale: Factor for the times: 1, or more for a run on a part of the corpus.
        work: Work of each merge; time without finding the pair is proportional to it.
    """

    setup: float
    at: list[float]
    selecting: list[float]
    finished: bool
    scale: float = 1.0
    work: Work | None = None

    def total(self, n_merges: int) -> Seconds:
        """Seconds for a number of merges, including setup; extrapolated if the run stopped earlier."""
        done = len(self.at)
        if n_merges <= done or self.finished:
            merging = self.at[min(n_merges, done) - 1] if done and n_merges else 0.0
            return Seconds(self.scale * (self.setup + merging), self.scale == 1)
        return Seconds(self.scale * (self.setup + self.at[-1] + self._beyond(n_merges)), measured=False)

    def _beyond(self, n_merges: int) -> float:
        """Extrapolated seconds after the last merge: merging in proportion to the work, selecting by its trend."""
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
        """Share of the time after setup that finding the best pair took; None without a merge."""
        return self.selecting[-1] / self.at[-1] if self.at else None

    def per_merge(self, first: int, last: int) -> float | None:
        """Mean seconds of the merges `first` to `last` - 1; None if the run stopped before the last of them."""
        if last - 1 > len(self.at) or last <= first:
            return None
        begin = self.at[first - 2] if first > 1 else 0.0
        return self.scale * (self.at[last - 2] - begin) / (last - first)


def _trend(at: list[float], n_merges: int) -> float:
    """Extrapolated seconds after the last merge, if the trend continues.

    A power of the merge's number is fitted to the times of the second half of the run. After few merges the exponent
    is 0, so that time grows linearly with the vocabulary, as *From Hours to Seconds* assumes.
    """
    done = len(at)
    each = np.diff(at, prepend=0.0)
    if done < _FEW:
        return float(each.mean()) * (n_merges - done)
    numbers = np.arange(1, done + 1)
    # Fit to the means of ten intervals: single merges differ by orders of magnitude.
    stretches = [part for part in np.array_split(np.arange(done // 2, done), 10) if len(part)]
    x = np.log([numbers[part].mean() for part in stretches])
    y = np.log([max(each[part].mean(), 1e-9) for part in stretches])
    exponent = float(np.clip(np.polyfit(x, y, 1)[0], -0.95, 0.5))
    level = math.exp(float(np.mean(y - exponent * x)))
    power = exponent + 1
    return float(level / power * (n_merges**power - done**power))

"""The passes of phase 2 over a corpus, and its merge loop.

Two streaming passes, then a merge loop over what repeats. The first pass counts how often each pair of tokens meets;
the second cuts the text at every seam that is too rare for any merge still to come, and counts the fragments between.
See `native/src/phase2.rs` for why that is exact.

If merges turn out to be rarer than the threshold, or if it takes a higher one to make the fragments fit into memory,
both passes are repeated, on text to which the merges found so far are applied. Its seams are rarer than those of
phase-1 tokens were, so it falls into fewer and shorter fragments: memory is traded for passes, the merges are the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.rules import Rules
from superbpe.sources import Source, sampled
from superbpe.transition import Merges, interleave, times_applied
from tokenizer import _native, patterns
from tokenizer.alphabet import ALPHABET
from tokenizer.progress import Progress, Throttle
from tokenizer.spelling import longest_token

Veto = Callable[[bytes, bytes, int], bool]
"""Told a candidate's left part, right part and count, whether to refuse it."""
_SATURATED = 2**31 - 1  # the core counts seams up to here
_MOST_BYTES = 28_000_000_000  # fragments of more have more cells than one merge loop can number
SAMPLE_EVERY = 25
"""One piece of text in so many estimates how rare the last merge will be."""
SAFETY = 0.4
"""Share of that estimate at which seams are cut: too high costs another pass, too low only memory."""


@dataclass
class Found:
    """Phase-1 merges kept and superword merges made, by rank, and what to say about how they were found."""

    kept: npt.NDArray[np.int64]
    superwords: Merges
    about: dict[str, Any]


class _MemoryFullError(Exception):
    """The fragments of a pass take more memory than they may."""


class Passes:
    """The passes over the corpus, and the merge loop."""

    def __init__(
        self,
        given: npt.NDArray[np.int64],
        rules: Rules,
        *,
        pattern: patterns.Pattern,
        special_tokens: Sequence[str],
        tie_break: str,
        veto: Veto | None,
        threads: int,
        memory_bytes: int | None,
        progress: Progress | None,
    ) -> None:
        self.given, self.rules, self.veto, self.progress = given, rules, veto, progress
        self.memory_bytes: float = _MOST_BYTES if memory_bytes is None else min(memory_bytes, _MOST_BYTES)
        self.n_found = 0
        self.trainer = _native.SuperwordTrainer(
            ALPHABET,
            [(left, right) for left, right in given.tolist()],
            pattern=pattern.regex,
            fence=patterns.resolve(rules.fence).regex,
            two_pass=rules.phase1_fence == "kept",
            eligible=rules.eligible if rules.atoms == "pretokens" else None,
            unit=rules.unit,
            span_trigger=rules.span_trigger,
            span_cap=rules.span_cap,
            special_tokens=special_tokens,
            threads=threads,
        )
        self.limits: dict[str, Any] = {
            "tie_break": rules.tie_break or tie_break,
            "max_bytes": longest_token(rules.max_bytes),
            "max_words": rules.max_words,
            "max_tokens": rules.max_tokens,
            "forbid": [string.encode() for string in rules.forbid],
            "special_tokens": special_tokens,
            "non_overlapping": rules.counting == "non-overlapping",
        }

    def run(
        self,
        sources: Sequence[Source],
        n_total: int,
        threshold: int | None,
        *,
        competing: bool,
    ) -> Found:
        """Goes through the corpus two times or more, and merges.

        Args:
            sources: the corpus.
            n_total: merges of both phases in the vocabulary.
            threshold: seams that occur less often are cut; None to choose it from a sample.
            competing: whether superwords compete with phase-1 merges for those places.
        """
        rules, trainer = self.rules, self.trainer
        sources = sampled(sources, rules, self.progress)
        longest = None
        if rules.truncate_quantile is not None:
            self._stream(sources, "bytes measured", trainer.measure_spans)
            longest = trainer.truncate_spans(rules.truncate_quantile)
        self._stream(sources, "bytes: seams", self._count_seams)
        seen = trainer.statistics
        n_given = len(self.given)
        rivals = times_applied(self.given, trainer.token_counts()) if competing else None
        n_new = n_total if competing else n_total - n_given

        def taken(merges: Merges, unseen: int) -> tuple[int, int] | None:
            """Phase-1 and superword merges of the vocabulary; None if there are too few of the latter to tell."""
            if rivals is not None:
                return interleave(rivals, merges, n_total, unseen=unseen)
            return None if len(merges.counts) < n_new and unseen else (n_given, min(n_new, len(merges.counts)))

        if threshold is None:
            sample = _columns(self._merge(n_new, 1, sample=True))
            threshold = _guess_threshold(sample, taken, seen["sampled_tokens"] / max(seen["tokens"], 1))
        lowest = max(threshold, rules.min_count)  # that seems to be needed
        threshold, stages = lowest, 0
        complete = 2**64  # all merges of this count or more are found
        while True:
            threshold = self._count_fragments(sources, threshold, complete)
            stages += 1
            fragments = trainer.statistics
            dead = fragments["dead_seams"] / max(fragments["seams"], 1)
            what = f"superword merges ({dead:.0%} of seams dead, {fragments['fragments']:,} fragments)"
            tick = Throttle(self.progress, what, n_new)
            trained = self._merge(n_new, threshold, tick=tick)
            merges = _columns(trained)
            # What is rarer than the threshold was not looked for.
            sizes = taken(merges, threshold - 1 if threshold > rules.min_count else 0)
            if sizes is not None:
                break
            # The last merges are rarer than the sample told, or than memory allowed to look at at once.
            complete = threshold
            threshold = lowest if lowest < threshold else max(rules.min_count, threshold // 4)
            trainer.start_over()
            self._stream(sources, "bytes: seams", partial(trainer.count_seams, sample_every=0))
        kept, made = sizes
        tick.finish(made)
        return Found(
            kept=self.given[:kept],
            superwords=_behind(merges, n_given, kept, made),
            about={
                "corpus_bytes": seen["bytes"],
                "corpus_documents": seen["documents"],
                # Where superwords compete, later phase-1 merges are undone.
                "phase1_tokens": seen["tokens"] + (int(rivals[kept:].sum()) if rivals is not None else 0),
                "threshold": threshold,
                "stages": stages,
                "dead_seams": fragments["dead_seams"],
                "seams": fragments["seams"],
                "fragments": fragments["fragments"],
                "fragment_tokens": fragments["cells"],
                "longest_span": longest,
                "rejected": trained["rejected"],
                "already_tokens": trained["already_tokens"],
                "too_long": trained["too_long"],
            },
        )

    def _count_seams(self, batch: _native.Batch, weight: int) -> None:
        room = self.trainer.memory < self.memory_bytes
        self.trainer.count_seams(batch, weight, sample_every=SAMPLE_EVERY if room else 0)

    def _count_fragments(self, sources: Sequence[Source], threshold: int, complete: int) -> int:
        """Counts fragments; returns the threshold, which is raised where memory does not hold what it leaves."""
        wanted = threshold
        while not self._fits(sources, threshold):
            # Up to the middle (of the logarithms) between what is wanted and what is done.
            higher = min(4 * threshold, isqrt(threshold * complete), _SATURATED)
            # A stage must be worth its passes.
            if higher in (threshold, _SATURATED) or 4 * higher > 3 * complete:
                warnings.warn(
                    f"phase 2 needs more memory than {self.memory_bytes / 1e6:.0f} MB, also for a few merges at a "
                    "time, and takes it; a narrower fence, a smaller vocabulary or a sample of the text need less",
                    stacklevel=4,
                )
                self.memory_bytes = inf
                higher = wanted
            threshold = higher
        return threshold

    def _fits(self, sources: Sequence[Source], threshold: int) -> bool:
        """Counts fragments, unless they need more memory than there is."""

        def add(batch: _native.Batch, weight: int) -> None:
            self.trainer.count_fragments(batch, weight, threshold=min(threshold, _SATURATED))
            if self.trainer.memory > self.memory_bytes:
                raise _MemoryFullError

        try:
            self._stream(sources, f"bytes: fragments between seams of {threshold:,} or more", add)
        except _MemoryFullError:
            return False
        return True

    def _stream(self, sources: Sequence[Source], what: str, add: Callable[[_native.Batch, int], None]) -> None:
        tick, done = Throttle(self.progress, what), 0
        self.trainer.begin_pass()
        for source in sources:
            done = source.read(partial(_weighted, add, source.weight), tick, done)
        self.trainer.end_pass()
        tick.finish(done)

    def _merge(
        self, n_merges: int, min_count: int, *, sample: bool = False, tick: Throttle | None = None
    ) -> _native.MergeResult:
        """Merges the sample, or goes on merging what the last pass counted."""
        before = self.n_found

        def report(n: int, merges: object = None) -> None:
            del merges
            if tick is not None:
                tick(before + n)

        found = self.trainer.merge(
            n_merges,
            sample=sample,
            min_count=min_count,
            judge=None if sample else self.veto,
            progress=report,
            **self.limits,
        )
        if not sample:
            self.n_found = len(found["left"])
        return found


def _columns(trained: _native.MergeColumns) -> Merges:
    left, right, count = (trained[name].astype(np.int64) for name in ("left", "right", "count"))
    return Merges(left, right, count)


def _behind(merges: Merges, n_before: int, n_kept: int, made: int) -> Merges:
    """The first `made` merges, numbered after `n_kept` phase-1 merges and not after `n_before`."""
    left, right = (
        np.where(ids >= 256 + n_before, ids - (n_before - n_kept), ids)[:made] for ids in (merges.left, merges.right)
    )
    return Merges(left, right, merges.counts[:made])


def _guess_threshold(sample: Merges, taken: Callable[[Merges, int], tuple[int, int] | None], share: float) -> int:
    """A count that the last merge on the whole corpus will most likely reach; the sample is this share of it."""
    if not share:
        return 1
    # In a sample a superword can seem more frequent than its parts' merges; it, and all behind it, would wait for them.
    no_parts = np.zeros_like(sample.left)
    whole = Merges(no_parts, no_parts, (sample.counts / share).astype(np.int64))
    sizes = taken(whole, 0)
    n = 0 if sizes is None else sizes[1]
    return max(1, int(SAFETY * int(sample.counts[n - 1]) / share)) if n else 1


def _weighted(add: Callable[[_native.Batch, int], None], weight: int, batch: _native.Batch) -> None:
    add(batch, weight)

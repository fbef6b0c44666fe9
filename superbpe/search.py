"""The passes of phase 2 over a corpus, and its merge loop.

The first pass counts the pairs of adjacent tokens. The second pass cuts the text at every seam (boundary between two
tokens) that is too rare for any merge to come, and counts the fragments between the cuts. The merge loop then works on
distinct fragments. `native/src/train/phase2/trainer.rs` explains why this is exact.

Both passes are repeated, after applying the merges found so far, if merges turn out to be rarer than the threshold, or
if the fragments fit into memory only with a higher threshold. The threshold does not change the merges.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import inf, isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.passes import MemoryFullError, Pass, Runner, State
from superbpe.sources import Selection
from superbpe.start import Start
from superbpe.transition import Merges, interleave, times_applied
from tokenizer import _native, patterns
from tokenizer.definition import ALPHABET, longest_token
from tokenizer.progress import Progress, Throttle
from tokenizer.tokenizer import Tokenizer

_SATURATED = 2**31 - 1  # seam counts in the core saturate here
_MOST_BYTES = 28_000_000_000  # limit of the cells that one merge loop can index
SAMPLE_EVERY = 25
"""One in this many pieces of text is sampled to estimate the count of the last merge."""
SAMPLE_CELLS = 10_000_000
"""Maximum number of tokens in the sample, which is sufficient for any corpus: about 40 MB of text."""
SAFETY = 0.4
"""Threshold as a fraction of that estimate: too high costs another pass, too low only memory."""


@dataclass
class Found:
    """Result of the passes.

    Attributes:
        n_kept: number of phase-1 merges kept; the first ones.
        superwords: superword merges, by rank.
        about: statistics for the tokenizer's provenance.
    """

    n_kept: int
    superwords: Merges
    about: dict[str, Any]


class MergeSearch:
    """The search for merges: passes over the corpus with thresholds, and the merge loop."""

    def __init__(
        self,
        start: Start,
        *,
        tie_break: str,
        threads: int,
        memory_bytes: int | None,
        progress: Progress | None,
    ) -> None:
        rules = start.rules
        self.start, self.rules, self.progress = start, rules, progress
        self.unmerged = start.tokenizer.unmerged  # tokens that exist already, although no merge produces them
        self.memory_bytes: float = _MOST_BYTES if memory_bytes is None else min(memory_bytes, _MOST_BYTES)
        self.n_found = 0
        self.rivals: npt.NDArray[np.int64] | None = None  # counts of phase-1 merges, if superwords compete
        self.n_new = start.n_merges if start.competing else start.n_merges - len(start.ranks)
        special_tokens = [*start.specials, *start.tokenizer.preparation.added_tokens]
        settings: dict[str, Any] = {
            "tokens": [bytes([byte]) for byte in ALPHABET] + [start.tokenizer.vocab[i] for i in start.ids[256:]],
            "merges": [(left, right) for left, right in start.ranks.tolist()],
            "pattern": start.tokenizer.pattern.regex,
            "fence": patterns.resolve(rules.fence).regex,
            "two_pass": rules.phase1_fence == "kept",
            "eligible": rules.eligible if rules.atoms == "pretokens" else None,
            "unit": rules.unit,
            "span_trigger": rules.span_trigger,
            "span_cap": rules.span_cap,
            "special_tokens": special_tokens,
            "sample_cells": SAMPLE_CELLS,
            "sample_memory": int(self.memory_bytes),
        }
        self.trainer = _native.SuperwordTrainer(**settings, threads=threads)
        self.state = State(settings, self.trainer)
        self.limits: dict[str, Any] = {
            "tie_break": rules.tie_break or tie_break,
            "max_bytes": longest_token(rules.max_bytes),
            "max_words": rules.max_words,
            "max_tokens": rules.max_tokens,
            "forbid": list(rules.forbid),
            "special_tokens": special_tokens,
            "non_overlapping": rules.counting == "non-overlapping",
        }

    def run(self, corpus: Runner, normalizer: Tokenizer | None, threshold: int | None) -> Found:
        """Read the corpus at least twice, and merge.

        Args:
            corpus: the corpus.
            normalizer: tokenizer that normalizes the text, if it does.
            threshold: seams that occur less often are cut; None to choose it from a sample.
        """
        trainer, state = self.trainer, self.state
        state.selection = Selection(normalizer, self.rules.sample, self.rules.sample_salt)
        if self.rules.truncate_quantile is not None:
            corpus.run(state, Pass(kind="spans"), self.progress)
            state.longest = trainer.truncate_spans(self.rules.truncate_quantile)
        corpus.run(state, Pass(kind="seams", sample_every=SAMPLE_EVERY), self.progress)
        seen = trainer.statistics
        if self.start.competing:
            self.rivals = times_applied(self.start.ranks, trainer.token_counts())
        if threshold is None:
            threshold = self._guess_threshold(seen["sampled_tokens"] / max(seen["tokens"], 1))
        result = self._search(corpus, max(threshold, self.rules.min_count))
        # If superwords compete, phase-1 merges after the transition are undone.
        undone = 0 if self.rivals is None else int(self.rivals[result.n_kept :].sum())
        result.about = {
            "corpus_bytes": seen["bytes"],
            "corpus_documents": seen["documents"],
            "phase1_tokens": seen["tokens"] + undone,
            **result.about,
            "longest_span": state.longest,
        }
        return result

    def _search(self, corpus: Runner, lowest: int) -> Found:
        """Count fragments and merge, until no merge of the vocabulary can be missing."""
        trainer, min_count = self.trainer, self.rules.min_count
        threshold = lowest
        stages = 0
        complete = 2**64  # all merges of at least this count are found
        while True:
            threshold = self._count_fragments(corpus, threshold, complete)
            stages += 1
            fragments = trainer.statistics
            dead = fragments["dead_seams"] / max(fragments["seams"], 1)
            what = f"superword merges ({dead:.0%} of seams dead, {fragments['fragments']:,} fragments)"
            tick = Throttle(self.progress, what, self.n_new)
            trained = self._merge(threshold, tick=tick)
            merges = Merges.of(trained)
            # Merges rarer than the threshold were not searched for.
            sizes = self._taken(merges, threshold - 1 if threshold > min_count else 0)
            if sizes is not None:
                break
            # The last merges are rarer than the estimate, or than the threshold that memory allowed.
            complete = threshold
            threshold = lowest if lowest < threshold else max(min_count, threshold // 4)
            self.state.start_over(merges)
            corpus.run(self.state, Pass(kind="seams"), self.progress)
        n_kept, n_superwords = sizes
        tick.finish(n_superwords)
        about = {
            "threshold": threshold,
            "stages": stages,
            **{key: fragments[key] for key in ("dead_seams", "seams", "fragments")},
            "fragment_tokens": fragments["cells"],
            **{key: trained[key] for key in ("rejected", "already_tokens", "too_long")},
        }
        return Found(n_kept, _renumbered(merges, len(self.start.ranks), n_kept, n_superwords), about)

    def _taken(self, merges: Merges, unseen: int) -> tuple[int, int] | None:
        """Number of phase-1 and superword merges in the vocabulary; None if more superword merges are needed."""
        if self.rivals is not None:
            return interleave(self.rivals, merges, self.start.n_merges, unseen=unseen)
        n_superwords = len(merges.counts)
        return None if n_superwords < self.n_new and unseen else (len(self.start.ranks), min(self.n_new, n_superwords))

    def _guess_threshold(self, share: float) -> int:
        """A count that the last merge most likely reaches on the whole corpus. `share` is the sample's share of it."""
        sample = Merges.of(self._merge(1, sample=True))
        if not share:
            return 1
        # Drop the parts, so that no superword waits: in a sample it can be more frequent than its parts' merges.
        no_parts = np.zeros_like(sample.left)
        sizes = self._taken(Merges(no_parts, no_parts, (sample.counts / share).astype(np.int64)), 0)
        n_superwords = 0 if sizes is None else sizes[1]
        return max(1, int(SAFETY * int(sample.counts[n_superwords - 1]) / share)) if n_superwords else 1

    def _count_fragments(self, corpus: Runner, threshold: int, complete: int) -> int:
        """Count fragments; returns the threshold, raised until the fragments fit into memory."""
        wanted = threshold
        while not self._fits(corpus, threshold):
            # At most the geometric mean of this threshold and the last complete one.
            higher = min(4 * threshold, isqrt(threshold * complete), _SATURATED)
            # Each stage must make enough progress to be worth its passes.
            if higher in (threshold, _SATURATED) or 4 * higher > 3 * complete:
                warnings.warn(
                    f"phase 2 needs more memory than {self.memory_bytes / 1e6:.0f} MB even for a few merges at a time, "
                    "and exceeds the limit; a narrower fence, a smaller vocabulary or a sample of the text need less",
                    stacklevel=5,
                )
                self.memory_bytes = inf
                higher = wanted
            threshold = higher
        return threshold

    def _fits(self, corpus: Runner, threshold: int) -> bool:
        """Count fragments; returns False if they exceed the memory limit."""
        limit = None if self.memory_bytes == inf else int(self.memory_bytes)
        pass_ = Pass(kind="fragments", threshold=min(threshold, _SATURATED), memory_bytes=limit)
        try:
            corpus.run(self.state, pass_, self.progress)
        except MemoryFullError:
            return False
        return True

    def _merge(self, min_count: int, *, sample: bool = False, tick: Throttle | None = None) -> _native.MergeResult:
        """Merge the sample, or continue merging with the counts of the last pass."""
        before = self.n_found

        def report(n: int) -> None:
            if tick is not None:
                tick(before + n)

        trained = self.trainer.merge(
            self.n_new,
            sample=sample,
            min_count=min_count,
            judge=(lambda left, right, _: left + right in self.unmerged) if self.unmerged and not sample else None,
            progress=report,
            **self.limits,
        )
        if not sample:
            self.n_found = len(trained["left"])
        return trained


def _renumbered(merges: Merges, n_before: int, n_kept: int, n: int) -> Merges:
    """The first `n` merges, with ranks that follow `n_kept` phase-1 merges instead of `n_before`."""
    left, right = (
        np.where(ids >= 256 + n_before, ids - (n_before - n_kept), ids)[:n] for ids in (merges.left, merges.right)
    )
    return Merges(left, right, merges.counts[:n])

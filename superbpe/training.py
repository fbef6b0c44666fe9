"""Phase 2: a tokenizer and a corpus to a tokenizer with superwords.

Two streaming passes over the corpus, then a merge loop over what repeats. The first pass counts how often each
pair of phase-1 tokens meets; the second cuts the text at every seam that is too rare for any merge still to
come, and counts the fragments between. See `native/src/phase2.rs` for why that is exact.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.rules import PRESETS, Rules
from tokenizer import _native, patterns
from tokenizer.bpe import ALPHABET, Tokenizer
from tokenizer.errors import UserError
from tokenizer.progress import Progress, Throttle, thread_count
from tokenizer.training import merges_that_fit

_SATURATED = 2**31 - 1  # the core counts seams up to here
SAMPLE_EVERY = 25
"""One document in so many estimates how rare the last merge will be."""
SAFETY = 0.4
"""Share of that estimate at which seams are cut: too high costs another pass, too low only memory."""


def resolve_transition(vocab_size: int, transition: float | None = None, transition_merges: int | None = None) -> int:
    """The transition as 256 bytes + phase-1 merges, special tokens excluded.

    Args:
        vocab_size: of the final tokenizer.
        transition: that number itself, or a share of `vocab_size` in (0, 1).
        transition_merges: instead, the number of phase-1 merges.

    Raises:
        UserError: neither or both are given, or the value is out of range.
    """
    if (transition is None) == (transition_merges is None):
        raise UserError("give the transition either as transition or as transition_merges")
    if transition_merges is not None:
        return 256 + transition_merges
    if transition is not None and 0 < transition < 1:
        return round(transition * vocab_size)
    if transition is None or not math.isfinite(transition) or transition != int(transition) or transition < 256:
        raise UserError(f"transition={transition} is neither a share between 0 and 1 nor a size of 256 or more")
    return int(transition)


def train_superbpe(
    tokenizer: Tokenizer,
    batches: Callable[[], Iterable[_native.Batch]],
    *,
    vocab_size: int,
    rules: Rules | str,
    transition: float | None = None,
    transition_merges: int | None = None,
    tie_break: str = "lowest-ids",
    threshold: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on_counts: Callable[[npt.NDArray[np.uint64]], object] | None = None,
) -> Tokenizer:
    """Resumes training from the first merges of a tokenizer, with the whitespace fence lifted.

    The merges do not depend on `threshold`, `threads` or how documents are batched.

    Args:
        tokenizer: phase 1; plain BPE with at least as many merges as the transition keeps.
        batches: gives the corpus from its beginning, each time it is called.
        vocab_size: of the result: bytes, merges of both phases, special tokens.
        rules: what may be merged: rules, or the name of a preset in `superbpe.rules.PRESETS`.
        transition: where phase 2 takes over; see `resolve_transition`.
        transition_merges: the same as a number of merges, instead.
        tie_break: which of the most frequent pairs is merged first, as in `train_bpe`.
        threshold: seams that occur less often are cut; None to choose it from a sample.
        threads: worker threads; None for SUPERBPE_THREADS or all cores.
        progress: called with bytes of text and merges done.
        on_counts: called at the end with the count at which each phase-2 merge was made, by rank, for
            `superbpe.history.merge_log`.

    Raises:
        UserError: the transition does not fit the tokenizer or the vocabulary, or a rule is not possible.
    """
    if isinstance(rules, str):
        if rules not in PRESETS:
            raise UserError(f"rules={rules!r} is no preset; there are: {', '.join(PRESETS)}")
        rules = PRESETS[rules]
    rules.check()
    if not callable(batches):
        raise UserError("batches must give the corpus anew for each pass: pass corpus.batches, not corpus.batches()")
    specials = sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.__getitem__)
    n_total = merges_that_fit(vocab_size, specials)
    t = resolve_transition(vocab_size, transition, transition_merges)
    _check_transition(t, tokenizer, vocab_size, n_total)
    started = time.perf_counter()
    kept = tokenizer.ranks()[: t - 256]
    n_new = n_total - len(kept)
    fence = patterns.resolve(rules.fence)
    trainer = _native.SuperwordTrainer(
        ALPHABET,
        [(left, right) for left, right in kept.tolist()],
        pattern=tokenizer.pattern.regex,
        fence=fence.regex,
        two_pass=rules.phase1_fence == "kept",
        unit=rules.unit,
        span_trigger=rules.span_trigger,
        span_cap=rules.span_cap,
        special_tokens=specials,
        threads=thread_count(threads),
    )
    veto: dict[str, Any] = {
        "tie_break": tie_break,
        "max_bytes": rules.max_bytes,
        "max_words": rules.max_words,
        "forbid": [string.encode() for string in rules.forbid],
        "special_tokens": specials,
    }

    def stream(what: str, add: Callable[[_native.Batch], None]) -> None:
        tick, done = Throttle(progress, what), 0
        trainer.begin_pass()
        for batch in _sampled(batches(), rules):
            add(batch)
            done += batch.n_bytes
            tick(done)
        trainer.end_pass()
        tick.finish(done)

    longest = None
    if rules.truncate_quantile is not None:
        stream("bytes measured", trainer.measure_spans)
        longest = trainer.truncate_spans(rules.truncate_quantile)
    stream("bytes: seams", lambda batch: trainer.count_seams(batch, SAMPLE_EVERY))
    seen = trainer.statistics
    if seen["bytes"] == 0:
        raise UserError("the corpus is empty: there is no text to train superwords on")
    if threshold is None:
        share = seen["sampled_bytes"] / seen["bytes"]
        sample = trainer.merge(n_new, min_count=1, progress=None, **veto)
        threshold = _guess_threshold(sample["count"], n_new, share)
    threshold = max(threshold, rules.min_count)
    tick = Throttle(progress, "superword merges", n_new)

    def merge_at(threshold: int) -> _native.MergeResult:
        stream("bytes: fragments", lambda batch: trainer.count_fragments(batch, min(threshold, _SATURATED)))
        return trainer.merge(n_new, min_count=threshold, progress=tick, **veto)

    passes = 1
    trained = merge_at(threshold)
    while len(trained["left"]) < n_new and threshold > rules.min_count:
        # The last merges are rarer than the sample told: cut less, and go through the corpus again.
        threshold = max(rules.min_count, threshold // 4)
        passes += 1
        trained = merge_at(threshold)
    made = len(trained["left"])
    tick.finish(made)
    if made < n_new:
        warnings.warn(
            f"the corpus ran out of pairs after {made} of {n_new} superword merges; the vocabulary has "
            f"{t + made + len(specials)} tokens, not {vocab_size}. Use more text, other rules or a smaller vocabulary",
            stacklevel=2,
        )
    if on_counts is not None:
        on_counts(trained["count"])
    fragments = trainer.statistics
    return Tokenizer.from_ranks(
        np.concatenate([kept, np.stack([trained["left"], trained["right"]], axis=1).astype(np.int64)]),
        pattern=tokenizer.pattern,
        special_tokens=specials,
        special_layout=tokenizer.special_layout,
        n_phase1_merges=len(kept),
        fence=fence,
        mode="two-pass" if rules.phase1_fence == "kept" else "one-pass",
        provenance=tokenizer.provenance
        | {
            "phase2": {
                "from": tokenizer.sha256,
                "transition": t,
                "corpus_bytes": seen["bytes"],
                "corpus_documents": seen["documents"],
                "phase1_tokens": seen["tokens"],
                "threshold": threshold,
                "fragment_passes": passes,
                "dead_seams": fragments["dead_seams"],
                "seams": fragments["seams"],
                "fragments": fragments["fragments"],
                "fragment_tokens": fragments["cells"],
                "longest_span": longest,
                "ran_out_of_pairs": made < n_new,
                "last_count": int(trained["count"][-1]) if made else None,
                "rejected": trained["rejected"],
                "unreachable_phase1_tokens": _unreachable(tokenizer, len(kept), fence, rules),
                "already_tokens": trained["already_tokens"],
                "seconds": round(time.perf_counter() - started, 3),
            }
        },
    )


def _check_transition(t: int, tokenizer: Tokenizer, vocab_size: int, n_total: int) -> None:
    have = 256 + tokenizer.n_phase1_merges
    if not 256 <= t <= 256 + n_total:
        raise UserError(
            f"the transition {t} is outside the vocabulary: "
            f"with vocab_size={vocab_size} it can be 256 to {256 + n_total}"
        )
    if t > have:
        raise UserError(
            f"the transition {t} needs {t - 256} phase-1 merges, and the tokenizer has {have - 256}; "
            f"use at most {have}, or train phase 1 to a larger vocabulary"
        )


def _guess_threshold(sample_counts: np.ndarray[Any, np.dtype[np.uint64]], n_new: int, share: float) -> int:
    """A count that the last merge on the whole corpus will most likely reach; the sample is this share of it."""
    last = int(sample_counts[n_new - 1]) if 0 < n_new <= len(sample_counts) else 1
    return max(1, int(SAFETY * last / share)) if share else 1


def _unreachable(tokenizer: Tokenizer, n_kept: int, fence: patterns.Pattern, rules: Rules) -> int:
    """Phase-1 tokens that one-pass encoding never gives, because the fence cuts their own text."""
    if rules.phase1_fence == "kept":
        return 0
    tokens = (tokenizer.vocab[i].decode(errors="replace") for i in tokenizer.merge_ids[:n_kept, 2].tolist())
    return sum(len(_native.split(token, fence.regex)) > 1 for token in tokens)


def _sampled(batches: Iterable[_native.Batch], rules: Rules) -> Iterator[_native.Batch]:
    if rules.sample == 1.0:
        yield from batches
        return
    keep = _native.DocumentFilter(
        split="all",
        min_bytes=1,
        max_bytes=None,
        budget=None,
        heldout_fraction=0.0,
        heldout_salt="",
        sample_fraction=rules.sample,
        sample_salt=rules.sample_salt,
    )
    for batch in batches:
        yield keep.apply(batch)[0]

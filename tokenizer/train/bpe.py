"""Counts to a byte-level BPE tokenizer (phase 1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from tokenizer import _native, patterns
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.seen import KEY, Recorder
from tokenizer.definition import ALPHABET, LONGEST_TOKEN, Definition, check_special_tokens, longest_token
from tokenizer.documents import check_text
from tokenizer.errors import UserError, check_choice, check_strings, check_whole, quoted
from tokenizer.progress import Progress, Throttle
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.balanced import Balanced, check_balance
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS, Countable, Counting, PretokenCounts, count_pretokens
from tokenizer.train.forced import check_forced, forced_merges

TIE_BREAKS = ("lowest-ids", "lexicographic-greatest", "lexicographic-smallest")
MOST_TOKENS = 2**32
"""Upper limit of a vocabulary's size: ids are 32-bit numbers."""
MOST_CELLS = 2**31
"""Places of the merge loop, whose positions are 31-bit numbers."""
_LOOP_MEMORY = 14
"""Bytes of memory that the merge loop takes per byte of distinct pretokens; 13 to 15 were measured."""


def train_bpe(
    counts: PretokenCounts | Countable | Balanced,
    vocab_size: int,
    *,
    start: Tokenizer | None = None,
    keep_ids: bool = False,
    special_tokens: Sequence[str] = DEFAULT_SPECIAL_TOKENS,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    min_pretoken_count: int = 1,
    max_token_bytes: int | None = None,
    forbid: Sequence[str] = (),
    forced_tokens: Sequence[str] = (),
    parallel: str | None = None,
    ratios: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    on_counts: Callable[[npt.NDArray[np.uint64]], object] | None = None,
    **counting: Unpack[Counting],
) -> Tokenizer:
    """Train byte-level BPE: merge the most frequent adjacent pair until the vocabulary is full.

    Counts are 64-bit and cover all adjacent positions, including overlapping ones. If no pair is left, training stops
    early, with a warning and an entry in the provenance.

    >>> train_bpe(["low lower newer"] * 3, 260, special_tokens=()).encode("lower")
    [257, 258]

    Args:
        counts: result of `count_pretokens`, or what it takes: a text of any kind, or counts such as `{"word": 5}`; or
            counts of sources whose costs shall be equal (`tokenizer.train.balanced.Balanced`).
        vocab_size: 256 bytes + merges + special tokens.
        start: tokenizer to continue from; its merges and special tokens are kept. A tokenizer trained here on the
            same counts becomes the result of a single run to the larger size, with the special tokens moved after the
            new merges.
        keep_ids: keep all ids of `start`, for a model trained with them, and give the new tokens the ids after the
            highest one. Always on for an imported tokenizer and for other layouts of ids.
        special_tokens: strings that get the last ids; no merge may spell one. Ignored with `start`, which has its own.
            Count with the same strings, or parts of them count as text.
        tie_break: which of the most frequent pairs is merged: "lowest-ids" (HF's order: bytes in HF's alphabet
            order, then merges by rank), "lexicographic-greatest" or "lexicographic-smallest" (of left bytes,
            right bytes).
        min_count: pairs that occur less often are not merged.
        min_pretoken_count: pretokens that occur less often are left out before the first merge, which saves memory
            (`phase1_memory`); the provenance has their share. Not with balanced sources.
        max_token_bytes: maximum token length; None for `LONGEST_TOKEN`, the upper limit.
        forbid: regexes without look-around that no new token may match. They are searched in a token's whole
            characters: parts of characters at its ends are left out.
        forced_tokens: strings that become tokens by the first merges, whatever their counts
            (`tokenizer.train.forced.forced_merges`). Each must lie within one pretoken. Not with `start`.
        parallel: field whose values are equal in translations, by which the named sources of a corpus are balanced:
            the source with the most tokens of them chooses the next merge (`tokenizer.train.balanced`).
        ratios: instead, the bytes that each source needs for the same content.
        progress: called with the number of merges done.
        on_counts: called at the end with the count of each new merge, by rank; for the merges of forced tokens, the
            number of times that they apply.
        counting: arguments of `count_pretokens`, if `counts` is a text. The pattern is that of `start`, or
            `tokenizer.patterns.FULL_STRENGTH`.

    Raises:
        UserError: the vocabulary is too small, an argument is out of range, a regex of `forbid` does not compile, or a
            forced token cannot be made.
    """
    check_forbid(forbid)
    check_whole("min_count", min_count, 0, 2**63 - 1)
    check_whole("min_pretoken_count", min_pretoken_count, 1, 2**63 - 1)
    if max_token_bytes is not None:
        check_whole("max_token_bytes", max_token_bytes, 0, 2**63 - 1)
    check_whole("vocab_size", vocab_size, 1, MOST_TOKENS)
    check_choice("tie_break", tie_break, TIE_BREAKS)
    if start is None:
        n_merges = merges_that_fit(vocab_size, special_tokens)
        strings = tuple(special_tokens)
    else:
        n_merges = _merges_on_top(start, vocab_size)
        special_tokens = tuple(sorted(start.special_tokens, key=start.special_tokens.__getitem__))
        strings = (*special_tokens, *start.preparation.added_tokens)
        check_special_tokens(strings, {start.vocab[i] for i in start.ordinary_ids()})
    if (parallel is not None or ratios or isinstance(counts, Balanced)) and min_pretoken_count > 1:
        raise UserError(f"min_pretoken_count={min_pretoken_count} is not for balanced sources; leave it out")
    if parallel is not None or ratios:
        usual = _usual_counting(start, special_tokens)
        counts = _balanced(counts, usual | dict(counting), parallel, ratios)
        counting = {}
    balanced = counts if isinstance(counts, Balanced) else None
    if isinstance(counts, Balanced):
        counts = counts.total
    rules = {"tie_break": tie_break, "min_count": min_count, "max_token_bytes": max_token_bytes}
    vetoes = {"forbid": list(forbid)} if forbid else {}
    if forced_tokens:
        if start is not None:
            raise UserError("forced_tokens come first, but start has merges already; leave out one of the two")
        cut = counts if isinstance(counts, PretokenCounts) else None
        check_forced(
            forced_tokens,
            patterns.resolve(counting.get("pattern", patterns.FULL_STRENGTH)) if cut is None else cut.pattern,
            n_merges=n_merges,
            unit=counting.get("unit", "document") if cut is None else cut.unit,
            special_tokens=(*special_tokens, *(() if cut is None else cut.special_tokens)),
            forbid=forbid,
            max_token_bytes=max_token_bytes,
        )
    counts = _counted(counts, start, special_tokens, progress, counting)
    whole = counts
    counts = counts.at_least(min_pretoken_count)
    if not counts.n_distinct and whole.n_distinct:
        raise UserError(
            f"min_pretoken_count={min_pretoken_count} leaves no pretoken: the most frequent one occurs "
            f"{int(whole.counts.max()):,} times"
        )
    forced = _forced_ranks(forced_tokens)
    base = Tokenizer.from_ranks(forced, pattern=counts.pattern) if len(forced) else start
    segments = segment(counts, base)
    about_rare = {"min_pretoken_count": min_pretoken_count, "left_out": share_left_out(whole, counts)}
    if len(segments.words) + counts.n_distinct >= MOST_CELLS:
        raise UserError(_too_large(counts, min_pretoken_count))
    trained = _merge(
        counts, segments, n_merges - len(forced), rules | vetoes, strings, progress, balanced=balanced, base=base
    )
    ranks = np.concatenate([forced, np.stack([trained["left"], trained["right"]], axis=1)])
    if on_counts is not None:
        on_counts(np.concatenate([_times_applied(forced, counts, segments), trained["count"]]))
    made = len(ranks)
    if made < n_merges:
        warnings.warn(
            f"the corpus ran out of pairs after {made} of {n_merges} merges; the vocabulary has "
            f"{vocab_size - n_merges + made} tokens, not {vocab_size}. Use more text or a smaller vocabulary",
            stacklevel=2,
        )
    if max_token_bytes is None or max_token_bytes > LONGEST_TOKEN:
        warn_of_long_tokens(trained["too_long"], "max_token_bytes", stacklevel=2)
    provenance: dict[str, Any] = {
        "phase1": {
            "corpus_bytes": counts.n_bytes,
            "corpus_documents": counts.n_documents,
            "distinct_pretokens": counts.n_distinct,
            "unit": counts.unit,
            "vocab_size_asked": vocab_size,
            **rules,
            **vetoes,
            **({"forced_tokens": list(forced_tokens)} if forced_tokens else {}),
            **({} if balanced is None else {"balanced": balanced.about()}),
            **({} if counts is whole else about_rare),
            "ran_out_of_pairs": made < n_merges,
            "continued_from": None if start is None else start.name,
            "merges": made,
            "last_count": int(trained["count"][-1]) if len(trained["count"]) else None,
            "rejected": trained["rejected"],
            "already_tokens": trained["already_tokens"],
            "too_long": trained["too_long"],
        },
        KEY: Recorder([counts.read] if start is None else [start.provenance.get(KEY), counts.read]).read(),
    }
    if start is None:
        return Tokenizer.from_ranks(ranks, pattern=counts.pattern, special_tokens=special_tokens, provenance=provenance)
    if keep_ids or "imported" in start.provenance or not start.definition.has_own_layout():
        ids = np.concatenate([start.ordinary_ids(), np.arange(start.vocab_size, start.vocab_size + made)])
        return start.extended(ids[ranks], provenance=provenance)
    return Tokenizer.from_ranks(
        np.concatenate([start.ranks(), ranks]),
        pattern=counts.pattern,
        special_tokens=special_tokens,
        special_layout=start.definition.special_layout,
        end_of_text=start.end_of_text,
        provenance=start.provenance | provenance,
    )


def warn_of_memory(counts: PretokenCounts, limit: int | None, min_pretoken_count: int = 1) -> None:
    """Warn if the merge loop takes more than the memory limit of counting, in bytes, which does not include it."""
    needed = _LOOP_MEMORY * len(counts.at_least(min_pretoken_count).data)
    if limit is not None and needed > limit:
        enough = 2 * min_pretoken_count
        fewer = counts.at_least(enough)
        warnings.warn(
            f"phase 1 takes about {needed / 1e6:.0f} MB, which the memory limit of {limit / 1e6:.0f} MB does not "
            f"include; min_pretoken_count={enough} would take {_LOOP_MEMORY * len(fewer.data) / 1e6:.0f} MB and leave "
            f"out {100 * share_left_out(counts, fewer):.2f} % of the text's pretokens",
            stacklevel=2,
        )


def _too_large(counts: PretokenCounts, least: int) -> str:
    """Message about more pretokens than the merge loop can hold."""
    enough, fewer = least, counts
    while len(fewer.data) + fewer.n_distinct >= MOST_CELLS:
        enough *= 2
        fewer = counts.at_least(enough)
    return (
        f"phase 1 cannot hold {counts.n_distinct:,} distinct pretokens of {len(counts.data):,} bytes (together at most "
        f"{MOST_CELLS:,}); use min_pretoken_count={enough}, which leaves out "
        f"{100 * share_left_out(counts, fewer):.2g} % of the text's pretokens, or less text"
    )


def share_left_out(whole: PretokenCounts, kept: PretokenCounts) -> float:
    """Share of all occurrences of pretokens that `min_pretoken_count` leaves out."""
    return 1 - kept.n_total / max(1, whole.n_total)


def check_forbid(forbid: Sequence[str]) -> None:
    """Reject vetoes that are not regexes without look-around, or that match every token.

    Raises:
        UserError: the message names the regex.
    """
    check_strings("forbid", forbid)
    for regex in forbid:
        check_text(regex, "a regex of forbid")
    _native.are_forbidden([], list(forbid))


def warn_of_long_tokens(n_pairs: int, option: str, *, stacklevel: int) -> None:
    """Warn about pairs that were not merged because the token would exceed the length limit."""
    if n_pairs:
        warnings.warn(
            f"{n_pairs} pair(s) were not merged, since a token has at most {LONGEST_TOKEN:,} bytes: the text contains "
            f"very long repetitions. Lower {option}, to 100 for example, to keep such tokens out of the vocabulary",
            stacklevel=stacklevel + 1,
        )


def as_encoded_by(tokenizer: Tokenizer) -> dict[str, Any]:
    """Arguments with which `count_pretokens` takes a text as a tokenizer encodes it: normalized, and in its pieces."""
    return {
        "pattern": tokenizer.pattern,
        "prepare": tokenizer.normalized if tokenizer.preparation.forms else None,
        "special_tokens": [*tokenizer.special_tokens, *tokenizer.preparation.added_tokens],
    }


def _usual_counting(start: Tokenizer | None, special_tokens: Sequence[str]) -> dict[str, Any]:
    """Arguments of `count_pretokens` for a text, unless the user has others."""
    if start is not None:
        return as_encoded_by(start)
    return {"pattern": patterns.FULL_STRENGTH, "special_tokens": special_tokens}


def _balanced(
    corpus: Any, counting: Mapping[str, Any], parallel: str | None, ratios: Mapping[str, float] | None
) -> Balanced:
    """Counts of the sources of a corpus, which are balanced; `counting` are arguments of `count_pretokens`."""
    if not isinstance(corpus, Corpus):
        option = f"parallel={parallel}" if parallel else f"ratios={quoted(ratios)}"
        raise UserError(
            f"{option} balances the named sources of a corpus, not {type(corpus).__name__}: pass "
            "Corpus(CorpusConfig(sources={NAME: PATH, ...}))"
        )
    check_balance(corpus.config.weights, parallel=parallel, ratios=ratios)
    return Balanced.count(corpus, partial(count_pretokens, **counting), parallel=parallel, ratios=ratios)


def _counted(
    counts: PretokenCounts | Countable,
    start: Tokenizer | None,
    special_tokens: Sequence[str],
    progress: Progress | None,
    options: Counting,
) -> PretokenCounts:
    """The counts, of a text if it is one; rejects counts that do not fit `start` and options without effect."""
    if not isinstance(counts, PretokenCounts):
        usual = _usual_counting(start, special_tokens)
        counts = count_pretokens(counts, **usual | dict(options), progress=progress)
    elif options:
        if unknown := options.keys() - Counting.__annotations__.keys():
            raise TypeError(f"train_bpe() got an unexpected keyword argument {min(unknown)!r}")
        raise UserError(f"{next(iter(options))} is for counting a text, but these are counts; leave it out")
    if start is not None and start.pattern.regex != counts.pattern.regex:
        raise UserError(
            f"start has the pattern {start.pattern}, the counts have {counts.pattern}; count with the pattern of start"
        )
    return counts


def keeps_words_together(start: Tokenizer) -> bool:
    """Whether an imported tokenizer is a copy of one with superwords, in a format that has only the fence."""
    copied = start.fence is None and "imported" in start.provenance and start.pattern.regex != ""
    return copied and not start.separates_words and len(start.superword_ids()) > 0


def _merges_on_top(start: Tokenizer, vocab_size: int) -> int:
    """Number of merges to reach a larger vocabulary; rejects a tokenizer that phase 1 cannot continue from."""
    if not isinstance(start, Tokenizer):
        raise UserError(f"start is not a Tokenizer but {quoted(start)}; load it with Tokenizer.from_pretrained")
    if start.fence is not None:
        raise UserError("start has superwords, after which phase 1 cannot continue; cut it at its transition first")
    if keeps_words_together(start):
        raise UserError(
            f"start is a copy of a tokenizer with superwords: its pattern {start.pattern} does not cut between words; "
            "continue the original, or train more superwords (train_superbpe)"
        )
    if vocab_size < start.vocab_size:
        raise UserError(f"vocab_size={vocab_size} is below the {start.vocab_size} tokens of start; use cut instead")
    return vocab_size - start.vocab_size


def _merge(
    counts: PretokenCounts,
    segments: Segmentation,
    n_merges: int,
    rules: dict[str, Any],
    special_tokens: Sequence[str],
    progress: Progress | None,
    *,
    balanced: Balanced | None,
    base: Tokenizer | None,
) -> _native.MergeResult:
    """Train up to `n_merges` merges of segmented pretokens, or of balanced sources on top of a tokenizer."""
    tick = Throttle(progress, "merges", n_merges)
    tick.finish(0)  # indexing the pairs of 30 million pretokens takes a minute
    options = {
        "forbid": [],
        **rules,
        "max_token_bytes": longest_token(rules["max_token_bytes"]),
        "special_tokens": list(special_tokens),
        "progress": tick,
    }
    trained: _native.MergeResult
    if balanced is None:
        words = segments.words, segments.offsets, counts.counts
        trained = _native.train_bpe(*words, segments.tokens, n_merges, **options)
    else:
        trained = balanced.train(partial(segment, start=base), segments.tokens, n_merges, options)
    tick.finish(len(trained["left"]))
    return trained


class Segmentation(NamedTuple):
    """Tokens by rank, and all pretokens as ranks of tokens, concatenated with offsets."""

    tokens: list[bytes]
    words: npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]


def segment(counts: PretokenCounts, start: Tokenizer | None) -> Segmentation:
    """Segment pretokens into the tokens of `start`, or into bytes.

    Encoding a pretoken gives the state that training leaves it in, so the merge loop can continue from there.
    """
    if start is None:
        rank_of_byte = np.argsort(np.frombuffer(bytes(ALPHABET), np.uint8)).astype(np.uint8)
        return Segmentation([bytes([byte]) for byte in ALPHABET], rank_of_byte[counts.data], counts.offsets)
    uncut = Tokenizer(
        Definition(
            byte_ids=start.byte_ids,
            merge_ids=start.merge_ids,
            n_phase1_merges=len(start.merge_ids),
            pattern=patterns.resolve("none"),
            ignore_merges=start.ignore_merges,
            unmerged=start.unmerged,
        )
    )
    by_rank = start.ordinary_ids()
    rank_of_id = np.zeros(start.vocab_size, dtype=np.uint32)
    rank_of_id[by_rank] = np.arange(len(by_rank))
    ids, offsets = uncut.encode_batch(_native.Batch.from_buffers(counts.data, counts.offsets))
    return Segmentation([start.vocab[i] for i in by_rank], rank_of_id[ids], offsets)


def _forced_ranks(forced_tokens: Sequence[str]) -> npt.NDArray[np.uint32]:
    """The merges of forced tokens, uint32 [n, 2], as pairs of ranks."""
    rank_of = {bytes([byte]): rank for rank, byte in enumerate(ALPHABET)}
    ranks = []
    for left, right in forced_merges(forced_tokens):
        ranks.append((rank_of[left], rank_of[right]))
        rank_of[left + right] = len(rank_of)
    return np.array(ranks, np.uint32).reshape(-1, 2)


def _times_applied(
    forced: npt.NDArray[np.uint32], counts: PretokenCounts, segments: Segmentation
) -> npt.NDArray[np.uint64]:
    """Number of times each forced merge applies to the text: for its token, and for each token that contains it."""
    times = np.zeros(256 + len(forced), np.uint64)
    if len(forced):
        np.add.at(times, segments.words, np.repeat(counts.counts, np.diff(segments.offsets)))
    for rank in reversed(range(len(forced))):
        for part in forced[rank]:
            times[part] += times[256 + rank]
    return times[256:]


def merges_that_fit(vocab_size: int, special_tokens: Sequence[str]) -> int:
    """Number of merges in a vocabulary of this size; rejects a size below the bytes and special tokens."""
    check_special_tokens(special_tokens)
    least = 256 + len(special_tokens)
    if vocab_size < least:
        raise UserError(
            f"vocab_size={vocab_size} is below 256 bytes + {len(special_tokens)} special token(s); use at least {least}"
        )
    return vocab_size - least

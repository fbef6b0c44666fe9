"""The specification of phase 2 in plain Python: what `superbpe.training` must equal, to the byte.

Phase 2 trains over *pieces*: sequences of phase-1 tokens inside which superwords may form. This module says
how rules cut documents into pieces, and which merges are learned from them, recounting everything each time.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from tokenizer.reference import (
    Merge,
    Pair,
    Word,
    as_bytes,
    boundaries,
    byte_alphabet,
    byte_positions,
    cut_at_special,
    cut_into_units,
    encode,
    merge_by_rank,
    open_runs,
    ranks_of,
    split,
    train_words_naive,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class PieceRules(Protocol):
    """The part of `superbpe.rules.Rules` that decides where phase 2 may merge."""

    @property
    def unit(self) -> str:
        """What a document is cut into first: "document" (nothing) or "line"."""

    @property
    def fence(self) -> str | None:
        """A pattern whose matches, and what lies between them, no merge may leave; None for no fence."""

    @property
    def phase1_fence(self) -> str:
        """Whether the phase-1 pattern still bounds phase-1 merges: "kept" or "lifted"."""

    @property
    def truncate_quantile(self) -> float | None:
        """Spans longer than this share of all spans lose what is beyond; None keeps them whole."""

    @property
    def span_trigger(self) -> int | None:
        """Spans of more tokens than this are cut; None cuts none."""

    @property
    def span_cap(self) -> int | None:
        """Every how many tokens such a span is cut."""


class TokenRules(Protocol):
    """The part of `superbpe.rules.Rules` that decides which tokens phase 2 may make."""

    @property
    def max_words(self) -> int | None:
        """The most words in a token: non-empty parts between 0x20 bytes."""

    @property
    def max_bytes(self) -> int | None:
        """The most bytes in a token."""

    @property
    def forbid(self) -> tuple[str, ...]:
        """Strings that no token may contain."""

    @property
    def min_count(self) -> int:
        """The least count of a pair that is merged."""


def _lifted(text: str, phase1: Mapping[Pair, int], rules: PieceRules) -> list[Word]:
    """Phase-1 merges apply by rank to the bytes of each piece, across the seams of the old pretokens."""
    return [
        tuple(merge_by_rank(as_bytes(piece), phase1))
        for unit in cut_into_units(text, rules.unit)
        for piece in split(unit, rules.fence)
    ]


def _kept(text: str, merges: Sequence[Pair], pattern: str | None, rules: PieceRules) -> list[Word]:
    """Phase-1 merges stay inside pretokens of the whole text; boundaries of units and fence close seams."""
    cuts: list[int] = []
    start = 0
    for unit in cut_into_units(text, rules.unit):
        cuts += [start + position for position in byte_positions(unit, boundaries(unit, rules.fence))]
        start += len(unit.encode())
    return open_runs(encode(text, merges, pattern), cuts)


def cut_span(span: Word, trigger: int | None, cap: int | None) -> list[Word]:
    """A span of more than `trigger` tokens is cut every `cap` tokens; None for either leaves it whole."""
    if trigger is None or cap is None or len(span) <= trigger:
        return [span]
    return [span[start : start + cap] for start in range(0, len(span), cap)]


def length_quantile(spans: Mapping[Word, int], quantile: float) -> int:
    """The smallest length, in tokens, that at least a share `quantile` of the spans does not exceed."""
    wanted = math.ceil(sum(spans.values()) * quantile)
    seen = 0
    for span in sorted(spans, key=len):
        seen += spans[span]
        if seen >= wanted:
            return len(span)
    return 0


def training_pieces(
    documents: Iterable[str],
    phase1_merges: Sequence[Pair],
    pattern: str | None,
    rules: PieceRules,
    *,
    special_tokens: Sequence[str] = (),
) -> Counter[Word]:
    """The pieces that phase 2 trains on, as phase-1 tokens, with the number of times each occurs.

    Units and the fence cut documents into spans; spans that are too long are truncated, and then cut.

    Args:
        documents: the corpus.
        phase1_merges: the phase-1 merges that the transition keeps, by rank.
        pattern: the phase-1 pattern; it matters only to `phase1_fence="kept"`.
        rules: where phase 2 may merge.
        special_tokens: strings that cut the text before anything else and are not trained on.
    """
    ranks = ranks_of(phase1_merges)
    spans: Counter[Word] = Counter()
    for document in documents:
        for text in cut_at_special(document, special_tokens):
            if rules.phase1_fence == "lifted":
                spans.update(_lifted(text, ranks, rules))
            else:
                spans.update(_kept(text, phase1_merges, pattern, rules))
    longest = None
    if rules.truncate_quantile is not None:
        longest = length_quantile(spans, rules.truncate_quantile)
    pieces: Counter[Word] = Counter()
    for span, count in spans.items():
        for piece in cut_span(span[:longest], rules.span_trigger, rules.span_cap):
            pieces[piece] += count
    return pieces


def is_allowed(token: bytes, rules: TokenRules) -> bool:
    """Whether phase 2 may make this token."""
    words = sum(1 for word in token.split(b" ") if word)
    return (
        (rules.max_words is None or words <= rules.max_words)
        and (rules.max_bytes is None or len(token) <= rules.max_bytes)
        and not any(forbidden.encode() in token for forbidden in rules.forbid)
    )


def train(
    pieces: Mapping[Word, int],
    n_merges: int,
    rules: TokenRules,
    tie_break: str = "lowest-ids",
    existing_tokens: Iterable[bytes] = (),
    *,
    special_tokens: Sequence[str] = (),
) -> list[Merge]:
    """Learn phase-2 merges from `training_pieces`, recounting all of them for every merge.

    Args:
        pieces: sequences of phase-1 tokens, and how often each occurs.
        n_merges: how many merges to learn; fewer come back if no pair is left.
        rules: which tokens may be made. A refused pair is dropped for good.
        tie_break: see `tokenizer.reference.break_tie`.
        existing_tokens: what the phase-1 merges make, by rank (the bytes come before them by themselves).
        special_tokens: strings that no token may spell.
    """
    special = {token.encode() for token in special_tokens}
    return train_words_naive(
        pieces,
        n_merges,
        tokens=[*byte_alphabet(), *existing_tokens],
        tie_break=tie_break,
        min_count=rules.min_count,
        accept=lambda token: token not in special and is_allowed(token, rules),
    )

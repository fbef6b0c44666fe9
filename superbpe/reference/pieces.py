"""How rules cut documents into the pieces that phase 2 trains on."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import regex

from superbpe.rules import SCRIPT_ATOMS
from tokenizer.reference import (
    Pair,
    Word,
    as_bytes,
    boundaries,
    byte_positions,
    cut_at_special,
    cut_into_units,
    encode,
    merge_by_rank,
    open_runs,
    ranks_of,
    split,
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
    def atoms(self) -> str:
        """What phase 2 merges: any "tokens", or whole eligible "pretokens"."""

    @property
    def eligible(self) -> str:
        """A regex that is found in such a pretoken."""

    @property
    def script_atoms(self) -> bool:
        """Whether the phase-1 pattern also cuts characters of scripts without spaces apart."""

    @property
    def truncate_quantile(self) -> float | None:
        """Spans longer than this share of all spans lose what is beyond; None keeps them whole."""

    @property
    def span_trigger(self) -> int | None:
        """Spans of more tokens than this are cut; None cuts none."""

    @property
    def span_cap(self) -> int | None:
        """Every how many tokens such a span is cut."""


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
    if rules.atoms == "pretokens":
        cuts += closed_by_pretokens(text, merges, pattern, rules.eligible)
    return open_runs(encode(text, merges, pattern), cuts)


def is_eligible(pretoken: str, merges: Sequence[Pair], eligible: str) -> bool:
    """Whether phase 1 makes one token of a pretoken, and the regex is found in it."""
    return len(merge_by_rank(as_bytes(pretoken), ranks_of(merges))) == 1 and bool(regex.search(eligible, pretoken))


def closed_by_pretokens(text: str, merges: Sequence[Pair], pattern: str | None, eligible: str) -> list[int]:
    """The byte positions that phase 2 may not cross because of a pretoken that is not eligible: all within it."""
    closed: list[int] = []
    start = 0
    for pretoken in split(text, pattern):
        end = start + len(pretoken.encode())
        if not is_eligible(pretoken, merges, eligible):
            closed += range(start, end + 1)
        start = end
    return closed


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
    if rules.script_atoms:
        pattern = f"{pattern}\n{SCRIPT_ATOMS}" if pattern else SCRIPT_ATOMS
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

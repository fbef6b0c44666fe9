"""The definition of phase 2: the pieces of text that it trains on, and the merges that it learns from them.

    cut the documents into units, at the fence, and at pretokens that may not merge
    segment the pieces into phase-1 tokens
    truncate and cut long pieces
    train naive BPE, with limits on the new tokens

`superbpe.training` must give exactly these merges.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import regex

from tokenizer import patterns
from tokenizer import reference as bpe
from tokenizer.definition import longest_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from superbpe.rules import Rules


def training_pieces(
    documents: Iterable[str],
    phase1: Sequence[bpe.Pair],
    pattern: str | None,
    rules: Rules,
    *,
    special_tokens: Sequence[str] = (),
) -> Counter[bpe.Word]:
    """The pieces that phase 2 trains on, as phase-1 tokens, with their counts.

    Args:
        documents: the corpus.
        phase1: the phase-1 merges that the transition keeps, by rank.
        pattern: the phase-1 pattern; used only with `phase1_fence="kept"`.
        rules: what phase 2 may merge.
        special_tokens: strings that are cut out of the text first and are not trained on.
    """
    cut = _lifted if rules.phase1_fence == "lifted" else _kept
    spans: Counter[bpe.Word] = Counter()
    for document in documents:
        for text in bpe.cut_at_special(document, special_tokens):
            spans.update(cut(text, phase1, pattern, rules))
    longest = None if rules.truncate_quantile is None else length_quantile(spans, rules.truncate_quantile)
    pieces: Counter[bpe.Word] = Counter()
    for span, count in spans.items():
        for piece in cut_span(span[:longest], rules.span_trigger, rules.span_cap):
            pieces[piece] += count
    return pieces


def _fence(rules: Rules) -> str | None:
    return patterns.resolve(rules.fence).regex or None


def _lifted(text: str, phase1: Sequence[bpe.Pair], pattern: str | None, rules: Rules) -> list[bpe.Word]:
    """Only units and the fence cut: phase-1 merges apply across pretokens."""
    del pattern
    ranks = bpe.ranks_of(phase1)
    return [
        tuple(bpe.merge_by_rank(bpe.as_bytes(piece), ranks))
        for unit in bpe.cut_into_units(text, rules.unit)
        for piece in bpe.split(unit, _fence(rules))
    ]


def _kept(text: str, phase1: Sequence[bpe.Pair], pattern: str | None, rules: Rules) -> list[bpe.Word]:
    """Phase-1 merges stay inside pretokens of the whole text; ends of units and the fence close seams."""
    cuts: list[int] = []
    start = 0
    for unit in bpe.cut_into_units(text, rules.unit):
        cuts += [start + position for position in bpe.byte_positions(unit, bpe.boundaries(unit, _fence(rules)))]
        start += len(unit.encode())
    if rules.atoms == "pretokens":
        cuts += _closed_by_pretokens(text, phase1, pattern, rules.eligible)
    return bpe.open_runs(bpe.encode(text, phase1, pattern), cuts)


def _closed_by_pretokens(text: str, phase1: Sequence[bpe.Pair], pattern: str | None, eligible: str) -> list[int]:
    """All byte positions of pretokens that are several phase-1 tokens or do not match the regex."""
    closed: list[int] = []
    ranks = bpe.ranks_of(phase1)
    start = 0
    for pretoken in bpe.split(text, pattern):
        end = start + len(pretoken.encode())
        n_tokens = len(bpe.merge_by_rank(bpe.as_bytes(pretoken), ranks))
        if n_tokens > 1 or not regex.search(eligible, pretoken):
            closed += range(start, end + 1)
        start = end
    return closed


def cut_span(span: bpe.Word, trigger: int | None, cap: int) -> list[bpe.Word]:
    """Cut a span of more than `trigger` tokens every `cap` tokens; None does not cut."""
    if trigger is None or len(span) <= trigger:
        return [span]
    return [span[start : start + cap] for start in range(0, len(span), cap)]


def length_quantile(spans: Mapping[bpe.Word, int], quantile: float) -> int:
    """The smallest length in tokens that at least a fraction `quantile` of the spans does not exceed."""
    lengths = sorted(len(span) for span in Counter(spans).elements())
    return lengths[math.ceil(len(lengths) * quantile) - 1] if lengths else 0


def is_allowed(token: bytes, rules: Rules) -> bool:
    """Whether phase 2 may make this token, from any parts."""
    words = sum(1 for word in token.split(b" ") if word)
    return (
        (rules.max_words is None or words <= rules.max_words)
        and len(token) <= longest_token(rules.max_bytes)
        and not bpe.is_forbidden(token, rules.forbid)
    )


def pairs_of(piece: bpe.Word, counting: str) -> list[bpe.Pair]:
    """The pairs that a piece counts for.

    >>> pairs_of((b"a", b"a", b"a", b"b"), "overlapping")
    [(b'a', b'a'), (b'a', b'a'), (b'a', b'b')]
    >>> pairs_of((b"a", b"a", b"a", b"b"), "non-overlapping")
    [(b'a', b'a'), (b'a', b'b')]
    """
    pairs: list[bpe.Pair] = []
    for _, group in groupby(pairwise(piece)):
        row = list(group)
        # Only a pair of equal tokens can follow itself. Every second pair of such a run overlaps and is skipped.
        pairs += row[::2] if counting == "non-overlapping" else row
    return pairs


def train(
    pieces: Mapping[bpe.Word, int],
    n_merges: int,
    rules: Rules,
    tie_break: str = "lowest-ids",
    existing_tokens: Iterable[bytes] = (),
    *,
    special_tokens: Sequence[str] = (),
) -> list[bpe.Merge]:
    """Learn phase-2 merges from `training_pieces`: naive BPE with the rules' counts and limits.

    Args:
        pieces: sequences of phase-1 tokens, with their counts.
        n_merges: number of merges to learn; fewer are returned if no pair is left.
        rules: which tokens may be made. A rejected pair is dropped for good.
        tie_break: see `tokenizer.reference.break_tie`; ignored if the rules set it.
        existing_tokens: tokens of the phase-1 merges, by rank, without the bytes.
        special_tokens: strings that no token may spell.
    """
    tokens = list(dict.fromkeys([*bpe.byte_alphabet(), *existing_tokens]))
    width = dict.fromkeys(tokens, 1)  # in phase-1 tokens
    special = {token.encode() for token in special_tokens}

    def accept(left: bytes, right: bytes, _: int) -> bool:
        token = left + right
        width[token] = width[left] + width[right]
        return (
            token not in special
            and is_allowed(token, rules)
            and (rules.max_tokens is None or width[token] <= rules.max_tokens)
        )

    def count(words: Mapping[bpe.Word, int]) -> Counter[bpe.Pair]:
        counts: Counter[bpe.Pair] = Counter()
        for word, times in words.items():
            for pair in pairs_of(word, rules.counting):
                counts[pair] += times
        return counts

    return bpe.train_words(
        pieces,
        n_merges,
        tokens=tokens,
        tie_break=rules.tie_break or tie_break,
        min_count=rules.min_count,
        accept=accept,
        count=count,
    )

"""Which merges phase 2 learns from its pieces, recounting everything for each."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Protocol

from tokenizer.reference import Merge, Pair, Word, break_tie, byte_alphabet, replace_pair
from tokenizer.spelling import longest_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class TokenRules(Protocol):
    """The part of `superbpe.rules.Rules` that decides which tokens phase 2 may make."""

    @property
    def max_words(self) -> int | None:
        """The most words in a token: non-empty parts between 0x20 bytes."""

    @property
    def max_bytes(self) -> int | None:
        """The most bytes in a token; see `tokenizer.spelling.longest_token`."""

    @property
    def max_tokens(self) -> int | None:
        """The most phase-1 tokens in a token."""

    @property
    def forbid(self) -> tuple[str, ...]:
        """Strings that no token may contain."""

    @property
    def min_count(self) -> int:
        """The least count of a pair that is merged."""

    @property
    def counting(self) -> str:
        """Whether pairs of one token and itself count "overlapping" or "non-overlapping"."""

    @property
    def tie_break(self) -> str | None:
        """Which of the most frequent pairs is merged; None for what training is told."""


def is_allowed(token: bytes, rules: TokenRules) -> bool:
    """Whether phase 2 may make this token, whatever it is made of."""
    words = sum(1 for word in token.split(b" ") if word)
    return (
        (rules.max_words is None or words <= rules.max_words)
        and len(token) <= longest_token(rules.max_bytes)
        and not any(forbidden.encode() in token for forbidden in rules.forbid)
    )


def pairs_of(piece: Word, counting: str) -> list[Pair]:
    """The pairs that a piece counts for.

    >>> pairs_of((b"a", b"a", b"a", b"b"), "overlapping")
    [(b'a', b'a'), (b'a', b'a'), (b'a', b'b')]
    >>> pairs_of((b"a", b"a", b"a", b"b"), "non-overlapping")
    [(b'a', b'a'), (b'a', b'b')]
    """
    pairs: list[Pair] = []
    for _, group in groupby(pairwise(piece), key=lambda pair: pair):
        row = list(group)
        # Only a pair of one token and itself can follow itself. Every second one of a row is left out.
        pairs += row[::2] if counting == "non-overlapping" else row
    return pairs


def train(
    pieces: Mapping[Word, int],
    n_merges: int,
    rules: TokenRules,
    tie_break: str = "lowest-ids",
    existing_tokens: Iterable[bytes] = (),
    *,
    special_tokens: Sequence[str] = (),
    veto: Callable[[bytes, bytes, int], bool] | None = None,
) -> list[Merge]:
    """Learn phase-2 merges from `training_pieces`, recounting all of them for every merge.

    Args:
        pieces: sequences of phase-1 tokens, and how often each occurs.
        n_merges: how many merges to learn; fewer come back if no pair is left.
        rules: which tokens may be made. A refused pair is dropped for good, as is one that spells a token there is.
        tie_break: see `tokenizer.reference.break_tie`; the rules may have their own.
        existing_tokens: what the phase-1 merges make, by rank (the bytes come before them by themselves).
        special_tokens: strings that no token may spell.
        veto: refuses what nothing else refuses; told the pair's parts and its count.
    """
    order = {token: place for place, token in enumerate(dict.fromkeys([*byte_alphabet(), *existing_tokens]))}
    phase1_tokens = dict.fromkeys(order, 1)
    special = {token.encode() for token in special_tokens}
    dropped: set[Pair] = set()
    merges: list[Merge] = []
    while len(merges) < n_merges:
        counts: Counter[Pair] = Counter()
        for piece, times in pieces.items():
            for pair in pairs_of(piece, rules.counting):
                counts[pair] += times
        for pair in dropped:
            del counts[pair]
        most = max(counts.values(), default=0)
        if most < max(rules.min_count, 1):
            break
        left, right = break_tie(
            [pair for pair, count in counts.items() if count == most], order, rules.tie_break or tie_break
        )
        token = left + right
        width = phase1_tokens[left] + phase1_tokens[right]
        if (
            token in order
            or token in special
            or not is_allowed(token, rules)
            or (rules.max_tokens is not None and width > rules.max_tokens)
            or (veto is not None and veto(left, right, most))
        ):
            dropped.add((left, right))
            continue
        order[token] = len(order)
        phase1_tokens[token] = width
        merges.append((left, right, most))
        rewritten: Counter[Word] = Counter()
        for piece, times in pieces.items():
            rewritten[replace_pair(piece, (left, right))] += times
        pieces = rewritten
    return merges

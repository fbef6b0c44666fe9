"""BPE dropout (Provilkov, Emelianenko and Voita 2020): encoding with merges dropped at random."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizer.reference.encoding import as_bytes, ranks_of
from tokenizer.reference.text import boundaries, split
from tokenizer.reference.two_pass import byte_positions, open_runs

if TYPE_CHECKING:
    from tokenizer.reference.naive import Pair, Word

Coin = Callable[[], bool]
"""Decides whether a merge is dropped in a step."""


def merge_with_dropout(tokens: Iterable[bytes], ranks: Mapping[Pair, int], drops: Coin) -> list[bytes]:
    """Algorithm 1 of the paper: each step drops some of the possible merges and applies the first of the rest.

    The first has the lowest rank, and is the leftmost among equal ranks. A step that drops all merges is the last.
    No coins are drawn for merges after the first one kept, since they would have no effect.
    """
    merged = list(tokens)
    while True:
        possible = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(merged)) if pair in ranks)
        place = next((place for _, place in possible if not drops()), None)
        if place is None:
            return merged
        merged[place : place + 2] = [merged[place] + merged[place + 1]]


def distribution(tokens: Iterable[bytes], ranks: Mapping[Pair, int], p: float) -> dict[Word, float]:
    """Probability of each outcome of `merge_with_dropout`, by enumeration; for a few tokens."""
    word = tuple(tokens)
    possible = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(word)) if pair in ranks)
    outcomes = {word: p ** len(possible)}
    for dropped, (_, place) in enumerate(possible):
        merged = (*word[:place], word[place] + word[place + 1], *word[place + 2 :])
        for outcome, chance in distribution(merged, ranks, p).items():
            outcomes[outcome] = outcomes.get(outcome, 0.0) + p**dropped * (1 - p) * chance
    return outcomes


def coins(p: float, seed: int, document: int) -> Coin:
    """Random coins of a document: SplitMix64 (Steele, Lea and Flood 2014)."""
    state = document

    def following() -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) % (1 << 64)
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % (1 << 64)
        return mixed ^ (mixed >> 31)

    state = following() ^ seed
    state = following()
    return lambda: (following() >> 11) < int(p * (1 << 53))


def _chunks(symbols: Sequence[bytes], joins: Callable[[bytes, bytes], bool]) -> Iterator[Sequence[bytes]]:
    """Split the symbols between neighbours that cannot join."""
    start = 0
    for place in range(1, len(symbols) + 1):
        if place == len(symbols) or not joins(symbols[place - 1], symbols[place]):
            yield symbols[start:place]
            start = place


def _leaves(merges: Sequence[Pair], n_phase1: int) -> dict[bytes, Word]:
    """The phase-1 tokens that each token consists of."""
    leaves: dict[bytes, Word] = {}
    for rank, (left, right) in enumerate(merges):
        parts = (*leaves.get(left, (left,)), *leaves.get(right, (right,)))
        leaves[left + right] = (left + right,) if rank < n_phase1 else parts
    return leaves


def encode_with_dropout(
    text: str,
    merges: Sequence[Pair],
    n_phase1: int,
    drops: Coin,
    *,
    pattern: str | None,
    fence: str | None = None,
    two_pass: bool = False,
) -> list[bytes]:
    """Encode with dropout; steps apply to each stretch of text that merges can join.

    Plain BPE: each pretoken. Superwords in one pass: after the fence cuts, each run of bytes that phase-1 merges can
    join, then each run of phase-1 tokens that phase-2 merges can join. Two passes: each pretoken, then each run of
    phase-1 tokens between closed seams, cut where no phase-2 merge can join.

    Args:
        text: ordinary text.
        merges: merges by rank; each token has one merge, which follows those of its parts.
        n_phase1: number of phase-1 merges.
        drops: the coin.
        pattern: the phase-1 pattern; for a one-pass tokenizer with superwords, the fence.
        fence: with two passes, the pattern that cuts phase 2.
        two_pass: whether to encode in two passes.
    """
    phase1, phase2 = merges[:n_phase1], merges[n_phase1:]
    ranks1, ranks2 = ranks_of(phase1), ranks_of(phase2)
    bytes_joined = {(left[-1:], right[:1]) for left, right in phase1}
    leaves = _leaves(merges, n_phase1)
    seams = {(leaves.get(left, (left,))[-1], leaves.get(right, (right,))[0]) for left, right in phase2}

    def bytes_of(piece: str) -> list[bytes]:
        def joins(left: bytes, right: bytes) -> bool:
            return two_pass or not phase2 or (left, right) in bytes_joined

        stretches = _chunks(as_bytes(piece), joins)
        return [token for stretch in stretches for token in merge_with_dropout(stretch, ranks1, drops)]

    def superwords_of(tokens: Sequence[bytes]) -> list[bytes]:
        stretches = _chunks(tokens, lambda left, right: (left, right) in seams)
        return [token for stretch in stretches for token in merge_with_dropout(stretch, ranks2, drops)]

    if two_pass:
        tokens = [token for piece in split(text, pattern) for token in bytes_of(piece)]
        runs = open_runs(tokens, byte_positions(text, boundaries(text, fence)))
        return [token for run in runs for token in superwords_of(run)]
    return [token for piece in split(text, pattern) for token in superwords_of(bytes_of(piece))]

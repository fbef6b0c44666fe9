"""Encoding: the rungs from replaying the list of merges to the Rust core, and one-pass encoding of a text."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizer.reference import native
from tokenizer.reference.pairs import replace_pair
from tokenizer.reference.text import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenizer.reference.pairs import Pair

_UNMERGEABLE = float("inf")


def ranks_of(merges: Iterable[Pair]) -> dict[Pair, int]:
    """Each pair's rank; of a pair listed twice the last place counts, as in HF."""
    return {pair: rank for rank, pair in enumerate(merges)}


def as_bytes(text: str) -> list[bytes]:
    """The UTF-8 bytes of a text, each a token."""
    return [bytes([byte]) for byte in text.encode()]


def replay(tokens: Iterable[bytes], merges: Iterable[Pair]) -> list[bytes]:
    """Apply each merge of the list in turn, everywhere, from left to right.

    The encoder of *The BPE Algorithm: training and encoding, fully worked*: O(L) for every merge there is. It
    looks at each merge once, so it gives what `merge_by_rank` gives only if no merge can make an earlier one
    possible: if each token is made by one merge alone, and that one comes before all merges that use it. Lists
    that were trained from bytes are such; imported ones need not be.
    """
    word = tuple(tokens)
    for merge in merges:
        if len(word) < 2:
            break
        word = replace_pair(word, merge)
    return list(word)


def merge_by_rank(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """Merge the neighbours with the lowest rank, the leftmost of several, one pair at a time to the end.

    The encoder of the CS336 trainer, and what encoding *is* here: the earliest learned of the merges that are
    possible, not the leftmost. Ranks of pairs that a merge left alone are not looked up again.
    """
    merged = list(tokens)
    pair_ranks = [ranks.get(pair, _UNMERGEABLE) for pair in pairwise(merged)]
    while pair_ranks and (lowest := min(pair_ranks)) != _UNMERGEABLE:
        place = pair_ranks.index(lowest)
        merged[place : place + 2] = [merged[place] + merged[place + 1]]
        del pair_ranks[place]
        for seam in (place - 1, place):
            if 0 <= seam < len(pair_ranks):
                pair_ranks[seam] = ranks.get((merged[seam], merged[seam + 1]), _UNMERGEABLE)
    return merged


def merge_linked(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """The same from a linked list and a heap of (rank, position), whose entries may be out of date: O(L log L).

    The encoder of *Production BPE*, and without its heap that of the source experiment. The list is two arrays
    of neighbours; a token that was swallowed is empty.
    """
    nodes = list(tokens)
    end = len(nodes)
    before, after = list(range(-1, end - 1)), list(range(1, end + 1))
    heap = [(ranks[pair], place) for place, pair in enumerate(pairwise(nodes)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, place = heapq.heappop(heap)
        following = after[place]
        if not nodes[place] or following == end or ranks.get((nodes[place], nodes[following])) != rank:
            continue  # a neighbour has changed since
        nodes[place] += nodes[following]
        nodes[following] = b""
        after[place] = after[following]
        if after[place] < end:
            before[after[place]] = place
        for seam in (before[place], place):
            if seam >= 0 and after[seam] < end:
                new_rank = ranks.get((nodes[seam], nodes[after[seam]]))
                if new_rank is not None:
                    heapq.heappush(heap, (new_rank, seam))
    return [token for token in nodes if token]


Encoder = Callable[[str], list[bytes]]
"""One piece of text to its tokens."""


def _replaying(merges: Iterable[Pair]) -> Encoder:
    ranks = ranks_of(merges)
    in_order = sorted(ranks, key=ranks.__getitem__)
    return lambda piece: replay(as_bytes(piece), in_order)


def _scanning(merges: Iterable[Pair]) -> Encoder:
    ranks = ranks_of(merges)
    return lambda piece: merge_by_rank(as_bytes(piece), ranks)


def _linked(merges: Iterable[Pair]) -> Encoder:
    ranks = ranks_of(merges)
    return lambda piece: merge_linked(as_bytes(piece), ranks)


def _remembering(merges: Iterable[Pair], most: int | None) -> Encoder:
    """The linked list behind a memory of pieces: of all, or of the `most` that were used last.

    A dictionary of chunks is what *From Hours to Seconds* encodes with, an LRU cache the source experiment.
    """
    remembered = functools.lru_cache(maxsize=most)(_linked(merges))
    return lambda piece: list(remembered(piece))  # a copy: a caller may change what it gets


ENCODERS: dict[str, Callable[[Iterable[Pair]], Encoder]] = {
    "replay": _replaying,
    "minimum-scan": _scanning,
    "linked-heap": _linked,
    "cached": functools.partial(_remembering, most=None),
    "lru": functools.partial(_remembering, most=1 << 16),
    "native": native.encoder,
}
"""Every encoder by its name: merges by rank to a function that encodes one piece of text."""


def encode(text: str, merges: Iterable[Pair], pattern: str | None, *, encoder: str = "minimum-scan") -> list[bytes]:
    """One-pass encoding of ordinary text: the pattern cuts it, then merges apply by rank inside the pieces.

    Args:
        text: text whose special strings, if any, are ordinary text.
        merges: by rank; all of them, of both phases.
        pattern: the phase-1 pattern of a plain tokenizer, the fence of one with superwords.
        encoder: a name in `ENCODERS`.
    """
    encode_piece = ENCODERS[encoder](merges)
    return [token for piece in split(text, pattern) for token in encode_piece(piece)]

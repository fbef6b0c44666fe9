"""Encoders of the source documents, from replaying the list of merges to the Rust core."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.benchmarks.ladder import native
from tokenizer.reference import as_bytes, merge_by_rank, ranks_of, replace_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenizer.reference import Pair


def replay(tokens: Iterable[bytes], merges: Iterable[Pair]) -> list[bytes]:
    """Apply each merge of the list in turn, everywhere, from left to right.

    The encoder of *The BPE Algorithm: training and encoding, fully worked*: O(L) for every merge there is. It
    looks at each merge once, so it gives what `merge_by_rank` gives only if no merge can make an earlier one
    possible: if each token is made by only one merge, which comes before all merges that use it. That holds for
    lists that were trained from bytes; imported ones may differ.
    """
    word = tuple(tokens)
    for merge in merges:
        if len(word) < 2:
            break
        word = replace_pair(word, merge)
    return list(word)


def merge_linked(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """`merge_by_rank` with a linked list and a heap of (rank, position), whose entries may be out of date: O(L log L).

    The encoder of *Production BPE*, and without its heap that of the source experiment. The list is two arrays
    of neighbours; a token that was merged into another is empty.
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


def _cached(merges: Iterable[Pair], most: int | None) -> Encoder:
    """The linked list with a cache of pieces: of all, or of the `most` that were used last.

    A dictionary of chunks is what *From Hours to Seconds* encodes with, an LRU cache the source experiment.
    """
    cached = functools.lru_cache(maxsize=most)(_linked(merges))
    return lambda piece: list(cached(piece))  # a copy: a caller may change what it gets


ENCODERS: dict[str, Callable[[Iterable[Pair]], Encoder]] = {
    "replay": _replaying,
    "minimum-scan": _scanning,
    "linked-heap": _linked,
    "cached": functools.partial(_cached, most=None),
    "lru": functools.partial(_cached, most=1 << 16),
    "native": native.encoder,
}
"""Every encoder by its name: merges by rank to a function that encodes one piece of text."""

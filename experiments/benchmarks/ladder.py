"""Each step from the textbook's BPE trainer to the Rust core: `python -m experiments.benchmarks.ladder FILES`.

A rung is a way to store words and a way to find the most frequent pair, in the words of *From Hours to Seconds* and
*Production BPE*. All rungs but the approximate one learn the merges of `tokenizer.reference`. The table shows seconds
until a number of merges; a rung stops after `--limit` seconds. The exit code is 1 if exact rungs give different merges.

>>> TRAINERS["lazy-heap"]({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
[(b'e', b'r', 8), (b'w', b'er', 8)]
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, islice, pairwise, repeat, takewhile
from multiprocessing.connection import wait
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
from sortedcontainers import SortedDict

from experiments.benchmarks import harness
from experiments.cli.arguments import whole
from tokenizer import _native, count_pretokens
from tokenizer.definition import ALPHABET, longest_token
from tokenizer.reference import Accept, Merge, Pair, Word, as_words, break_tie, byte_alphabet, replace_pair, train_naive

Weighted = Iterable[tuple[Iterable[bytes], int]]
"""Words with their weights; a word may be repeated."""
Changes = dict[Pair, int]
"""Changes of the counts of pairs by a merge; most are negative."""

NAIVE_BYTES = 2_000_000
"""Text for the naive rung in the table."""


# How words are stored, and what a merge does to them.


class RecountedWords:
    """`vanilla`: each merge rewrites every word, and all pairs are counted again."""

    def __init__(self, words: Weighted) -> None:
        self.words: list[tuple[Any, int]] = [(tuple(word), weight) for word, weight in words]
        self._counts = self.pair_counts()

    def pair_counts(self) -> Counter[Pair]:
        """Count all pairs."""
        counts: Counter[Pair] = Counter()
        for word, weight in self.words:
            for pair in pairwise(word):
                counts[pair] += weight
        return counts

    def merge(self, pair: Pair) -> Changes:
        """Merge the pair everywhere; return the change of each pair's count."""
        self.words = [(replace_pair(word, pair), weight) for word, weight in self.words]
        before, self._counts = self._counts, self.pair_counts()
        return {changed: self._counts[changed] - before[changed] for changed in before.keys() | self._counts.keys()}

    def close(self) -> None:
        """End worker processes, if there are any."""


def each_piece(words: Weighted) -> RecountedWords:
    """Every piece of the text by itself, as in the textbook."""
    return RecountedWords((word, 1) for word, count in words for word in repeat(word, count))


def merge_in_place(word: list[bytes], pair: Pair, weight: int, changes: Changes) -> None:
    """Merge the pair in a word from left to right, and update the counts of the pairs at each seam.

    Where X A B Y becomes X AB Y, the pairs (X, A), (A, B) and (B, Y) lose the word's weight, and (X, AB) and (AB, Y)
    gain it. X is the last token written, so that adjacent occurrences see each other's result.
    """
    left, right = pair
    token = left + right
    write = read = 0
    last = len(word) - 1
    while read <= last:
        if word[read] == left and read < last and word[read + 1] == right:
            changes[pair] -= weight
            if write:
                changes[word[write - 1], left] -= weight
                changes[word[write - 1], token] += weight
            if read + 2 <= last:
                changes[right, word[read + 2]] -= weight
                changes[token, word[read + 2]] += weight
            word[write] = token
            read += 2
        else:
            word[write] = word[read]
            read += 1
        write += 1
    del word[write:]


class SeamWords(RecountedWords):
    """`incremental counting`: each merge visits every word, but counts change only at the seams."""

    def __init__(self, words: Weighted) -> None:
        self.words = [(list(word), weight) for word, weight in words]

    def merge(self, pair: Pair) -> Changes:
        """See `RecountedWords`."""
        changes: Changes = defaultdict(int)
        for word, weight in self.words:
            if pair[0] in word:
                merge_in_place(word, pair, weight, changes)
        return changes


class IndexedWords(SeamWords):
    """`track pair locations`: an index from pairs to the words that contain them, or did so before a merge."""

    def __init__(self, words: Weighted) -> None:
        super().__init__(words)
        self._places: dict[Pair, set[int]] = defaultdict(set)
        for index, (word, _) in enumerate(self.words):
            for pair in pairwise(word):
                self._places[pair].add(index)

    def merge(self, pair: Pair) -> Changes:
        """See `RecountedWords`."""
        changes: Changes = defaultdict(int)
        for index in self._places.pop(pair, ()):
            word, weight = self.words[index]
            merge_in_place(word, pair, weight, changes)
            for present in pairwise(word):
                self._places[present].add(index)
        return changes


_words = IndexedWords(())
"""The words of a worker process."""


def _load(words: Weighted) -> None:
    global _words
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process reports Ctrl-C
    if parent := multiprocessing.parent_process():  # the workers of a killed process end too
        threading.Thread(target=lambda: os._exit(len(wait([parent.sentinel]))), daemon=True).start()
    _words = IndexedWords(words)


def _ask(request: Callable[[IndexedWords], Any]) -> Any:
    return request(_words)


class ParallelWords(RecountedWords):
    """The adaptive parallel trainer: words in worker processes, until merges have become too cheap for them.

    Each merge costs a message to every worker and back, however little there is to do, and later merges change few
    words. Once the mean time of the last `window` merges is below `serial_below` seconds (a few times the duration of
    an exchange of messages), the words return to this process. The merges are the same in any case, because counts are
    sums. Processes are spawned, so a script needs `if __name__ == "__main__":`.
    """

    n_workers, window, serial_below = 2, 32, 0.001

    def __init__(self, words: Weighted) -> None:
        self._recent: deque[float] = deque(maxlen=self.window)
        self.local: IndexedWords | None = None  # the words, once they are in this process
        words, context = list(words), multiprocessing.get_context("spawn")
        parts = [words[start :: self.n_workers] for start in range(self.n_workers)]
        # A pool for each part, because its process keeps the words.
        self._pools = [ProcessPoolExecutor(1, context, _load, (part,)) for part in parts]

    def _ask(self, request: Callable[[IndexedWords], Any]) -> list[Any]:
        return [answer.result() for answer in [pool.submit(_ask, request) for pool in self._pools]]

    def pair_counts(self) -> Counter[Pair]:
        """See `RecountedWords`."""
        return _sum(self._ask(methodcaller("pair_counts")))

    def merge(self, pair: Pair) -> Changes:
        """See `RecountedWords`."""
        if self.local is not None:
            return self.local.merge(pair)
        started = time.perf_counter()
        changes = _sum(self._ask(methodcaller("merge", pair)))
        self._recent.append(time.perf_counter() - started)
        if len(self._recent) == self._recent.maxlen and sum(self._recent) < self.serial_below * len(self._recent):
            self.local = IndexedWords(chain.from_iterable(self._ask(attrgetter("words"))))
            self.close()
        return changes

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()


def _sum(parts: Iterable[Mapping[Pair, int]]) -> Counter[Pair]:
    total = Counter[Pair]()
    for part in parts:
        total.update(part)
    return total


# How the most frequent pair is found.


class ScannedPairs:
    """Counts of pairs that are kept up to date; the most frequent pair is found by comparing all of them.

    Attributes:
        order: Position of each token: the initial tokens, then merges by rank. It grows during training.
    """

    def __init__(self, counts: Mapping[Pair, int], tokens: Iterable[bytes], tie_break: str) -> None:
        self.order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
        self._counts: dict[Pair, int] = {}
        self._tie_break = tie_break
        self._dropped: set[Pair] = set()
        self.change(counts)

    def best(self) -> tuple[int, Pair | None]:
        """Return the highest count and the pair to merge; 0 and None if no pair is left."""
        most = max(self._counts.values(), default=0)
        return self._first(most, (pair for pair, count in self._counts.items() if count == most))

    def _first(self, count: int, tied: Iterable[Pair]) -> tuple[int, Pair | None]:
        return (count, break_tie(tied, self.order, self._tie_break)) if count else (0, None)

    def change(self, changes: Mapping[Pair, int]) -> None:
        """Apply changes of counts. A pair with count 0 is removed: it would be a false maximum."""
        for pair, delta in changes.items():
            if delta and pair not in self._dropped:
                old = self._counts.get(pair, 0)
                new = old + delta
                if new < 0:
                    raise AssertionError(f"the count of {pair} would be {new}: the counts do not match the corpus")
                if new:
                    self._counts[pair] = new
                else:
                    del self._counts[pair]
                self._moved(pair, old, new)

    def drop(self, pair: Pair) -> None:
        """Remove a pair for good: it is never merged, whatever its count."""
        self._dropped.add(pair)
        self._moved(pair, self._counts.pop(pair), 0)

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        """Called after every change of a count; 0 stands for an absent pair."""


class SortedPairs(ScannedPairs):
    """`fast max`: a sorted dictionary from count to pairs, whose last entry has the most frequent ones."""

    def __init__(self, *arguments: Any) -> None:
        self._pairs: SortedDict = SortedDict()
        super().__init__(*arguments)

    def best(self) -> tuple[int, Pair | None]:
        """See `ScannedPairs`."""
        return self._first(*self._pairs.peekitem(-1)) if self._pairs else (0, None)

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if old:
            self._pairs[old].remove(pair)
            if not self._pairs[old]:  # an empty set would be a false maximum
                del self._pairs[old]
        if new:
            self._pairs.setdefault(new, set()).add(pair)


class HeapPairs(ScannedPairs):
    """The max-heap with lazy deletion of *Production BPE*.

    An entry is pushed only when a count rises. A stale entry at the top is pushed back with the current count.
    """

    def __init__(self, *arguments: Any) -> None:
        self._heap: list[tuple[int, Any, Pair]] = []
        super().__init__(*arguments)

    def _key(self, pair: Pair) -> Any:
        """A sort key with the order of the tie-break, smallest first; the key of a pair never changes."""
        if self._tie_break == "lowest-ids":
            return self.order[pair[0]], self.order[pair[1]]
        if self._tie_break == "lexicographic-greatest":  # a longer string comes before its prefixes
            return [[*(-byte for byte in token), 1] for token in pair]
        return pair

    def best(self) -> tuple[int, Pair | None]:
        """See `ScannedPairs`."""
        while self._heap:
            count, key, pair = self._heap[0]
            now = self._counts.get(pair, 0)
            if now == -count:
                return now, pair
            if now:
                heapq.heapreplace(self._heap, (-now, key, pair))
            else:
                heapq.heappop(self._heap)
        return 0, None

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if new > old:
            heapq.heappush(self._heap, (-new, self._key(pair), pair))


class CachedTopPairs(ScannedPairs):
    """Approximate: compares only the top tenth of an earlier ranking and the pairs that changed since.

    The cached selection of the source experiment. The most frequent pair may not be among them. All pairs are ranked
    again every `refresh` merges, and when no candidate is left.
    """

    refresh = 1000

    def __init__(self, *arguments: Any) -> None:
        self._age = self.refresh
        self._top: list[Pair] = []
        self._changed: set[Pair] = set()
        super().__init__(*arguments)

    def best(self) -> tuple[int, Pair | None]:
        """Return the first pair of the ranking; None only if no pair is left at all."""
        counts = self._counts
        candidates = [pair for pair in self._top if pair not in self._changed and pair in counts]
        self._age += 1
        if self._age > self.refresh or not (candidates or self._changed):
            self._age = 1
            candidates = list(counts)
        else:
            candidates += self._changed  # nearly sorted: the previous order, then the changed pairs
        candidates.sort(key=counts.__getitem__, reverse=True)
        self._changed.clear()
        if not candidates:
            return 0, None
        self._top = candidates[: max(1, len(counts) // 10)]
        most = counts[candidates[0]]
        return self._first(most, takewhile(lambda pair: counts[pair] == most, candidates))

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if new:
            self._changed.add(pair)
        else:
            self._changed.discard(pair)


RUNGS: dict[str, tuple[Callable[[Weighted], RecountedWords], type[ScannedPairs]]] = {
    "naive": (each_piece, ScannedPairs),
    "deduplicated": (RecountedWords, ScannedPairs),
    "incremental": (SeamWords, ScannedPairs),
    "indexed": (IndexedWords, ScannedPairs),
    "fast-max": (IndexedWords, SortedPairs),
    "lazy-heap": (IndexedWords, HeapPairs),
    "parallel": (ParallelWords, SortedPairs),
    "approximate": (IndexedWords, CachedTopPairs),
}
"""The rungs in Python, from the slowest: how each stores the words, and how it finds the best pair."""


def learn(
    words: RecountedWords, pairs: ScannedPairs, *, min_count: int = 1, accept: Accept = lambda *_: True
) -> Iterator[Merge]:
    """Yield merges, each after it was applied, until no pair is left.

    Args:
        words: The corpus.
        pairs: The counts of its pairs; new tokens are added to its order.
        min_count: Pairs that occur less often are not merged.
        accept: Decides about each pair. A rejected pair is dropped for good, as is one that spells an existing token.
    """
    while True:
        count, pair = pairs.best()
        if pair is None or count < min_count:
            return
        token = pair[0] + pair[1]
        if token in pairs.order or not accept(*pair, count):
            pairs.drop(pair)
            continue
        pairs.order[token] = len(pairs.order)
        pairs.change(words.merge(pair))
        yield (*pair, count)


def train_words(
    rung: str, words: Mapping[Word, int], n_merges: int, *, tokens: Iterable[bytes], tie_break: str, **options: Any
) -> list[Merge]:
    """Learn the merges of `tokenizer.reference.train_words`, with the same options, by a rung of `RUNGS`."""
    store, select = RUNGS[rung]
    with closing(store(words.items())) as stored:
        return list(islice(learn(stored, select(stored.pair_counts(), tokens, tie_break), **options), n_merges))


def train_native(
    counts: Mapping[bytes, int], n: int, *, min_count: int = 1, max_token_bytes: int | None = None, **options: Any
) -> list[Merge]:
    """The last rung: the Rust core, with the arguments of `tokenizer.reference.train_naive`."""
    pretokens = sorted(counts)
    rank_of_byte = np.argsort(np.frombuffer(bytes(ALPHABET), np.uint8)).astype(np.uint32)
    trained = _native.train_bpe(
        rank_of_byte[np.frombuffer(b"".join(pretokens), np.uint8)],
        np.cumsum([0, *map(len, pretokens)], dtype=np.int64),
        np.array([counts[pretoken] for pretoken in pretokens], np.uint64),
        [bytes([byte]) for byte in ALPHABET],
        n,
        min_count=max(min_count, 1),
        max_token_bytes=longest_token(max_token_bytes),
        **{"tie_break": "lowest-ids", "special_tokens": [], "progress": None} | options,
    )
    tokens = byte_alphabet()
    merges: list[Merge] = []
    for left, right, count in zip(*(trained[name].tolist() for name in ("left", "right", "count")), strict=True):
        merges.append((tokens[left], tokens[right], count))
        tokens.append(tokens[left] + tokens[right])
    return merges


TRAINERS: dict[str, Callable[..., list[Merge]]] = {
    **{rung: partial(train_naive, train=partial(train_words, rung)) for rung in RUNGS},
    "native": train_native,
}
"""Every trainer by name, from the slowest to the Rust core, with the arguments of `tokenizer.reference.train_naive`."""
EXACT = tuple(name for name in TRAINERS if name != "approximate")
"""The trainers that learn the same merges."""


# The table.


def measure(rung: str, counts: dict[bytes, int], n_merges: int, limit: float) -> tuple[list[float], list[Merge]]:
    """Train with a rung; return seconds at the end of each merge, and the merges."""
    started, at, merges = time.perf_counter(), list[float](), list[Merge]()
    if rung == "native":
        merges = train_native(counts, n_merges)
        return [time.perf_counter() - started] * len(merges), merges
    store, select = RUNGS[rung]
    with closing(store(as_words(counts).items())) as words:
        pairs = select(words.pair_counts(), byte_alphabet(), "lowest-ids")
        for merge in islice(learn(words, pairs), n_merges):
            merges.append(merge)
            at.append(time.perf_counter() - started)
            if at[-1] > limit:
                break
    return at, merges


@harness.command
def main(argv: list[str]) -> int:
    """Measure every rung and print the table; return 1 if exact rungs give different merges."""
    options = harness.parser("Each step from the textbook's trainer to the Rust core.")
    options.add_argument("--limit", type=float, default=30, help="seconds of each rung (default 30)")
    options.add_argument("--merges", type=whole(), nargs="+", default=[100, 1_000, 10_000, 50_000])
    arguments = options.parse_args(argv)
    numbers, agree, rows = sorted(arguments.merges), True, []
    counts = count_pretokens(harness.corpus(arguments.paths, arguments.field, arguments.max_bytes), "gpt2")
    first = count_pretokens(harness.corpus(arguments.paths, arguments.field, NAIVE_BYTES), "gpt2")
    for rung in (*RUNGS, "native"):
        text = first if rung == "naive" else counts
        exact = train_native(dict(text.items()), numbers[-1])
        at, merges = measure(rung, dict(text.items()), numbers[-1], arguments.limit)
        shared = len(set(merges) & set(exact[: len(merges)])) / max(len(merges), 1)
        agree &= merges == exact[: len(merges)] or rung not in EXACT
        row = {"": rung, "MB": f"{text.n_bytes / 1e6:.1f}"}
        row |= {f"{n:,}": f"{at[n - 1]:.2f}" if n <= len(at) else "–" for n in numbers}
        rows.append(row | {"merges": f"{len(at):,}", "as ours": f"{shared:.1%}"})
    harness.print_table("Seconds until a number of merges, pattern gpt2", rows, "setup included")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Training in several processes that hold the words, until merges are too small to be worth it.

The adaptive parallel trainer of *From Hours to Seconds*.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from experiments.benchmarks.ladder.words import InPlaceWords, Words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from multiprocessing.connection import Connection

    from experiments.benchmarks.ladder.words import Changes
    from tokenizer.reference import Pair, Word


def _serve(pipe: Connection) -> None:
    """A worker: keeps its words, and answers with changes of counts alone."""
    words = InPlaceWords([])
    try:
        while True:
            command, payload = pipe.recv()
            if command == "load":
                words = InPlaceWords(payload)
                pipe.send(dict(words.pair_counts()))
            elif command == "merge":
                pipe.send(dict(words.merge(payload)))
            else:
                pipe.send(words.words)
                words = InPlaceWords([])
    except (EOFError, KeyboardInterrupt):  # the main process ended, or was interrupted and reports it
        return


class Workers:
    """Processes that live as long as this object, each for a part of the words.

    They are spawned, so a script that uses them needs the usual `if __name__ == "__main__":`.

    Args:
        n: how many.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            msg = f"workers={n} must be at least 1"
            raise ValueError(msg)
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(n):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def _ask(self, messages: Iterable[tuple[str, Any]]) -> list[Any]:
        """One message to each worker, then one answer from each, in their order."""
        try:
            for pipe, message in zip(self._pipes, messages, strict=True):
                pipe.send(message)
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, BrokenPipeError):
            msg = f"a worker died; exit codes: {[process.exitcode for process in self._processes]}"
            raise RuntimeError(msg) from None

    def load(self, words: list[tuple[Word, int]]) -> Counter[Pair]:
        """Deals the words out and returns how often each pair occurs in all of them."""
        n = len(self._pipes)
        return _sum(self._ask(("load", words[start::n]) for start in range(n)))

    def merge(self, pair: Pair) -> Counter[Pair]:
        """Merges a pair in every worker and returns the changes of counts, added up."""
        return _sum(self._ask([("merge", pair)] * len(self._pipes)))

    def take_back(self) -> list[tuple[list[bytes], int]]:
        """The words as they are now; the workers forget them."""
        return [word for part in self._ask([("return", None)] * len(self._pipes)) for word in part]

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _sum(parts: Iterable[Mapping[Pair, int]]) -> Counter[Pair]:
    total: Counter[Pair] = Counter()
    for part in parts:
        for pair, count in part.items():  # Counter's own addition forgets what is not positive
            total[pair] += count
    return total


class ParallelWords(Words):
    """Words in worker processes at first, and in this one from when merges have become cheap.

    Each merge costs a message to every worker and back, whatever there is to do, and later merges touch few
    words. So each is timed, and once the mean of the last `window` is below `serial_below` the words come back
    and are indexed here. Whether and when that happens does not show in the merges: counts are sums.

    Args:
        words: the corpus.
        workers: how many processes, or running ones, which are then left running.
        window: over how many merges times are averaged.
        serial_below: seconds for each merge; 0 never switches. The best value depends on the machine: it is
            about what an exchange of messages takes, times a few.
        clock: seconds.
    """

    def __init__(
        self,
        words: Iterable[tuple[Word, int]],
        workers: int | Workers = 2,
        *,
        window: int = 32,
        serial_below: float = 0.001,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._own = isinstance(workers, int)
        self._workers = Workers(workers) if isinstance(workers, int) else workers
        self._counts = self._workers.load(list(words))
        self._recent: deque[float] = deque(maxlen=window)
        self._serial_below = serial_below
        self._clock = clock
        self.local: InPlaceWords | None = None
        """The words, once they are back in this process."""

    def pair_counts(self) -> Counter[Pair]:
        """How often each pair occurred at the start."""
        return self._counts

    def merge(self, pair: Pair) -> Changes:
        """Merges the pair everywhere and returns what that adds to the count of each pair."""
        if self.local is not None:
            return self.local.merge(pair)
        started = self._clock()
        changes = self._workers.merge(pair)
        self._recent.append(self._clock() - started)
        if len(self._recent) == self._recent.maxlen and sum(self._recent) < self._serial_below * len(self._recent):
            self.local = InPlaceWords(self._workers.take_back())
            self.close()
        return changes

    def close(self) -> None:
        """Ends the processes, unless they were lent."""
        if self._own:
            self._workers.close()

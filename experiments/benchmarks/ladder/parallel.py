"""Training in worker processes that store the words, until merges become too cheap for them.

This is the adaptive parallel trainer of *From Hours to Seconds*.
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
    """Loop of a worker: it keeps its words and answers only with changes of counts."""
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
    """Worker processes, each with a part of the words.

    They are spawned, so a script that uses them needs `if __name__ == "__main__":`.

    Args:
        n: Number of processes.
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
        """Send a message to each worker, then return their answers in order."""
        try:
            for pipe, message in zip(self._pipes, messages, strict=True):
                pipe.send(message)
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, BrokenPipeError):
            msg = f"a worker died; exit codes: {[process.exitcode for process in self._processes]}"
            raise RuntimeError(msg) from None

    def load(self, words: list[tuple[Word, int]]) -> Counter[Pair]:
        """Distribute the words and return the counts of all pairs."""
        n = len(self._pipes)
        return _sum(self._ask(("load", words[start::n]) for start in range(n)))

    def merge(self, pair: Pair) -> Counter[Pair]:
        """Merge a pair in every worker and return the summed changes of counts."""
        return _sum(self._ask([("merge", pair)] * len(self._pipes)))

    def take_back(self) -> list[tuple[list[bytes], int]]:
        """Return the current words and remove them from the workers."""
        return [word for part in self._ask([("return", None)] * len(self._pipes)) for word in part]

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _sum(parts: Iterable[Mapping[Pair, int]]) -> Counter[Pair]:
    total: Counter[Pair] = Counter()
    for part in parts:
        for pair, count in part.items():  # Counter's own addition drops counts that are not positive
            total[pair] += count
    return total


class ParallelWords(Words):
    """Words in worker processes at first, and in this process once merges have become cheap.

    Each merge costs a message to every worker and back, however little there is to do, and later merges change few
    words. So merges are timed. Once the mean of the last `window` times is below `serial_below`, the words return to
    this process and are indexed here. The merges are the same in any case, because counts are sums.

    Args:
        words: The corpus.
        workers: Number of processes, or running workers, which are left running.
        window: Number of merges over which times are averaged.
        serial_below: Seconds per merge; 0 never switches. The best value depends on the machine: a few times the
            duration of an exchange of messages.
        clock: Returns the time in seconds.
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
        """The words, once they are in this process."""

    def pair_counts(self) -> Counter[Pair]:
        """Return the counts of the pairs at the start."""
        return self._counts

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
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
        """End the processes, unless they were passed in."""
        if self._own:
            self._workers.close()

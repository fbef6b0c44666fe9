"""Maps over the parts of corpora, on this machine or on a cluster."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cluster.results import InMemory, Task
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from experiments.cluster.results import Result, Work
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.progress import Progress

_WHOLE = 1 << 62


class Machines:
    """This machine, on which every corpus is one part; `experiments.cluster.tasks.Cluster` is a cluster.

    Args:
        threads: threads of each task; None for all cores.
        part_bytes: size of a part of a corpus, as stored.
    """

    def __init__(self, threads: int | None, part_bytes: int = _WHOLE) -> None:
        self.threads, self.part_bytes = thread_count(threads), part_bytes

    @contextmanager
    def results(self, folder: Path, *, resume: bool = True) -> Iterator[Path | None]:
        """Yield a folder for the results of tasks, which is deleted at the end; None to keep them in memory.

        Args:
            folder: the folder, unless another is configured.
            resume: whether to keep it after an error, so that the same command finds its results.
        """
        del folder, resume
        yield None

    def run(
        self, work: Work, tasks: Sequence[Task], folder: Path | None, report: Callable[[int], None] | None = None
    ) -> Generator[Result | InMemory]:
        """Run tasks; yields their results in order.

        Args:
            work: called with the argument of each task.
            tasks: the tasks.
            folder: folder for results; None to keep them in memory.
            report: called with the bytes that are done.
        """
        done = 0
        for task in tasks:
            yield InMemory.of(work, task, lambda n: report and report(done + n))  # noqa: B023
            done += task.size

    def map_parts(
        self,
        name: str,
        work: Work,
        corpora: Sequence[Corpus],
        split: Split,
        identity: Any,
        folder: Path | None,
        progress: Progress | None = None,
        part_bytes: int = 0,
    ) -> Generator[tuple[Corpus, Corpus, Any]]:
        """Work on the parts of some corpora; yields corpus, part and result for each part, in order.

        Args:
            name: start of the names of the results.
            work: called with each part; `skipped` of its value is `part.part_skipped()`.
            corpora: the corpora.
            split: side of their held-out split.
            identity: JSON of the settings that the results depend on.
            folder: folder for results, see `run`.
            progress: called with the bytes of files read.
            part_bytes: least size of a part.
        """
        parts = [self._parts(corpus, split, part_bytes) for corpus in corpora]
        tasks = [
            Task(f"{name}-{i:05}", [split, identity, part.part_identity()], part, part.stored_bytes)
            for i, part in enumerate(part for listed in parts for part in listed)
        ]
        tick = Throttle(progress, "bytes of files read", sum(task.size for task in tasks))
        with closing(self.run(work, tasks, folder, tick)) as results:
            for corpus, listed in zip(corpora, parts, strict=True):
                skipped = []
                for part in listed:
                    result = next(results)
                    skipped.append(result.value["skipped"])
                    yield corpus, part, result
                if self.part_bytes != _WHOLE:  # the parts were copies
                    corpus.skipped.add_parts(skipped)
                corpus.check_unchanged()

    def _parts(self, corpus: Corpus, split: Split, least_bytes: int) -> list[Corpus]:
        return [corpus] if self.part_bytes == _WHOLE else corpus.parts(split, max(self.part_bytes, least_bytes))

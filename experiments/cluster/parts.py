"""Parts of a corpus on a cluster: counts of pretokens, passes of phase 2, and shards.

Tasks count parts, and a tree of further tasks adds up their results. Results equal those of one process to the byte.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from experiments.cluster.tasks import Result, Task, as_progress
from superbpe.sources import check_not_empty
from tokenizer import patterns
from tokenizer.corpus.corpus import PART_BYTES
from tokenizer.corpus.overlap import Overlap
from tokenizer.corpus.seen import Read
from tokenizer.files import digest
from tokenizer.progress import Throttle
from tokenizer.train.counting import PretokenCounts, mix_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Beat, Blocks, Cluster, Work
    from superbpe.passes import Pass, State
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.corpus.overlap import Search
    from tokenizer.corpus.sources import Source
    from tokenizer.progress import Progress

FAN_IN = 8
"""Number of results that one task adds up."""

SUM_MEMORY = {"count": 2, "spans": 2, "seams": 2, "fragments": 6}
"""Memory of a task that adds up results, as a multiple of theirs: a hash table grows while fragments are added up."""


def add_up(
    cluster: Cluster,
    name: str,
    results: Sequence[Result],
    add: Work,
    folder: Path,
    progress: Progress | None,
) -> Result:
    """Add up results by a tree of tasks; a single one is returned as it is."""
    level = 0
    while len(results) > 1:
        groups = [results[start : start + FAN_IN] for start in range(0, len(results), FAN_IN)]
        tasks = [
            Task(
                f"{name}-sum-{level}-{i:05}",
                [result.path.name for result in group],
                group,
                size=1,
                memory=SUM_MEMORY[name] * sum(result.n_bytes for result in group),
            )
            for i, group in enumerate(groups)
        ]
        tick = Throttle(progress, f"sums of {FAN_IN} parts", len(tasks))
        results, level = list(cluster.run(add, tasks, folder, tick)), level + 1
    return results[0]


def add_counts(
    cluster: Cluster, results: Sequence[Result], folder: Path, progress: Progress | None
) -> list[PretokenCounts]:
    """Add up the counts that tasks have saved of the parts of a text, for each way in which it was cut."""
    results = [result for result in results if result.value["n_bytes"]] or results[:1]
    return list(_counts(add_up(cluster, "count", results, _add_counts, folder, progress)))


def save_counts(all_counts: Iterable[PretokenCounts]) -> Blocks:
    """Yield counts, each as a block of arrays; returns the rest, as JSON."""
    about = []
    for counts in all_counts:
        columns = dict(vars(counts))
        assert counts.read is not None
        yield {name: columns.pop(name) for name in ("data", "offsets", "counts")} | {"hashes": counts.read.hashes}
        about.append({**columns, "pattern": [counts.pattern.name, counts.pattern.regex]})
    return {"counts": about}


def _counts(result: Result) -> Iterator[PretokenCounts]:
    blocks = islice(result.blocks(), int("names" in result.value), None)  # held-out documents come first
    for values, block in zip(result.value["counts"], blocks, strict=True):
        arrays, read = dict(block), Read(values["read"])
        special_tokens, pattern = tuple(values["special_tokens"]), patterns.Pattern(*values["pattern"])
        read.hashes = arrays.pop("hashes")
        yield PretokenCounts(**{**values, "special_tokens": special_tokens, "pattern": pattern, "read": read}, **arrays)


def _add_counts(results: Sequence[Result], _: Beat) -> Blocks:
    of_cuts = zip(*map(_counts, results), strict=True)
    return (yield from save_counts(mix_counts([(counts, 1) for counts in of_parts]) for of_parts in of_cuts))


@dataclass(frozen=True)
class ClusterSources:
    """Text of phase 2 in parts that tasks read, see `superbpe.passes.Runner`.

    The tokenizer equals that of one process to the byte. So do its statistics, except that under a memory limit the
    threshold and the number of stages may depend on the number of threads.

    Attributes:
        cluster: where the tasks run.
        parts: the parts, each a list of sources. Sources with the same name belong together.
        key: hash of the text and its parts.
        folder: folder for the results of the tasks, which all machines see.
    """

    cluster: Cluster
    parts: Sequence[Sequence[Source]]
    key: str
    folder: Path

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """See `Runner`."""
        live = state.trainer.live_seams(pass_.threshold) if pass_.kind == "fragments" else None
        selected = state.selection
        settings = pass_, state.settings, state.longest, state.merges, selected.share, selected.salt, live
        identity = digest(repr(settings))
        work = partial(_pass, state, pass_, live, self.cluster.threads)
        tasks = [Task(f"{pass_.kind}-{i:05}", [self.key, identity], part) for i, part in enumerate(self.parts)]
        results = list(self.cluster.run(work, tasks, self.folder, Throttle(progress, pass_.title)))
        sums = Counter[str]()
        for result in results:
            sums.update(result.value["n_bytes"])
        check_not_empty(sums)
        total = add_up(self.cluster, pass_.kind, results, partial(_add_passes, *work.args), self.folder, progress)
        state.trainer.begin_pass()
        pass_.add(state.trainer, total.value, total.blocks())
        state.trainer.end_pass()


def _pass(state: State, pass_: Pass, live: bytes | None, threads: int, part: Sequence[Source], beat: Beat) -> Blocks:
    trainer = state.reopened(live, threads)
    # Seams are looked up in `live`, where those that reach the threshold count 1.
    cut = replace(pass_, threshold=1)
    n_bytes = cut.count(trainer, state.selection.of(part), Throttle(as_progress(beat), ""), whole=False)
    about = yield from pass_.dump(trainer)
    return {"n_bytes": n_bytes, **about}


def _add_passes(
    state: State, pass_: Pass, live: bytes | None, threads: int, results: Sequence[Result], _: Beat
) -> Blocks:
    trainer = state.reopened(live, threads)
    trainer.begin_pass()
    for result in results:
        pass_.add(trainer, result.value, result.blocks())
    trainer.end_pass()
    return (yield from pass_.dump(trainer))


def write_shards(
    cluster: Cluster,
    write: Callable[..., dict[str, Any]],
    corpus: Corpus,
    split: Split,
    folder: Path,
    progress: Progress | None = None,
    *,
    key: str = "",
    search: Search | None = None,
    part_bytes: int | None = None,
) -> Overlap | None:
    """Write all parts of a corpus by tasks, as `lm.data.sharding.map_parts` does, and look for documents in them.

    Args:
        cluster: where the tasks run.
        write: `lm.data.sharding.write_part` with its first arguments.
        corpus: the corpus.
        split: side of its held-out split.
        folder: folder for the results of the tasks, which all machines see.
        progress: called with the bytes of files read.
        key: hash of what `write` writes.
        search: documents to look for.
        part_bytes: bytes of files in a part; None for parts that become shards.

    Returns:
        The documents that were found.

    Raises:
        UserError: there are no documents.
    """
    work = partial(_write_part, write, search, cluster.threads)
    overlap, n_bytes = None if search is None else search.opened(), 0
    for result in cluster.map_parts("encode", work, corpus, split, folder, progress, part_bytes or PART_BYTES, key):
        n_bytes += result.value["n_bytes"]
        if overlap is not None:
            overlap.mark(next(result.blocks())["marks"])
    return None if overlap is None else Overlap(*overlap.found(), n_bytes)


def _write_part(
    write: Callable[..., dict[str, Any]], search: Search | None, threads: int, part: Corpus, beat: Beat
) -> Blocks:
    if search is None:
        return write(part, threads, beat)
    overlap = search.opened()
    value = write(part, threads, beat, lambda batch, _: overlap.scan(batch, 1))
    yield {"marks": overlap.marks()}
    return value

"""Count pretokens by tasks: each counts a part of the corpus, and a tree of further tasks adds up the counts.

This process adds up the last few.
"""

from __future__ import annotations

from functools import partial
from itertools import count as numbers
from typing import TYPE_CHECKING, Any

from experiments.cluster.tasks import Task
from tokenizer.progress import Throttle
from tokenizer.train.counting import PretokenCounts, count_pretokens, mix_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Cluster
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

FAN_IN = 8
"""Number of counts that one task adds up."""


def count(
    cluster: Cluster, corpus: Corpus, folder: Path, settings: Mapping[str, Any], progress: Progress | None = None
) -> PretokenCounts:
    """Count the training documents of a corpus; the result equals that of `count_pretokens`.

    Args:
        cluster: where the tasks run.
        corpus: the corpus.
        folder: folder for the counts of the parts, which all machines see.
        settings: further arguments of `count_pretokens`. `threads` and `memory_bytes` apply to each task.
        progress: called with the number of bytes counted.

    Raises:
        UserError: as `count_pretokens`.
    """
    tick = Throttle(progress, "bytes of files counted")
    tasks = [
        Task(f"count-{i:05}", part.part_identity(), partial(_count, part), part.stored_bytes)
        for i, part in enumerate(corpus.parts("train", cluster.part_bytes))
    ]
    results = list(cluster.run(tasks, settings, folder, tick))
    corpus.skipped.add_parts(result.value["skipped"] for result in results)
    corpus.check_unchanged()
    if not any(result.value["bytes"] for result in results):
        return count_pretokens(corpus, **settings)  # explains why there are no documents
    counted = [result.data for result in results if result.value["bytes"]]
    for level in numbers():
        if len(counted) <= FAN_IN:
            break
        tasks = [
            Task(f"merge-{level}-{i:05}", [path.name for path in group], partial(_add_up, group))
            for i, group in enumerate(_groups(counted))
        ]
        tick = Throttle(progress, f"sums of counts of {FAN_IN} parts", len(tasks))
        counted = [result.data for result in _ticking(cluster.run(tasks, None, folder), tick)]
    return _sum(counted)


def _groups(paths: Sequence[Path]) -> list[list[Path]]:
    return [list(paths[start : start + FAN_IN]) for start in range(0, len(paths), FAN_IN)]


def _ticking(results: Any, tick: Throttle) -> Any:
    for done, result in enumerate(results, 1):
        tick(done)
        yield result


def _count(part: Corpus, settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    counts = count_pretokens(part, **settings)
    counts.save(path)
    return {"bytes": counts.n_bytes, "skipped": part.part_skipped()}


def _add_up(paths: Sequence[Path], _: Any, path: Path) -> dict[str, Any]:
    _sum(paths).save(path)
    return {}


def _sum(paths: Sequence[Path]) -> PretokenCounts:
    return mix_counts([(PretokenCounts.load(path), 1) for path in paths])

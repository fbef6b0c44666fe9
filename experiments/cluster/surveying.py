"""Survey documents by tasks: each reads a part of a corpus."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cluster.tasks import REMEDY, Task
from lm.data.survey import Survey, survey
from tokenizer.durable import replacing
from tokenizer.files import read_arrays
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Cluster, Result
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.progress import Progress

_COLUMNS = ("n_bytes", "n_words", "source", "script", "hashes")


def surveys_of(
    cluster: Cluster,
    corpora: Sequence[Corpus],
    split: Split,
    folder: Path,
    progress: Progress | None = None,
    *,
    hashes: bool = False,
) -> list[list[tuple[Corpus, Survey]]]:
    """The parts of each corpus with their surveys.

    Args:
        cluster: where the tasks run.
        corpora: the corpora.
        split: as for `survey`.
        folder: folder for the results of the tasks, which all machines see.
        progress: called with the bytes of files read.
        hashes: as for `survey`.
    """
    parts = [list(corpus.parts(split, cluster.part_bytes)) for corpus in corpora]
    tasks = [
        Task(
            f"survey-{i:05}",
            [split, hashes, part.part_identity()],
            partial(_survey, split, hashes, part),
            part.stored_bytes,
        )
        for i, part in enumerate(chain.from_iterable(parts))
    ]
    tick = Throttle(progress, "bytes of files read", sum(task.size for task in tasks))
    results = cluster.run(tasks, None, folder, tick)
    found = []
    for corpus, own in zip(corpora, parts, strict=True):
        taken = list(islice(results, len(own)))
        corpus.skipped.add_parts(result.value["skipped"] for result in taken)
        corpus.check_unchanged()
        found.append([(part, _read(result)) for part, result in zip(own, taken, strict=True)])
    return found


def _survey(split: Split, hashes: bool, part: Corpus, _: None, path: Path) -> dict[str, Any]:
    found = survey(part, split, hashes=hashes)
    with replacing(path) as file:
        np.savez(file, **{name: getattr(found, name) for name in _COLUMNS})
    return {"sources": found.sources, "scripts": found.scripts, "skipped": part.part_skipped()}


def _read(result: Result) -> Survey:
    arrays = read_arrays(result.data, REMEDY)
    return Survey(result.value["sources"], result.value["scripts"], *(arrays[name] for name in _COLUMNS))

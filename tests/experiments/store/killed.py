"""Kill the making of an artifact before each of its steps in the file system, repeat it, and compare.

A process of its own, so that it can fork before any thread runs:
`python -m tests.experiments.store.killed FOLDER [resumable]`. Prints the number of steps, and how often a killed
attempt had finished all but the folder's name.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

from experiments.store.artifacts import Store
from tests.experiments.store.demo import make
from tests.killing import killed
from tokenizer.durable import write_whole


def build(folder: Path) -> dict[str, Any]:
    # What a resumable stage does: a checkpoint for as long as it takes, then the result.
    if not (folder / "result").exists():
        write_whole(folder / "checkpoint", "state")
        write_whole(folder / "result", "model")
    (folder / "checkpoint").unlink(missing_ok=True)
    with (folder.parent / "built").open("a") as file:
        file.write("x")
    return {"size": 5}


def make_at(root: Path, *, resumable: bool) -> Any:
    return make(Store(root), "lm", config={}, inputs={}, build=build, resumable=resumable)


def main(root: Path, *, resumable: bool) -> None:
    promoted = 0
    for step in itertools.count():
        folder = root / f"at-{step}"
        folder.mkdir()
        died = killed(folder, step, partial(make_at, folder, resumable=resumable))
        unnamed = [path for path in folder.glob(".lm-*/manifest.json") if path.stat().st_size]
        built = folder / "built"
        before = len(built.read_text()) if built.exists() else 0
        Store(folder).clean()
        artifact = make_at(folder, resumable=resumable)
        assert set(artifact.manifest.files) == {"result"}, step
        assert (artifact.path / "result").read_text() == "model"
        assert sorted(path.name for path in artifact.path.iterdir()) == ["manifest.json", "result"], step
        assert not make_at(folder, resumable=resumable).fresh
        if unnamed:
            assert len(built.read_text()) == before, f"killed at step {step}, a finished artifact was made again"
            promoted += 1
        if not died:
            break
    print(step, promoted)


if __name__ == "__main__":
    main(Path(sys.argv[1]), resumable=sys.argv[2:] == ["resumable"])

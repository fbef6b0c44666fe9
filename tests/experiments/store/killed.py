"""Fail at every file operation of the making of an artifact, repeat it, and compare.

A process of its own, so that it can fork before any thread runs:
`python -m tests.experiments.store.killed FOLDER [resumable]`. Prints the number of faults, and how often a killed
attempt had finished all but the folder's name.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from experiments.store.artifacts import Store
from tests.experiments.store.demo import make
from tests.injection import fail, points
from tokenizer import storage
from tokenizer.durable import write_whole


def build(folder: Path) -> dict[str, Any]:
    # What a resumable stage does: a checkpoint for as long as it takes, then the result.
    if not (folder / "result").exists():
        write_whole(folder / "checkpoint", "state")
        write_whole(folder / "result", "model")
    storage.disk.remove(folder / "checkpoint", missing_ok=True)
    with (folder.parent / "built").open("a") as file:
        file.write("x")
    return {"size": 5}


def make_at(root: Path, *, resumable: bool) -> Any:
    return make(Store(root), "lm", config={}, inputs={}, build=build, resumable=resumable)


def main(root: Path, *, resumable: bool) -> None:
    promoted = 0
    (root / "whole").mkdir()
    found = points(partial(make_at, root / "whole", resumable=resumable))
    for point in found:
        folder = root / f"at-{point.at}-{point.fault}"
        folder.mkdir()
        code = fail(point, partial(make_at, folder, resumable=resumable))
        assert code in ((-9,) if point.fault in ("kill", "torn") else (0, 2)), (point, code)
        unnamed = [path for path in folder.glob(".lm-*/manifest.json") if path.stat().st_size]
        built = folder / "built"
        before = len(built.read_text()) if built.exists() else 0
        Store(folder).clean()
        artifact = make_at(folder, resumable=resumable)
        assert set(artifact.manifest.files) == {"result"}, point
        assert (artifact.path / "result").read_text() == "model"
        assert sorted(path.name for path in artifact.path.iterdir()) == ["manifest.json", "result"], point
        assert not make_at(folder, resumable=resumable).fresh
        if unnamed and point.fault in ("kill", "torn"):
            assert len(built.read_text()) == before, f"{point}: a finished artifact was made again"
            promoted += 1
    print(len(found), promoted)


if __name__ == "__main__":
    main(Path(sys.argv[1]), resumable=sys.argv[2:] == ["resumable"])

"""Kill the writing of shards at every change of a file, continue it, and compare.

A process of its own, so that it can fork before any thread runs: `python -m tests.lm.data.killed_writer FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lm.data.shard_writer import PROGRESS
from lm.data.sharding import ShardConfig, write_shards
from tests.kills import kills
from tests.lm.conftest import TEXTS, ToyBatch, ToyTokenizer
from tokenizer.files import read_sealed


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def finished(folder: Path) -> dict[str, tuple[int, int]]:
    """Identity and time of each file of tokens that the progress lists."""
    progress = folder / PROGRESS
    files = [folder / shard["name"] for shard in read_sealed(progress)["shards"]] if progress.exists() else []
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def write(folder: Path, config: ShardConfig) -> None:
    write_shards(folder, ToyTokenizer(), [ToyBatch(TEXTS[i : i + 2]) for i in (0, 2, 4)], config, threads=2)


def main(root: Path, config: ShardConfig) -> None:
    n, kept = 0, 0
    for n in kills(lambda n: write(root / f"at-{n}" / "shards", config)):
        folder = root / f"at-{n}" / "shards"
        unfinished = folder.with_name(".shards.partial")
        before = finished(unfinished)
        if not folder.exists():  # otherwise its last step was the folder's name
            write(folder, config)
        assert [path.name for path in folder.parent.iterdir()] == ["shards"], n
        for name, identity in before.items():
            after = (folder / name).stat()
            assert identity == (after.st_ino, after.st_mtime_ns), f"{name} was written again"
            kept += 1
    whole = contents(root / f"at-{n + 1}" / "shards")
    for killed in range(n + 1):
        assert contents(root / f"at-{killed}" / "shards") == whole, killed
    print(f"{n + 1} kills, {kept} finished shards kept")


if __name__ == "__main__":
    main(Path(sys.argv[1]), ShardConfig(tokens_per_shard=20))

"""Kill the writing of shards at every change of a file, continue it, and compare.

A process of its own, so that it can fork before any thread runs: `python -m tests.lm.data.killed_writer FOLDER [SEED]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lm.data.sharding import ShardConfig, write_shards
from tests.kills import kills
from tests.lm.conftest import TEXTS, ToyBatch, ToyTokenizer


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def finished(folder: Path) -> dict[Path, tuple[int, int]]:
    """Identity and time of each file of tokens that is there with its record."""
    records = folder.rglob("tokens-*.json") if folder.exists() else ()
    files = [record.with_suffix(".bin") for record in records]
    return {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files if file.exists()}


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
        for path, identity in before.items():
            after = folder / path.relative_to(unfinished)
            if after.exists() and "in-order" not in path.parts:
                assert identity == (after.stat().st_ino, after.stat().st_mtime_ns), f"{path} was written again"
                kept += 1
    whole = contents(root / f"at-{n + 1}" / "shards")
    for killed in range(n + 1):
        assert contents(root / f"at-{killed}" / "shards") == whole, killed
    print(f"{n + 1} kills, {kept} finished shards kept")


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else None
    main(Path(sys.argv[1]), ShardConfig(tokens_per_shard=20, shuffle_seed=seed))

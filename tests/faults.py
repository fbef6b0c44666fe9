"""Faults on demand over a tiny experiment: kills, a disk that fills up, flipped bits.

    python -m tests.faults kills 200      # kill a run before random steps in the file system, repeat it, compare
    python -m tests.faults disks 50       # let a disk of random size fill up (a tmpfs), enlarge it, repeat, compare
    python -m tests.faults flips 1000     # flip random bits of all kinds of artifact files; none may be used

Each prints what happened and fails if anything was lost or silently wrong, or if a run ended in a traceback. The slow
tests run a sample.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from experiments.cli.main import run
from experiments.results import Folder
from experiments.store.artifacts import MANIFEST, Store
from lm.data.shards import Shards
from lm.model.weights import MODEL, load_model
from tests.experiments.conftest import tiny_overrides, write_corpus
from tests.flipping import flips as flipped
from tests.killing import killed
from tokenizer import Tokenizer
from tokenizer.errors import UserError
from tokenizer.train.counting import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Callable

# Files whose bytes depend on the text and the settings alone; others hold times as well.
_FIXED = (".bin", ".npy", ".npz", ".parquet", ".safetensors")


def hashes(artifacts: Path) -> dict[str, str]:
    """Checksums of all files that do not hold times, and the names of all artifacts."""
    found = {path.name: "" for path in artifacts.iterdir() if not path.name.startswith(".")}
    for path in artifacts.glob("[a-z]*/**/*"):
        if path.suffix in _FIXED:
            found[path.relative_to(artifacts).as_posix()] = xxhash.xxh3_128_hexdigest(path.read_bytes())
    return found


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Names of files and artifacts that are missing, new or different."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def experiment(corpus: Path, folder: Path, log: Path) -> int:
    """Run the experiment up to its report; return the exit code. Its output goes to `log`."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    return run("report", tiny_overrides(corpus, folder))


def forked(corpus: Path, folder: Path, log: Path) -> int:
    """Run the experiment in a process of its own; return its exit code."""
    if (child := os.fork()) == 0:
        code = 1
        with contextlib.suppress(SystemExit):
            code = experiment(corpus, folder, log)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kills(root: Path, n: int, seed: int = 0) -> Counter[str]:
    """Kill the experiment `n` times and rerun it after each kill; each complete run is killed about eight times."""
    corpus = write_corpus(root / "tiny.jsonl")
    assert forked(corpus, root / "whole", root / "log") == 0, (root / "log").read_text()
    expected = hashes(root / "whole" / "artifacts")
    often = 8 / _steps(corpus, root)
    outcome: Counter[str] = Counter()
    rng = random.Random(seed)
    while outcome["killed"] < n:
        folder = root / f"run-{outcome['run to its end']}"
        folder.mkdir()
        while killed(
            folder / "artifacts", int(rng.expovariate(often)), partial(experiment, corpus, folder, root / "log")
        ):
            outcome["killed"] += 1
            unfinished = {path.suffix[1:] for path in (folder / "artifacts").glob(".*") if path.suffix}
            outcome.update(f"left {suffix}" for suffix in unfinished)
        different = differences(hashes(folder / "artifacts"), expected)
        assert not different, f"{different}\n{(root / 'log').read_text()}"
        outcome["run to its end"] += 1
        shutil.rmtree(folder)
    return outcome


def _steps(corpus: Path, root: Path) -> int:
    """How many steps an undisturbed run takes: found by killing at ever later ones."""
    low, high = 0, 64
    while killed(root / "steps" / "artifacts", high, partial(experiment, corpus, root / "steps", root / "log")):
        low, high = high, 2 * high
        shutil.rmtree(root / "steps")
    shutil.rmtree(root / "steps")
    while high - low > 32:
        middle = (low + high) // 2
        died = killed(root / "steps" / "artifacts", middle, partial(experiment, corpus, root / "steps", root / "log"))
        low, high = (middle, high) if died else (low, middle)
        shutil.rmtree(root / "steps")
    return low


def disks(root: Path, n: int, seed: int = 0) -> Counter[str]:
    """Run the experiment on disks that are too small, enlarge them, and repeat it."""
    corpus = write_corpus(root / "tiny.jsonl")
    assert forked(corpus, root / "whole", root / "log") == 0, (root / "log").read_text()
    expected = hashes(root / "whole" / "artifacts")
    needed = sum(-(-path.stat().st_size // 4096) * 4096 for path in (root / "whole").rglob("*") if path.is_file())
    outcome: Counter[str] = Counter()
    rng = random.Random(seed)
    disk = root / "disk"
    disk.mkdir()
    for _ in range(n):
        size = rng.randrange(4096, needed)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        try:
            code = forked(corpus, disk, root / "log")
            said = (root / "log").read_text()
            assert code in (0, 2), f"{size} bytes: exit code {code}\n{said}"
            assert "Traceback" not in said, f"{size} bytes:\n{said}"
            if code == 2:
                assert "the disk is full; free some space" in said, f"{size} bytes:\n{said}"
                outcome[" ".join(said.split("error: ")[-1].split(":")[0].split())[:60].replace(str(disk), "")] += 1
            subprocess.run(["mount", "-o", f"remount,size={4 * needed}", disk], check=True)
            assert forked(corpus, disk, root / "log") == 0, f"{size} bytes: {(root / 'log').read_text()}"
            assert not differences(hashes(disk / "artifacts"), expected), f"{size} bytes"
        finally:
            subprocess.run(["umount", disk], check=True)
    return outcome


def flips(root: Path, n: int, seed: int = 0) -> Counter[str]:
    """Flip `n` random bits, one at a time, and check that no damaged content is ever used."""
    corpus = write_corpus(root / "tiny.jsonl")
    assert forked(corpus, root / "whole", root / "log") == 0, (root / "log").read_text()
    store = root / "whole" / "artifacts"
    files = [path for path in sorted(store.glob("[a-z]*/**/*")) if path.is_file()]
    kinds = itertools.cycle(sorted({_kind(path) for path in files}))
    outcome: Counter[str] = Counter()
    rng = random.Random(seed)
    for i, kind in enumerate(itertools.islice(kinds, n)):
        path = rng.choice([path for path in files if _kind(path) == kind])
        whole = {}
        for bit in flipped(path, 1, seed=seed + i):
            try:
                artifact = Store(store, verify="always").find(path.relative_to(store).parts[0], Folder)
                assert artifact is not None
                assert artifact.path
                assert path.name == MANIFEST, f"{path}, bit {bit} was not noticed"
                outcome[f"{kind}: white space, same content"] += 1
            except UserError:
                outcome[f"{kind}: rejected"] += 1
            # What reads a file without the store must not be misled either.
            for read in _readers(path):
                with contextlib.suppress(UserError):
                    whole[read] = read()
        for read, value in whole.items():
            assert value == read(), f"{path}, bit {bit} changed what {read} returns"
    return outcome


def _kind(path: Path) -> str:
    stage = path.parts[path.parts.index("artifacts") + 1].partition("-")[0]
    return f"{stage}/{path.stem.partition('-')[0]}{path.suffix}"


def _readers(path: Path) -> list[Callable[[], object]]:
    """What reads this file from the folder of an artifact, as values that can be compared."""
    if path.name == "counts.parquet":
        return [lambda: list(PretokenCounts.load(path).items())]
    if path.name == MODEL:
        return [lambda: {name: value.tolist() for name, value in load_model(path.parent).state_dict().items()}]
    if path.parent.name == "shards":
        return [lambda: _stream(path.parent)]
    if path.parent.name.startswith("tokenizer-") and path.name != MANIFEST:
        return [lambda: Tokenizer.load(path.parent).sha256]
    return []


def _stream(folder: Path) -> list[object]:
    shards = Shards.open(folder, verify="always")
    return [shards.tokens(0, shards.n_tokens).tolist(), shards.document_ends.tolist(), shards.document_bytes.tolist()]


if __name__ == "__main__":
    what, times = {"kills": kills, "disks": disks, "flips": flips}[sys.argv[1]], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        for outcome_, count in sorted(what(Path(scratch), times).items()):
            print(f"{count:6}  {outcome_}")

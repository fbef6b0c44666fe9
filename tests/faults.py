"""Faults on demand over a tiny experiment: a fault at every file operation, a disk that fills up, flipped bits.

    python -m tests.faults points         # fail or kill at every file operation in turn, run again, compare all files
    python -m tests.faults points 200     # the same at a fixed random sample of 200
    python -m tests.faults disks 50       # let a disk of random size fill up (a tmpfs), enlarge it, repeat, compare
    python -m tests.faults flips 1000     # flip random bits of all kinds of artifact files; none may be used

Each prints what happened and fails if anything was lost or silently wrong, or if a run ended in a traceback. The tests
run samples.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hydra
import xxhash
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from experiments.cli import main
from experiments.results import Folder
from experiments.stages import reporting
from experiments.store.artifacts import MANIFEST, Store
from lm.data.shards import Shards
from lm.model.weights import MODEL, load_model
from lm.train import diagnostics
from tests import injection
from tests.experiments.conftest import tiny_overrides, write_corpus
from tests.flipping import flips as flipped
from tests.injection import Point, fail, forked
from tokenizer import Tokenizer
from tokenizer.errors import UserError
from tokenizer.train.counting import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SETTINGS = [
    "budget.train_bytes=4096",
    "budget.tolerance=0.4",
    "bpe.vocab_size=340",
    "lm.train.bytes_per_step=2048",
    "lm.train.context_bytes=256",
]
"""The smallest run of all stages: two arms, two models, a comparison and a report, in about a second."""


class Experiment:
    """A tiny experiment, repeated in forked processes, and its files after an undisturbed run.

    Args:
        root: Folder for everything; of a file system in memory, because syncing takes most of the time.
        documents: Documents of the corpus.
        settings: Overrides of the run.
    """

    def __init__(self, root: Path, documents: int = 80, settings: Sequence[str] = SETTINGS) -> None:
        self.folder, self.log = root / "run", root / "log"
        lines = write_corpus(root / "tiny.jsonl").read_text().splitlines(keepends=True)
        (root / "tiny.jsonl").write_text("".join(lines[:documents]))
        self.overrides = [*tiny_overrides(root / "tiny.jsonl", self.folder), *settings]
        config = compose(self.overrides)
        # Replaced, because they take most of the time: composing the configuration, measuring the speed of matrix
        # products, and the content of the report, whose files are written as usual.
        main.check = lambda *_, **__: {}
        main.hydra = SimpleNamespace(main=lambda **_: lambda job: partial(self._job, job, config))  # type: ignore[assignment]
        diagnostics.matmul_flops_per_second = lambda *_, **__: 1e12
        reporting.gather = lambda *_, **__: {"differences": [{"n": 1}], "verdict": "none"}
        reporting.render = lambda *_, **__: "page"
        first = self._import(root / "modules")
        self.points = injection.points(self.run)
        # Other files hold times.
        second = hashes(self.folder / "artifacts")
        self.varying = {name for name in first if first[name] != second.get(name)}
        self.expected = {name: value for name, value in first.items() if name not in self.varying}
        assert first.keys() == second.keys()

    def _import(self, modules: Path) -> dict[str, str]:
        """Import everything that a run imports, without running anything in this process; return the run's hashes."""
        assert forked(partial(self.run, modules)) == 0, self.log.read_text()
        found = hashes(self.folder / "artifacts")
        for name in modules.read_text().splitlines():
            if name not in sys.modules and not name.startswith("__"):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        self.clear()
        return found

    def _job(self, job: Callable[[DictConfig], None], config: DictConfig) -> None:
        """What Hydra does around a job."""
        (self.folder / "outputs").mkdir(parents=True, exist_ok=True)
        job(config)

    def run(self, modules: Path | None = None) -> int:
        """Run the experiment up to its report; return the exit code. Its output goes to `log`."""
        with self.log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = main.run("report", self.overrides)
        if modules is not None:
            modules.write_text("\n".join(sys.modules))
        return code

    def clear(self) -> None:
        """Delete the files of the run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def check(self, point: Point) -> str:
        """Fail at a point, run the same command again, and compare; return what happened.

        Raises:
            AssertionError: Something was lost or different, or the error was not one line with path and remedy.
        """
        self.clear()
        code = fail(point, self.run)
        said = self.log.read_text()
        if point.fault in ("kill", "torn"):
            assert code in (-9, 0), f"{point}: exit code {code}\n{said}"
        else:
            assert code in (0, 2), f"{point}: exit code {code}\n{said}"
            assert "Traceback" not in said, f"{point}\n{said}"
            if code == 2:
                complaint = " ".join(said[said.index("error: ") :].split())
                assert str(self.folder) in complaint, f"{point}: no path\n{said}"
                assert any(word in complaint for word in REMEDIES), f"{point}: no remedy\n{said}"
        self.compare(point, complete=code == 0)
        assert forked(self.run) == 0, f"{point}\n{said}\n--- again:\n{self.log.read_text()}"
        self.compare(point, complete=True)
        return {-9: "killed, then the same", 2: "error, then the same", 0: "no effect"}[code]

    def compare(self, point: Point, *, complete: bool) -> None:
        """Compare the artifacts with those of the undisturbed run; all of them, or those that are there."""
        if not complete and not (self.folder / "artifacts").exists():
            return
        found = hashes(self.folder / "artifacts")
        wrong = {
            name
            for name in found.keys() | self.expected.keys()
            if name not in self.varying and found.get(name) != self.expected.get(name) and (complete or name in found)
        }
        assert not wrong, f"{point}: {sorted(wrong)}\n{self.log.read_text()}"
        store = Store(self.folder / "artifacts", verify="always")
        for name in store.names(""):
            if not name.startswith("."):
                artifact = store.find(name, Folder)
                assert artifact is not None
                store.check(artifact)


REMEDIES = ("run the same command again", "delete ", "choose another folder")


def compose(overrides: list[str]) -> DictConfig:
    """The configuration of a run, which becomes Hydra's current one."""
    with hydra.initialize_config_module("configs", version_base="1.3"):
        config = hydra.compose("config", overrides, return_hydra_config=True)
    with open_dict(config):
        config.hydra.runtime.output_dir = config.hydra.run.dir
        HydraConfig.instance().set_config(config)
        del config.hydra
    return config


def hashes(artifacts: Path) -> dict[str, str]:
    """Checksums of all files of finished artifacts, and the names of these artifacts; JSON without its seconds."""
    found = {path.name: "" for path in artifacts.iterdir() if not path.name.startswith(".")}
    for path in artifacts.glob("[a-z]*/**/*"):
        if path.is_file() and path.name != MANIFEST:  # the manifest is compared with the files instead
            content = path.read_bytes()
            if path.suffix == ".json":
                content = json.dumps(_timeless(json.loads(content))).encode()
            found[path.relative_to(artifacts).as_posix()] = xxhash.xxh3_128_hexdigest(content)
    return found


def _timeless(value: Any) -> Any:
    """A JSON value without entries about time, and without the checksums that depend on them."""
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if "second" not in key and key != "seal"}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def points(root: Path, n: int | None = None) -> Counter[str]:
    """Fail at all points, in a fixed random order, or at the first `n`."""
    experiment = Experiment(root)
    every = experiment.points
    outcome: Counter[str] = Counter()
    failed = []
    print(f"{every[-1].at + 1} operations, {len(every)} points", flush=True)
    for number, point in enumerate(random.Random(0).sample(every, len(every))[:n], 1):
        try:
            outcome[f"{point.fault}: {experiment.check(point)}"] += 1
        except (AssertionError, UserError, OSError) as error:
            outcome[f"{point.fault}: FAILED"] += 1
            failed.append(point)
            print(f"FAILED {error}", file=sys.stderr, flush=True)
        if number % 100 == 0:
            print(number, dict(outcome), file=sys.stderr, flush=True)
    assert not failed, f"{len(failed)} points: {failed}"
    return outcome


def disks(root: Path, n: int, seed: int = 0) -> Counter[str]:
    """Run the experiment on disks that are too small, enlarge them, and repeat it."""
    outcome: Counter[str] = Counter()
    rng = random.Random(seed)
    disk = root / "run"
    experiment = Experiment(root)
    needed = sum(-(-path.stat().st_size // 4096) * 4096 for path in disk.rglob("*") if path.is_file())
    for _ in range(n):
        size = rng.randrange(4096, needed)
        experiment.clear()
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        try:
            code = forked(experiment.run)
            said = experiment.log.read_text()
            assert code in (0, 2), f"{size} bytes: exit code {code}\n{said}"
            assert "Traceback" not in said, f"{size} bytes:\n{said}"
            if code == 2:
                assert "the disk is full; free some space" in said, f"{size} bytes:\n{said}"
                outcome["full, then the same"] += 1
            subprocess.run(["mount", "-o", f"remount,size={4 * needed}", disk], check=True)
            assert forked(experiment.run) == 0, f"{size} bytes: {experiment.log.read_text()}"
            experiment.compare(Point(size, "full", "disk", ""), complete=True)
        finally:
            subprocess.run(["umount", disk], check=True)
    return outcome


def flips(root: Path, n: int, seed: int = 0) -> Counter[str]:
    """Flip `n` random bits, one at a time, and check that no damaged content is ever used."""
    store = Experiment(root).folder / "artifacts"
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
    what, *times = sys.argv[1:]
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", dir=memory) as scratch:
        ran = {"points": points, "disks": disks, "flips": flips}[what](Path(scratch), *map(int, times))
    for outcome_, count in sorted(ran.items()):
        print(f"{count:6}  {outcome_}")
    print(f"{time.monotonic() - began:6.0f}  seconds")

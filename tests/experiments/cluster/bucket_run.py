"""Shards from a loopback bucket on Ray, with a worker killed in each stage, equal those of local files.

Text, artifacts and the results of tasks are in the bucket. `python -m tests.experiments.cluster.bucket_run TEXT WORK`:
TEXT is a folder of .jsonl files, WORK an empty folder with space for two copies of the shards. Prints the kills, the
times and each comparison; the exit code is 1 if files differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tokenizer.corpus import remote

_STAGES = ("count", "seams", "fragments", "encode")
"""Starts of the names of the results of tasks."""
_COMMON = ("corpus=files", "corpus.heldout_fraction=0.01", "bpe.vocab_size=16384", "superbpe.transition=0.8")
_RAY = {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
_TASKS = "s3://bucket/tasks"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "us-east-1"}


def shard(work: Path, *settings: str) -> subprocess.Popen[bytes]:
    """Start `superbpe shard`."""
    command = [sys.executable, "-m", "experiments", "shard", *_COMMON, f"hydra.run.dir={work}", *settings]
    return subprocess.Popen(command)


def kill_in_each_stage(run: subprocess.Popen[bytes]) -> list[str]:
    """Kill one busy worker once each stage has its first result; return the stages."""
    killed: list[str] = []
    while run.poll() is None:
        time.sleep(0.3)
        results = [url.rpartition("/")[2] for url in remote.names(f"{_TASKS}/*/*")]
        written = [name for name in results if name.endswith((".json", ".parquet"))]
        found = {stage for stage in _STAGES if any(name.startswith(stage) for name in written)}
        for stage in found - set(killed):
            if busy := workers(run.pid):
                busy[0].kill()
                killed.append(stage)
                print(f"killed worker {busy[0].pid} in {stage}", flush=True)
    return killed


def workers(pid: int) -> list[psutil.Process]:
    """Busy Ray workers that a process has started."""
    try:
        found = psutil.Process(pid).children(recursive=True)
        return [each for each in found if " ".join(each.cmdline()).startswith("ray::execute")]
    except psutil.Error:
        return []


def checksums(artifacts: Path) -> dict[str, list[Any]]:
    """Checksums of the files of all artifacts, by stage and name, except `superbpe.json`, which contains times."""
    found: dict[str, list[Any]] = {}
    for manifest in artifacts.glob("*/manifest.json"):
        stage = manifest.parent.name.partition("-")[0]
        for name, entry in json.loads(manifest.read_text())["files"].items():
            if name != "superbpe.json":
                found.setdefault(f"{stage} {name}", []).append(entry if isinstance(entry, int) else entry["xxh3_128"])
    return {name: sorted(map(str, entries)) for name, entries in found.items()}


def main(text: Path, work: Path) -> int:
    """Run both, and compare their artifacts."""
    near, cache = work / "near", work / "cache"
    started = time.monotonic()
    code = shard(near, f"corpus.paths=[{text}]", f"artifacts={near / 'artifacts'}", "runner.threads=2").wait()
    print(f"local: exit code {code}, {time.monotonic() - started:.0f} s", flush=True)
    server = [sys.executable, "-m", "tests.tokenizer.corpus.endpoint", str(text)]
    with subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as endpoint:
        assert endpoint.stdout is not None
        environment = {**_RAY, **_CREDENTIALS, "AWS_ENDPOINT_URL": endpoint.stdout.readline().strip()}
        places = ["corpus.paths=['s3://bucket/*.jsonl']", "artifacts=s3://bucket/artifacts", f"artifacts_cache={cache}"]
        os.environ |= environment
        started = time.monotonic()
        runner = ["runner=ray", "runner.workers=3", "runner.part_mb=32", f"runner.folder={_TASKS}"]
        run = shard(work / "far", *places, *runner)
        killed = kill_in_each_stage(run)
        print(f"ray: exit code {run.returncode}, {time.monotonic() - started:.0f} s", flush=True)
        endpoint.kill()
    expected, found = checksums(near / "artifacts"), checksums(cache)
    for name in sorted(expected.keys() | found.keys()):
        print("equal" if expected.get(name) == found.get(name) else "DIFFERENT", name)
    return int(not expected or expected != found or set(killed) != set(_STAGES))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

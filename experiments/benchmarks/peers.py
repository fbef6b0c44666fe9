"""Other trainers and encoders, in a separate environment that the benchmark creates.

They do not share this framework's Python environment, because they could change its dependencies, and users of the
framework do not have to install them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizer
from tokenizer.errors import UserError

TRAINERS = {"gigabpe": "0.1.0", "gigatoken": "0.10.0", "rustbpe": "0.1.0", "tokenizers": "0.23.3"}
"""Distribution and version of each trainer; `peers_jobs` calls them."""

ENCODERS = {
    "fastokens": "0.3.5",
    "gigatoken": "0.10.0",
    "splintr-rs": "0.22.0",
    "tiktoken": "0.14.0",
    "tokenizers": "0.23.3",
}
"""Distribution and version of each encoder; `encode_jobs` calls them."""

PINNED = TRAINERS | ENCODERS

_MARK = "superbpe-benchmark.json"
_JOBS = Path(__file__).with_name("peers_jobs.py")


@dataclass(frozen=True)
class Contender:
    """A row of the table.

    Attributes:
        name: Name in the table.
        job: Key in the script's `CONTENDERS`.
        arguments: Arguments of the job, JSON-able.
        python: Interpreter with the library.
        script: `peers_jobs.py`, or a script with the same command line.
    """

    name: str
    job: str
    arguments: dict[str, Any] = field(default_factory=dict)
    python: Path = field(default_factory=lambda: Path(sys.executable))
    script: Path = _JOBS


def environment(folder: Path) -> Path:
    """Return the interpreter of the peers' environment; create the environment in `folder` if it does not exist.

    Raises:
        UserError: If the packages cannot be installed, or the folder has other content.
    """
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    mark = folder / _MARK
    if mark.is_file() and mark.read_text(encoding="utf-8") == json.dumps(PINNED):
        return python
    if folder.exists() and not mark.is_file() and any(folder.iterdir()):
        raise UserError(f"{folder} is not an environment that this benchmark made; name a new folder with --peers-venv")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}=={version}" for name, version in PINNED.items()]
    steps = {
        "creating the environment": [sys.executable, "-m", "venv", "--clear", str(folder)],
        f"installing {', '.join(wanted)}": [
            *(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *wanted,
        ],
    }
    for what, command in steps.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # From now on an unfinished folder is recognized as ours and cleared.
        mark.write_text("unfinished", encoding="utf-8")
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            reason = said[-1] if said else f"exit code {done.returncode}"
            raise UserError(
                f"{what} in {folder} failed: {reason}. The first run needs the package index; "
                "without it, use --peers none, or pass an environment that this benchmark created "
                "elsewhere as --peers-venv"
            )
    mark.write_text(json.dumps(PINNED), encoding="utf-8")
    return python


def run(contender: Contender, out: Path) -> dict[str, Any]:
    """Run a contender in a separate process, which writes its merges or digests of ids to `out`.

    Returns:
        The job's measurements (for a trainer: `seconds` and `cpu` of the call, `peak_mb`, `bare_mb`, `imports_mb`),
        `wall` seconds of the whole process, and `others`: cores that other processes used meanwhile (nan if unknown).
    """
    arguments = contender.arguments | {"out": str(out)}
    # Our own job must import the packages of this process; a peer must not see them.
    ours = contender.job == "ours"
    root = str(Path(tokenizer.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    flags, variables = (["-P"], os.environ | {"PYTHONPATH": path}) if ours else (["-I"], dict(os.environ))
    before = (_busy_seconds(), _own_seconds(), time.perf_counter())
    done = subprocess.run(
        [str(contender.python), *flags, str(contender.script), contender.job, json.dumps(arguments)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    busy, own, wall = (
        after - start
        for after, start in zip((_busy_seconds(), _own_seconds(), time.perf_counter()), before, strict=True)
    )
    if done.returncode != 0:
        message = f"the contender {contender.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
        raise RuntimeError(message)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts | {"wall": wall, "others": max(0.0, busy - own) / wall}


def _own_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _busy_seconds() -> float:
    """CPU seconds of all processes since the machine started."""
    try:
        with Path("/proc/stat").open(encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    except OSError:
        return float("nan")
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def agreement(expected: Path, found: Path) -> tuple[int, int, int]:
    """Number of merges before the first difference between two files, and the number of merges in each file.

    If one of them lists only tokens, tokens are compared.
    """
    counts = [0, 0]
    same = 0
    agree = True
    with expected.open(encoding="ascii") as one, found.open(encoding="ascii") as other:
        while True:
            lines = (one.readline().strip(), other.readline().strip())
            if not any(lines):
                return same, counts[0], counts[1]
            counts = [count + bool(line) for count, line in zip(counts, lines, strict=True)]
            if any(line and " " not in line for line in lines):
                lines = (lines[0].replace(" ", ""), lines[1].replace(" ", ""))
            agree = agree and lines[0] == lines[1]
            same += agree

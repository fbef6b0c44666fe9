"""Running whole experiments, and looking at their artifacts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from experiments.cli import main
from tests.experiments.conftest import run_stages
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable


def command(stage: str, words: list[str]) -> list[str]:
    """`superbpe pipeline --until STAGE WORDS`, for a process of its own."""
    return [sys.executable, "-m", "experiments", "pipeline", "--until", stage, *words]


def run_until(stage: str, words: list[str]) -> int:
    """Exit code of `superbpe pipeline --until STAGE WORDS`."""
    return main.run(["pipeline", "--until", stage.replace("_", "-"), *words])


def names_by_stage(tmp_path: Path) -> dict[str, list[str]]:
    """Names of all artifacts by stage."""
    found: dict[str, list[str]] = {}
    for path in sorted((tmp_path / "artifacts").iterdir()):
        found.setdefault(path.name.partition("-")[0], []).append(path.name)
    return found


def paths(tmp_path: Path, stage: str) -> list[Path]:
    return sorted((tmp_path / "artifacts").glob(f"{stage}-*"))


def manifests(tmp_path: Path, stage: str) -> list[dict[str, Any]]:
    return [json.loads((path / "manifest.json").read_text()) for path in paths(tmp_path, stage)]


def manifest(tmp_path: Path, stage: str) -> dict[str, Any]:
    (found,) = manifests(tmp_path, stage)
    return found


def report(tmp_path: Path) -> dict[str, Any]:
    """Numbers of the only report."""
    (path,) = paths(tmp_path, "report")
    numbers: dict[str, Any] = json.loads((path / "report.json").read_text())
    return numbers


def setting(words: list[str], key: str) -> Path:
    """The folder that a command line sets."""
    (found,) = (word.partition("=")[2] for word in words if word.startswith(f"{key}="))
    return Path(found)


def rejected(stage: str, overrides: list[str], tmp_path: Path) -> str:
    """Message of the UserError that running up to `stage` raises; the command line shows it as one line."""
    with pytest.raises(UserError) as caught:
        run_stages(stage, overrides, tmp_path / "outputs")
    return str(caught.value)


def wait_until(done: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for another process; a machine that is busy takes long to start it."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)

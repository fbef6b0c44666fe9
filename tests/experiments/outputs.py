"""Running whole experiments, and looking at their artifacts."""

import json
import sys
from pathlib import Path

import pytest

from experiments.cli import main
from tests.experiments.conftest import run_stages
from tokenizer.errors import UserError


def command(stage, words):
    """`superbpe pipeline --until STAGE WORDS`, for a process of its own."""
    return [sys.executable, "-m", "experiments", "pipeline", "--until", stage, *words]


def run_until(stage, words):
    """Exit code of `superbpe pipeline --until STAGE WORDS`."""
    return main.run(["pipeline", "--until", stage.replace("_", "-"), *words])


def names_by_stage(tmp_path):
    found = {}
    for path in sorted((tmp_path / "artifacts").iterdir()):
        found.setdefault(path.name.partition("-")[0], []).append(path.name)
    return found


def paths(tmp_path, stage):
    return sorted((tmp_path / "artifacts").glob(f"{stage}-*"))


def manifests(tmp_path, stage):
    return [json.loads((path / "manifest.json").read_text()) for path in paths(tmp_path, stage)]


def manifest(tmp_path, stage):
    (found,) = manifests(tmp_path, stage)
    return found


def report(tmp_path):
    """Numbers of the only report."""
    (path,) = paths(tmp_path, "report")
    return json.loads((path / "report.json").read_text())


def setting(words, key):
    """The folder that a command line sets."""
    (found,) = (word.partition("=")[2] for word in words if word.startswith(f"{key}="))
    return Path(found)


def rejected(stage, overrides, tmp_path):
    """Message of the UserError that running up to `stage` raises; the command line shows it as one line."""
    with pytest.raises(UserError) as caught:
        run_stages(stage, overrides, tmp_path / "outputs")
    return str(caught.value)

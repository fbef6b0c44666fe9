"""Samples of `tests.faults`: faults over a tiny experiment, in processes of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _faults(what: str, times: int) -> str:
    command = [sys.executable, "-m", "tests.faults", what, str(times)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _may_mount(folder: Path) -> bool:
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=4096"):
        return False
    return libc.umount(os.fsencode(folder)) == 0


@pytest.mark.slow
def test_an_experiment_ends_in_the_same_files_after_many_faults() -> None:
    assert "killed, then the same" in _faults("points", 15)


@pytest.mark.slow
def test_an_experiment_resumes_after_a_full_disk(tmp_path: Path) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("a disk that fills up is a tmpfs of its own: this process may not mount one")
    assert _faults("disks", 4)


@pytest.mark.slow
def test_no_flipped_bit_of_an_experiment_is_used() -> None:
    assert "rejected" in _faults("flips", 100)

from __future__ import annotations

import errno
import io
import os

import pytest
from rich.console import Console

from experiments.cli import console as module
from experiments.cli.console import Reporter, duration, si


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (512, "512"), (999.9, "1k"), (8192, "8.19k"), (94_200_000, "94.2M"), (2.5e12, "2.5T")],
)
def test_si(value: float, shown: str) -> None:
    assert si(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.0 s"), (59.96, "1 min 00 s"), (83, "1 min 23 s"), (3600, "1 h 00 min")]
)
def test_duration(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_without_a_terminal_progress_is_occasional_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    reporter = Reporter(Console(file=out, width=40))
    with reporter.stage("count"):
        for done in range(31):
            reporter.progress("bytes", done * 1_000_000, 40_000_000)
            now[0] += 1
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0] == "  count: bytes 16M of 40M, 1M/s, 24.0 s left"


def test_on_a_terminal_progress_is_a_bar_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", -1.0)
    out = io.StringIO()
    reporter = Reporter(Console(file=out, force_terminal=True, width=100))
    with reporter.stage("count"):
        for done in (1, 2_000_000, 30_000_000):
            reporter.progress("counting", done, 40_000_000)
            assert reporter._bars is not None
            reporter._bars.refresh()
    assert "counting" in out.getvalue()
    assert "30M/40M" in out.getvalue()


def test_progress_outside_a_stage_is_silent() -> None:
    out = io.StringIO()
    Reporter(Console(file=out, force_terminal=True)).progress("counting", 1, None)
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_disk_errors_are_one_line_with_path_and_remedy(
    number: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> None:
        raise OSError(number, os.strerror(number), "store/lm-1")

    assert module.exit_code(job) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("error: store/lm-1: ")
    assert said in complaint
    assert "Finished stages are kept" in complaint
    assert complaint.count("\n") == 1


def test_other_system_errors_are_not_explained() -> None:
    assert module.storage_error(OSError(errno.ECONNRESET, "reset")) is None

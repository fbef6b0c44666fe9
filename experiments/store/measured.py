"""Time and memory of a stage."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizer.durable import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = ".seconds"


@contextmanager
def measured(folder: Path) -> Iterator[dict[str, float | int]]:
    """Measure the seconds (including earlier attempts of a resumed stage) and peak memory of a block."""
    cost: dict[str, float | int] = {}
    record = folder / SECONDS
    before = seconds_so_far(folder) or 0.0
    _reset_peak_memory()
    start = time.perf_counter()
    try:
        yield cost
    finally:
        cost["seconds"] = round(before + time.perf_counter() - start, 3)
        cost["peak_memory_bytes"] = peak_memory()
        if folder.exists():
            with suppress(OSError):  # on a full disk, the block raises the error already
                write_whole(record, str(cost["seconds"]))
    record.unlink(missing_ok=True)


def seconds_so_far(folder: Path) -> float | None:
    """Return the seconds that earlier attempts of an unfinished stage took; None if unknown."""
    try:
        return float((folder / SECONDS).read_bytes())
    except (OSError, ValueError):
        return None


def _reset_peak_memory() -> None:
    with suppress(OSError):  # not Linux, or not permitted: the peak is then that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; on Linux, since the stage began."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

"""Tasks that tests send to Ray, whose workers import this module: it imports neither Torch nor pytest."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from tokenizer.errors import UserError


def _first(folder: Path, number: int) -> bool:
    """Whether this is the first attempt of a task."""
    try:
        (folder / f"{number}.attempted").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def stop_once(folder: Path, number: int, beat: object) -> Any:
    """Stop the process in the first attempt of the first two tasks."""
    if number < 2 and _first(folder, number):
        os.kill(os.getpid(), signal.SIGSTOP)
    yield from ()
    return number


def kill(number: int, beat: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def fail(number: int, beat: object) -> Any:
    yield from ()
    raise UserError("a.jsonl: line 3: not JSON")


def slowly(folder: Path, number: int, beat: object) -> Any:
    """Take half a second; the last task kills its worker in the first attempt."""
    if number == 9 and _first(folder, number):
        os.kill(os.getpid(), signal.SIGKILL)
    with (folder / "executed").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.5)
    yield from ()
    return number

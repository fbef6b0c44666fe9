"""Tasks that tests send to Ray, whose workers import this module: it imports neither Torch nor pytest."""

import os
import signal
import time
from contextlib import suppress

from tokenizer.errors import UserError


def _first(folder, number):
    """Whether this is the first attempt of a task."""
    try:
        (folder / f"{number}.attempted").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def hang_once(folder, number, beat):
    """Hang in the first attempt of the first two tasks, deaf to exceptions."""
    hangs = number < 2 and _first(folder, number)
    while hangs:
        with suppress(BaseException):
            time.sleep(600)
    yield from ()
    return number


def kill(number, beat):
    os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def fail(number, beat):
    yield from ()
    raise UserError("a.jsonl: line 3: not JSON")


def slowly(folder, number, beat):
    """Take half a second; the last task kills its worker in the first attempt."""
    if number == 9 and _first(folder, number):
        os.kill(os.getpid(), signal.SIGKILL)
    with (folder / "executed").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.5)
    yield from ()
    return number

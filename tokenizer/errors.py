"""The one exception that means: the user can mend this."""

from __future__ import annotations

import operator
from typing import SupportsIndex


class UserError(ValueError):
    """A mistake in what the user gave: the message names the value and the remedy.

    Commands print the message without a traceback and exit with code 2 (`experiments.cli`).
    """


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuses an argument that is no whole number of a range.

    Args:
        name: The argument's.
        value: What was given.
        least: The lowest that is possible.
        most: The highest, None for no limit.

    Raises:
        UserError: it is something else.
    """
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    number = operator.index(value) if isinstance(value, SupportsIndex) and whole else None
    if number is None or number < least or (most is not None and number > most):
        span = f"{least} or more" if most is None else f"{least} to {most}"
        kind = "a whole number, " if number is None else ""
        raise UserError(f"{name}={value!r} is not possible; use {kind}{span}")

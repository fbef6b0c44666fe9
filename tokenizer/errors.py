"""The one exception that means: the user can mend this."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex


class UserError(ValueError):
    """A mistake in what the user gave: the message names the value and the remedy.

    Commands print the message without a traceback and exit with code 2 (`experiments.cli`).
    """


_QUOTED = 200


def quoted(value: object) -> str:
    """What a message shows of a value: its `repr`, cut where it is long.

    >>> quoted("a b"), quoted("a" * 100_000)[190:]
    ("'a b'", "aaaaaaaaaaa' (100000 characters)")

    Args:
        value: a string or bytes of any length, or anything else.
    """
    if isinstance(value, str | bytes):
        if len(value) <= _QUOTED:
            return repr(value)
        return f"{value[:_QUOTED]!r} ({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    shown = repr(value)
    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}..."


def shortened(message: object) -> str:
    """A message of other software, which may quote a value whole: its start and its end where it is long."""
    text = str(message)
    return text if len(text) <= 3 * _QUOTED else f"{text[: 2 * _QUOTED]}...{text[-_QUOTED // 2 :]}"


def listed(names: Iterable[object]) -> str:
    """Names for a message, one after the other; of a long list the first."""
    text = ""
    for name in map(str, names):
        comma = ", " if text else ""
        if len(text) + len(name) > 4 * _QUOTED:
            return f"{text}{comma}..."
        text = f"{text}{comma}{name}"
    return text


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
        raise UserError(f"{name}={quoted(value)} is not possible; use {kind}{span}")

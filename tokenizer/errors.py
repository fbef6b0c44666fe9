"""`UserError`, raised for mistakes that the user can fix, and helpers for its messages."""

from __future__ import annotations

import difflib
import operator
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import SupportsIndex


class UserError(ValueError):
    """A mistake in the user's input. The message names the value and the remedy.

    A setting is named as the keyword argument, `NAME=VALUE`. Commands print it as their users type it
    (`experiments.cli.console.spell`).

    Commands print the message without a traceback and exit with code 2 (`experiments.cli`).
    """


class DataError(UserError):
    """A mistake in the data itself, which `on_error=skip` leaves out."""


DISTRIBUTION = "superbpe-framework"
_DISTRIBUTIONS = {"aiohttp": "fsspec", "hydra": "hydra-core", "vl_convert": "vl-convert-python"}
"""Distributions that install packages of other names."""


def missing_extra(error: ModuleNotFoundError) -> UserError:
    """The error for a package that is not installed, which names the first extra that installs it.

    Raises:
        ModuleNotFoundError: no extra of this distribution installs the package.
    """
    package = str(error.name).partition(".")[0]
    distribution = _DISTRIBUTIONS.get(package, package).replace("_", "-")
    for requirement in metadata.requires(DISTRIBUTION) or []:
        if found := re.match(rf"{re.escape(distribution)}\b(?!-).*; extra == .(\w+)", requirement):
            how = f"in the clone of {DISTRIBUTION}, run: pip install '.[{found[1]}]'"
            return UserError(f"the package {package} is not installed; {how}")
    raise error


@contextmanager
def needs_extra(purpose: str = "") -> Iterator[None]:
    """Raise imports of missing packages in the block as UserErrors that name the extra, after the purpose."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{purpose}{missing_extra(error)}") from None


_QUOTED = 200


def quoted(value: object) -> str:
    """The `repr` of a value for a message, truncated if it is long.

    >>> quoted("a b"), quoted("a" * 100_000)[190:]
    ("'a b'", "aaaaaaaaaaa' (100000 characters)")
    """
    if isinstance(value, str | bytes):
        if len(value) <= _QUOTED:
            return repr(value)
        return f"{value[:_QUOTED]!r} ({len(value)} {'bytes' if isinstance(value, bytes) else 'characters'})"
    shown = repr(value)
    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}..."


def shortened(message: object) -> str:
    """A message of other software, which may quote a long value: only its start and end if it is long."""
    text = str(message).strip()
    return text if len(text) <= 3 * _QUOTED else f"{text[: 2 * _QUOTED]}...{text[-_QUOTED // 2 :]}"


def listed(names: Iterable[object]) -> str:
    """Comma-separated names for a message; a long list is truncated."""
    return textwrap.shorten(", ".join(map(str, names)), 4 * _QUOTED, placeholder=" ...")


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(2000, "seed")
    ('1 seed', '2,000 seeds')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Reject an argument that is not a whole number in a range.

    Raises:
        UserError: the value is not a whole number, or is out of range.
    """
    if type(value) is int and least <= value and (most is None or value <= most):
        return  # the common case
    number = None
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with suppress(TypeError):  # most arrays have no index
            number = operator.index(value)
    if number is None or number < least or (most is not None and number > most):
        span = f"at least {least}" if most is None else f"from {least} to {most}"
        kind = "a whole number, " if number is None else ""
        raise UserError(f"{name}={quoted(value)} must be {kind}{span}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Reject an argument that is not one of the choices.

    Raises:
        UserError: the value is none of them.
    """
    if not isinstance(value, str | None) or value not in choices:
        known = ", ".join(str(choice) for choice in choices if choice is not None)
        hint = did_you_mean(str(value), [choice for choice in choices if isinstance(choice, str)])
        raise UserError(f"{name}={quoted(value)}{hint}; it is one of: {known}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word closest to `word`, or an empty string if none is close."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def check_strings(name: str, value: object) -> None:
    """Reject an argument that is not a list, or another collection, of strings.

    Raises:
        UserError: the value is not a collection of strings, or is one string.
    """
    collection = isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray)
    if not collection or not all(isinstance(string, str) for string in value):  # type: ignore[attr-defined]
        raise UserError(f"{name}={quoted(value)} is not a list of strings")

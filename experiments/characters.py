"""Untrusted text on pages and in charts: characters that hide, reorder or break what follows are shown as text."""

from __future__ import annotations

import re
from typing import Any

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = {"\r": "␍", "\x7f": "␡"}


def harmless(text: str) -> str:
    r"""Return a text with control and bidirectional characters made visible, except line feeds and tabs.

    >>> harmless("a\n\x00\u202eb")
    'a\n␀\\u202eb'
    """
    return _CONTROLS.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    char = match[0]
    return _PICTURES.get(char) or (chr(0x2400 + ord(char)) if ord(char) < 32 else f"\\u{ord(char):04x}")


def visible(text: str) -> str:
    r"""Return a token with all its line breaks, tabs and other control characters made visible.

    >>> visible(" a\n\tb\x00")
    ' a↵⇥b␀'
    """
    return harmless(text).replace("\n", "↵").replace("\t", "⇥")


def all_harmless(value: Any) -> Any:
    """Return a JSON-able value with `harmless` applied to every string in it, except keys."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {key: all_harmless(entry) for key, entry in value.items()}
    return [all_harmless(entry) for entry in value] if isinstance(value, list) else value

"""Griffe extension: examples (`>>>`) outside of an `Examples:` section become code blocks, not quotes."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?m)^>>> (?:.+\n?)+")


class Examples(griffe.Extension):
    """Fences the examples of all docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring:
            text = _EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = text.replace("  # doctest: +SKIP", "")

"""Waiting for a condition on a page without `eval`, which the pages' Content-Security-Policy forbids."""

from __future__ import annotations

import time
from typing import Any


def show_all(page: Any) -> None:
    """Open all details, and wait until all charts are drawn."""
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    wait_for(page, "document.querySelectorAll('.chart svg').length === document.querySelectorAll('.chart').length")


def wait_for(page: Any, expression: str, *, arg: Any = None, seconds: float = 30) -> None:
    """Wait until a JavaScript expression is true; `page.wait_for_function` calls `eval` in the page."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not true after {seconds:g} s: {expression}"
        page.wait_for_timeout(20)

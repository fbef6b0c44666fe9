"""Waiting for a condition on a page without `eval`, which the pages' Content-Security-Policy forbids."""

import time


def show_all(page):
    """Open all details, and wait until all charts are drawn."""
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    wait_for(page, "document.querySelectorAll('.chart svg').length === document.querySelectorAll('.chart').length")


def wait_for(page, expression, *, arg=None, seconds=30):
    """Wait until a JavaScript expression is true; `page.wait_for_function` calls `eval` in the page."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not true after {seconds:g} s: {expression}"
        page.wait_for_timeout(20)

"""Sliding windows that score every token of a document once, with contexts measured in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Window(NamedTuple):
    """One forward pass over part of x: `end_of_text`, the document's n tokens, `end_of_text`.

    Attributes:
        start: Position of the first input, x[start].
        first: Position of the first scored target; targets before it are only context.
        last: Position of the last scored target; the inputs are x[start:last].
        limited: Whether the number of positions, not bytes, determined the start or the end.
    """

    start: int
    first: int
    last: int
    limited: bool


def plan_windows(
    before: NDArray[Any], *, context_bytes: int, min_context_bytes: int, context_tokens: int
) -> list[Window]:
    """Cover the positions 1 .. n + 1 of a document, each scored by exactly one window.

    The context of a scored token has at most `context_bytes` bytes and `context_tokens` tokens, and at least
    `min_context_bytes` bytes if the document has that many. It is shorter in two cases: if a token is so long that both
    bounds cannot hold, or if tokens are so short that the context would leave less than half of the usual number of
    positions for scoring (this bounds the work).

    Args:
        before: int64[n + 2]; before[i] is the number of text bytes before x[i].
        context_bytes: Maximum context in bytes. A longer token is alone in the context of the next one.
        min_context_bytes: Minimum context in bytes; less than `context_bytes`.
        context_tokens: Maximum number of inputs of a forward pass.

    Returns:
        The windows, in order; the last one scores the final `end_of_text`.

    >>> plan_windows(np.array([0, 0, 3, 6, 9, 12]), context_bytes=9, min_context_bytes=3, context_tokens=9)
    [Window(start=0, first=1, last=4, limited=False), Window(start=4, first=5, last=5, limited=False)]
    """
    end = len(before) - 1
    usual = context_tokens * min_context_bytes // context_bytes
    most_context = max(1, context_tokens - (context_tokens - usual) // 2)
    windows: list[Window] = []
    first, start, limited = 1, 0, False
    while True:
        fitting = int(np.searchsorted(before, before[start] + context_bytes, side="right")) - 1
        by_bytes = max(first, min(end, fitting))
        last = min(by_bytes, start + context_tokens)
        windows.append(Window(start, first, last, limited or last < by_bytes))
        if last == end:
            return windows
        first = last + 1
        latest = int(np.searchsorted(before, before[first] - min_context_bytes, side="right")) - 1
        earliest = int(np.searchsorted(before, before[first] - context_bytes, side="left"))
        start = min(first - 1, max(latest, earliest, 0))
        limited = first - start > most_context
        if limited:
            start = first - most_context

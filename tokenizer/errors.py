"""The one exception that means: the user can mend this."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave: the message names the value and the remedy.

    Commands print the message without a traceback and exit with code 2 (`experiments.cli`).
    """

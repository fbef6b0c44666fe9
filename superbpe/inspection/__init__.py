"""Inspection of vocabularies and of their effect on a text."""

from typing import Any

from tokenizer.moved import attribute


def __getattr__(name: str) -> Any:
    return attribute(__name__, "superbpe.inspection.vocabulary", name)

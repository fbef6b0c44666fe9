"""What is in a vocabulary, and what it does to a text."""

from typing import Any

from tokenizer.moved import attribute


def __getattr__(name: str) -> Any:
    return attribute(__name__, "superbpe.inspection.vocabulary", name)

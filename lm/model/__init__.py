"""The transformer, its loss, and generation."""

from typing import Any

from tokenizer.moved import attribute


def __getattr__(name: str) -> Any:
    return attribute(__name__, "lm.model.transformer", name)

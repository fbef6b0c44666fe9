"""What several test files share and is worth making once."""

from __future__ import annotations

import sys

import pytest
import regex

CLASSES = [r"\p{L}", r"\p{N}", r"\s", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"]


@pytest.fixture(scope="session")
def scalars() -> list[str]:
    """Every Unicode scalar value."""
    return [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


@pytest.fixture(scope="session")
def classes(scalars: list[str]) -> dict[str, tuple[set[str], set[str]]]:
    """By class of the named patterns: its members in HF's engine, and in the `regex` module."""
    tokenizers = pytest.importorskip("tokenizers")
    everything = "".join(scalars)

    def hf_members(class_: str) -> set[str]:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(class_ + "+"), "removed")
        return set(scalars).difference(*(piece for piece, _ in split.pre_tokenize_str(everything)))

    return {class_: (hf_members(class_), set(regex.findall(class_, everything))) for class_ in CLASSES}


@pytest.fixture(scope="session")
def disputed(classes: dict[str, tuple[set[str], set[str]]]) -> set[str]:
    """Characters which the two put into different classes: newer versions of Unicode assign what was free."""
    return set().union(*(hf ^ newer for hf, newer in classes.values()))

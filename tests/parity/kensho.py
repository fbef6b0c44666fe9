r"""Merges of *Faster Superword Tokenization*'s trainer on generated corpora: the corpora, and how they were recorded.

The trainer is the Rust one of github.com/kensho-technologies/fastboundlessbpe, commit
c2dce3131093aa4c7fc595c91b15a861dea3094c, without deletions (tau = 1.1), greedy splits or a pattern by script. The
program that ran it on these corpora is this file at commit 7ec16780.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDED = Path(__file__).with_name("kensho.json")
N_CASES, N_SPELLED = 360, 24

REGEXES = {
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
"""The first is the trainer's own."""

SPACES = [" ", " ", " ", " ", " ", "", "  ", "\n", ", ", ". ", "-", " 12 ", "'s "]


@dataclass(frozen=True)
class Case:
    """One corpus and what to do with it.

    Attributes:
        pattern: a key of `REGEXES`.
        documents: the corpus.
        words: merges asked of phase 1, which both modes start from.
        supermerges: asked of the mode "SuperBPE"; "BoundlessBPE" goes by the number of phase 1's.
    """

    pattern: str
    documents: list[str]
    words: int
    supermerges: int


def _document(rng: random.Random, words: list[str], phrases: list[str]) -> str:
    """Words, phrases, and words that follow themselves: of such a row not all adjacent pairs can be merged."""
    parts = []
    for _ in range(rng.randrange(1, 40)):
        what = rng.choice([rng.choice(words), rng.choice(phrases), rng.choice(phrases)])
        repeated = rng.choice([1, 1, 1, 1, 2, 3, 5])
        parts.append(rng.choice(["", " "]).join([what + rng.choice(SPACES)] * repeated))
    return "".join(parts)


def cases() -> Iterator[Case]:
    """The same cases in every run."""
    rng = random.Random(2604)
    for number in range(N_CASES):
        syllables = rng.choice([["an", "the", "or", "to", "Qu", "é", "s", "of"], ["a", "b"], ["a", "中", "'s", "B"]])
        words = ["".join(rng.choices(syllables, k=rng.choice([1, 1, 2, 3]))) for _ in range(rng.choice([2, 5, 12]))]
        phrases = [" ".join(rng.choices(words, k=rng.randrange(2, 6))) for _ in range(4)]
        documents = [_document(rng, words, phrases) for _ in range(rng.choice([1, 3, 9]))]
        yield Case(
            pattern=["o200k", "gpt2"][number % 2],
            documents=["an or " + documents[0], *documents[1:]],  # never without a pair, which it does not expect
            words=rng.randrange(1, 60),
            supermerges=rng.randrange(1, 40),
        )

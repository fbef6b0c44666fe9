r"""Merges of the released SuperBPE trainer on generated corpora: the corpora, and how the merges were recorded.

The trainer is a fork of HF tokenizers 0.20.1, github.com/alisawuffles/tokenizers-superbpe, commit
757f2a55c0820ed47064e1fe473deea39b7b611b; the two calls are those of github.com/PythonNut/superbpe, commit bbd0976
(`scripts/train_tokenizer.sh`, `scripts/extend_tokenizer.sh`) and, for the paper's regexes, commit 5df84b0 (`utils.py`).
The program that ran it on these corpora is this file at commit 7ec16780.
"""

import hashlib
import random
from pathlib import Path
from typing import NamedTuple

from tokenizer.definition import printable

RECORDED = Path(__file__).with_name("released.json")
N_CASES, N_SPELLED = 480, 32

_STAGE1 = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
REGEXES = {
    "uw-2025": (_STAGE1, r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"),
    "uw-paper": (
        r"(?=(\d{3})+(?!\d))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?=(\d{3})+(?!\d))",
    ),
}
"""Of stage 1 and stage 2; `uw-paper` isolates runs of digits before it."""

LETTERS = ["ab ", "aab \n", "ab: \n", "a1 2\n", "xyz'st \n", "aB \n", "é中a \n", "a-. \n", "aa", "\r\n a", "a\n  "]
MARKS = ["", "", "", "", ",", ".", ":", " -", "...", "?!", "'s", "://", '"', " ==", ";\r"]


class Case(NamedTuple):
    """One corpus and what to do with it."""

    recipe: str  # a key of `REGEXES`
    text: str  # the file that both stages read
    phase1: int  # merges asked of stage 1
    kept: int  # merges that stage 2 inherits: the N - 1 that `head -n N merges.txt` leaves under the header
    total: int  # merges asked of stage 2, inherited ones included


def _phrases(rng):
    """Lines out of a few words and phrases, so that superwords of many words are frequent enough to be vetoed."""
    syllables = ["an", "the", "or", "er", "to", "Qu", "ing", "é", "s", "of"]
    words = ["".join(rng.choices(syllables, k=rng.choice([1, 1, 2, 3]))) for _ in range(12)]
    phrases = [" ".join(rng.choices(words, k=rng.randrange(2, 8))) for _ in range(5)]
    parts = []
    for _ in range(rng.randrange(40, 200)):
        what = rng.choice([rng.choice(words), rng.choice(phrases), str(rng.randrange(10 ** rng.randrange(1, 8)))])
        parts.append(what + rng.choice(MARKS) + rng.choice([" ", " ", " ", " ", "  ", "\n", "\n\n", "\n    "]))
    return "".join(parts)


def _letters(rng):
    """Few letters in any order, where ties, runs and pairs that vanish are the rule."""
    letters = rng.choice(LETTERS)
    return "".join("".join(rng.choices(letters, k=rng.randrange(1, 40))) * rng.choice([1, 1, 2, 5]) for _ in range(6))


def cases():
    """The same cases in every run."""
    rng = random.Random(2503)
    for number in range(N_CASES):
        phrases = number % 2 == 0
        text = _phrases(rng) if phrases else _letters(rng)
        phase1 = rng.randrange(8, 90 if phrases else 30)
        kept = rng.randrange(0, phase1 + 1)
        yield Case(
            recipe=["uw-2025", "uw-2025", "uw-paper"][number % 3],
            text=text,
            phase1=phase1,
            kept=kept,
            total=kept + rng.randrange(0, 90 if phrases else 30),
        )


def lines(merges):
    """Merges as lines of merges.txt."""
    return [f"{printable(left)} {printable(right)}" for left, right in merges]


def digest(merges):
    """Short hash of a list of merges, each as its line in merges.txt."""
    return hashlib.sha256("\n".join(merges).encode()).hexdigest()[:16]

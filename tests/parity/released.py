r"""Merges of the released SuperBPE trainer on generated corpora: the corpora, and how the merges were recorded.

The trainer is a fork of HF tokenizers 0.20.1, github.com/alisawuffles/tokenizers-superbpe, commit
757f2a55c0820ed47064e1fe473deea39b7b611b; the two calls are those of github.com/PythonNut/superbpe, commit bbd0976
(`scripts/train_tokenizer.sh`, `scripts/extend_tokenizer.sh`) and, for the paper's regexes, commit 5df84b0 (`utils.py`).
This file needs nothing but the fork, and no package of this project:

    git clone https://github.com/alisawuffles/tokenizers-superbpe fork
    git -C fork checkout 757f2a55c0820ed47064e1fe473deea39b7b611b
    python3.11 -m venv fork-env && fork-env/bin/pip install ./fork/bindings/python
    fork-env/bin/python tests/parity/released.py

The fork's package is called `tokenizers` too, and cannot be installed beside HF's.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@dataclass(frozen=True)
class Case:
    """One corpus and what to do with it.

    Attributes:
        recipe: a key of `REGEXES`.
        text: the file that both stages read.
        phase1: merges asked of stage 1.
        kept: merges that stage 2 inherits: the N - 1 that `head -n N merges.txt` leaves under the header.
        total: merges asked of stage 2, inherited ones included.
    """

    recipe: str
    text: str
    phase1: int
    kept: int
    total: int


def _phrases(rng: random.Random) -> str:
    """Lines out of a few words and phrases, so that superwords of many words are frequent enough to be vetoed."""
    syllables = ["an", "the", "or", "er", "to", "Qu", "ing", "é", "s", "of"]
    words = ["".join(rng.choices(syllables, k=rng.choice([1, 1, 2, 3]))) for _ in range(12)]
    phrases = [" ".join(rng.choices(words, k=rng.randrange(2, 8))) for _ in range(5)]
    parts = []
    for _ in range(rng.randrange(40, 200)):
        what = rng.choice([rng.choice(words), rng.choice(phrases), str(rng.randrange(10 ** rng.randrange(1, 8)))])
        parts.append(what + rng.choice(MARKS) + rng.choice([" ", " ", " ", " ", "  ", "\n", "\n\n", "\n    "]))
    return "".join(parts)


def _letters(rng: random.Random) -> str:
    """Few letters in any order, where ties, runs and pairs that vanish are the rule."""
    letters = rng.choice(LETTERS)
    return "".join("".join(rng.choices(letters, k=rng.randrange(1, 40))) * rng.choice([1, 1, 2, 5]) for _ in range(6))


def cases() -> Iterator[Case]:
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


def digest(merges: list[str]) -> str:
    """Short hash of a list of merges, each as its line in merges.txt."""
    return hashlib.sha256("\n".join(merges).encode()).hexdigest()[:16]


@contextmanager
def _quiet() -> Iterator[None]:
    """The fork prints every merge that it drops."""
    saved, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nothing)


def train(recipe: str, stage: int, file: Path, n_merges: int, n_bytes: int) -> list[str]:
    """Runs the fork in the working directory; where that has a merges.txt, the fork extends it.

    Args:
        recipe: a key of `REGEXES`.
        stage: 1 or 2.
        file: the text.
        n_merges: merges asked for.
        n_bytes: distinct bytes of the text, which are the alphabet and count for the size.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    first = [pre_tokenizers.Digits(individual_digits=False)] if recipe == "uw-paper" else []
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *first,
            pre_tokenizers.Split(Regex(REGEXES[recipe][stage - 1]), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        ]
    )
    model.train([str(file)], trainers.BpeTrainer(show_progress=False, vocab_size=n_bytes + n_merges))
    model.model.save(".")
    return Path("merges.txt").read_text(encoding="utf-8").splitlines()[1:]


def record(case: Case) -> dict[str, object]:
    """Both stages of the fork, in a working directory of their own."""
    n_bytes = len(set(case.text.encode()))
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            file = Path("corpus.txt")
            file.write_bytes(case.text.encode())
            phase1 = train(case.recipe, 1, file, case.phase1, n_bytes)
            head = Path("merges.txt").read_text(encoding="utf-8").splitlines(keepends=True)[: case.kept + 1]
            Path("merges.txt").write_text("".join(head), encoding="utf-8")
            merges = train(case.recipe, 2, file, case.total, n_bytes)
        finally:
            os.chdir(before)
    kept = set(phase1[: case.kept])
    inherited = [merge for merge in merges if merge in kept]
    return {"text": digest([case.text]), "phase1": phase1, "inherited": inherited, "new": merges[len(inherited) :]}


def main() -> None:
    """Records all cases: the first ones spelled out, the others as hashes."""
    rows = []
    for number, case in enumerate(cases()):
        with _quiet():
            row = record(case)
        row["n_new"] = len(row["new"])  # type: ignore[arg-type]
        if number >= N_SPELLED:
            row |= {key: digest(row[key]) for key in ("phase1", "inherited", "new")}  # type: ignore[arg-type]
        rows.append(row)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    RECORDED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

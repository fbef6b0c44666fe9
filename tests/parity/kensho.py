r"""Merges of *Faster Superword Tokenization*'s trainer on generated corpora: the corpora, and how they were recorded.

The trainer is the Rust one of github.com/kensho-technologies/fastboundlessbpe, commit
c2dce3131093aa4c7fc595c91b15a861dea3094c, without deletions (tau = 1.1), greedy splits or a pattern by script. This
file needs nothing but it, and no package of this project:

    git clone https://github.com/kensho-technologies/fastboundlessbpe kensho
    git -C kensho checkout c2dce3131093aa4c7fc595c91b15a861dea3094c
    python3.11 -m venv kensho-env && kensho-env/bin/pip install ./kensho
    kensho-env/bin/python tests/parity/kensho.py
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

RECORDED = Path(__file__).with_name("kensho.json")
N_CASES, N_SPELLED = 360, 24
N_BYTES = 243
"""Its vocabulary starts with the bytes that UTF-8 has."""

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


def digest(lines: list[str]) -> str:
    """Short hash of a list of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@contextmanager
def _quiet() -> Iterator[None]:
    """The trainers say much."""
    saved, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nothing)


def merges(model: Path, section: str) -> list[str]:
    """The merges of one section of a model file, each as its two parts and its count."""
    lines = model.read_text(encoding="utf-8").split("\n")
    start = lines.index("merges", lines.index(section))
    rows = lines[start + 2 : start + 2 + int(lines[start + 1])]
    return [" ".join(row.split(" ")[1:4]) for row in rows]


def record(case: Case, folder: Path) -> dict[str, list[str]]:
    """Phase 1 and both modes, with the working files in `folder`."""
    from boundlessbpe import FastBoundlessBpeTrainer, FastBpeTrainer, FastSuperBpeTrainer

    file, most = str(folder / "corpus.jsonl"), 10**15
    Path(file).write_text("".join(json.dumps({"text": text}) + "\n" for text in case.documents), encoding="utf-8")
    out, word, regex = str(folder / "out"), str(folder / "word"), REGEXES[case.pattern]
    trainer = FastBpeTrainer(main_regex=regex)
    trainer.train(1.1, file, out, most, N_BYTES + case.words, 0, False, most, 0, False, 0)
    trainer.save(word)
    found = {"words": merges(Path(f"{word}.model"), "words")}
    trainer = FastSuperBpeTrainer(main_regex=regex)
    trainer.train(file, out, most, case.supermerges, 0, f"{word}.model", most, 0, False, 0)
    trainer.save(str(folder / "runs"))
    found["runs"] = merges(folder / "runs.model", "superwords")
    trainer = FastBoundlessBpeTrainer(main_regex=regex)
    trainer.train(file, out, most, 0, f"{word}.model", most, 0, False, 0)
    trainer.save(str(folder / "boundless"))
    found["boundless_words"] = merges(folder / "boundless.model", "words")
    found["boundless"] = merges(folder / "boundless.model", "superwords")
    return found


def main() -> None:
    """Records all cases: the first ones spelled out, the others as hashes."""
    rows = []
    for number, case in enumerate(cases()):
        with tempfile.TemporaryDirectory() as folder, _quiet():
            found = record(case, Path(folder))
        row: dict[str, object] = {"text": digest(case.documents)}
        for key, lines in found.items():
            row[key] = lines if number < N_SPELLED else {"n": len(lines), "hash": digest(lines)}
        rows.append(row)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    RECORDED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

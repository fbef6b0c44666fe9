"""Merges and counts equal to those of the trainer of *Faster Superword Tokenization*, recorded on generated corpora.

The trainer is the Rust one of github.com/kensho-technologies/fastboundlessbpe, commit
c2dce3131093aa4c7fc595c91b15a861dea3094c, without deletions (tau = 1.1), greedy splits or a pattern by script. The
program that ran it on these corpora is `tests/parity/kensho.py` at commit 7ec16780. Its phase 1 counts as its phase 2
does: of a row of one token, the pairs that one merge would join. Ours counts it as HF does; as a rule of phase 2 it can
do the other, too.
"""

import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from superbpe import Rules, train_superbpe
from tests.parity.released import digest
from tokenizer import Batch, Tokenizer, patterns
from tokenizer.definition import printable

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")]

RECORDED = Path(__file__).with_name("kensho.json")
N_CASES = 360

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


class Case(NamedTuple):
    """One corpus and what to do with it."""

    pattern: str  # a key of `REGEXES`
    documents: list[str]
    words: int  # merges asked of phase 1, which both modes start from
    supermerges: int  # asked of the mode "SuperBPE"; "BoundlessBPE" goes by the number of phase 1's


def _document(rng, words, phrases):
    """Words, phrases, and words that follow themselves: of such a row not all adjacent pairs can be merged."""
    parts = []
    for _ in range(rng.randrange(1, 40)):
        what = rng.choice([rng.choice(words), rng.choice(phrases), rng.choice(phrases)])
        repeated = rng.choice([1, 1, 1, 1, 2, 3, 5])
        parts.append(rng.choice(["", " "]).join([what + rng.choice(SPACES)] * repeated))
    return "".join(parts)


def cases():
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


def _lines(merges, counts):
    return [f"{printable(left)} {printable(right)} {n}" for (left, right), n in zip(merges, counts, strict=True)]


def _matches(found, recorded):
    if isinstance(recorded, list):
        return found == recorded
    return {"n": len(found), "hash": digest(found)} == recorded


def _n(recorded):
    return len(recorded) if isinstance(recorded, list) else recorded["n"]


def _superbpe(phase1, batch, **options):
    """A tokenizer, and its phase-2 merges with their counts."""
    counts = []
    found = train_superbpe(phase1, lambda: [batch], threads=1, on_counts=lambda n: counts.extend(n.tolist()), **options)
    return found, _lines(found.merges[found.n_phase1_merges :], counts)


@pytest.fixture(scope="module")
def rows():
    """Each case, what was recorded for it, its text, and our phase 1 by its rule with its merges."""
    found = []
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for case, row in zip(cases(), recorded, strict=True):
        assert digest(case.documents) == row["text"], "the corpora are not those that were recorded"
        batch, pattern = Batch.from_texts(case.documents), patterns.resolve(case.pattern)
        rules = Rules(fence=case.pattern, counting="non-overlapping", tie_break="lexicographic-smallest")
        size = 256 + _n(row["words"])
        nothing = Tokenizer.from_ranks([], pattern=pattern)
        words, lines = _superbpe(nothing, batch, vocab_size=size, rules=rules, transition_merges=0)
        found.append((case, row, batch, Tokenizer.from_ranks(words.ranks(), pattern=pattern), lines))
    return found


def test_the_patterns_are_the_recorded_ones():
    assert {name: patterns.resolve(name).regex for name in REGEXES} == REGEXES


def test_phase_1_with_its_counting_rule_is_equal(rows):
    for case, row, _, _, lines in rows:
        assert _matches(lines, row["words"]), case


def test_runs_gives_its_superwords(rows):
    for case, row, batch, phase1, _ in rows:
        n = _n(row["runs"])
        options = {"vocab_size": phase1.vocab_size + max(n, 1), "transition_merges": len(phase1.merges)}
        _, found = _superbpe(phase1, batch, rules="runs", **options)
        assert _matches(found, row["runs"]), case
        assert n <= case.supermerges


def test_boundless_gives_its_superwords_and_transition(rows):
    early = 0
    for case, row, batch, phase1, lines in rows:
        found, superwords = _superbpe(phase1, batch, vocab_size=phase1.vocab_size, rules="boundless")
        assert _matches(superwords, row["boundless"]), case
        n = _n(row["boundless_words"])
        assert _matches(lines[:n], row["boundless_words"]), case
        # Where no two words are left to join it stops, with room in the vocabulary and words that had a place there.
        if n != found.n_phase1_merges:
            early += 1
            assert n < found.n_phase1_merges
            assert len(superwords) == _n(row["runs"]) < case.supermerges
    assert early == 4

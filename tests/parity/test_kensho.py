"""Merges and counts equal to those of the trainer of *Faster Superword Tokenization*, recorded on generated corpora.

How they were recorded: see `tests.parity.kensho`. Its phase 1 counts as its phase 2 does: of a row of one token, the
pairs that one merge would join. Ours counts it as HF does; as a rule of phase 2 it can do the other, too.
"""

import json

import pytest

from superbpe import Rules, train_superbpe
from tests.parity import kensho
from tests.parity.released import digest
from tokenizer import Batch, Tokenizer, count_pretokens, patterns, train_bpe
from tokenizer.definition import printable

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")]


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
    recorded = json.loads(kensho.RECORDED.read_text(encoding="utf-8"))
    for case, row in zip(kensho.cases(), recorded, strict=True):
        assert digest(case.documents) == row["text"], "the corpora are not those that were recorded"
        batch, pattern = Batch.from_texts(case.documents), patterns.resolve(case.pattern)
        rules = Rules(fence=case.pattern, counting="non-overlapping", tie_break="lexicographic-smallest")
        size = 256 + _n(row["words"])
        nothing = Tokenizer.from_ranks([], pattern=pattern)
        words, lines = _superbpe(nothing, batch, vocab_size=size, rules=rules, transition_merges=0)
        found.append((case, row, batch, Tokenizer.from_ranks(words.ranks(), pattern=pattern), lines))
    return found


def test_the_patterns_are_the_recorded_ones():
    assert {name: patterns.resolve(name).regex for name in kensho.REGEXES} == kensho.REGEXES


def test_phase_1_with_its_counting_rule_is_equal(rows):
    for case, row, _, _, lines in rows:
        assert _matches(lines, row["words"]), case


def test_phase_1_counted_as_hf_counts_differs_where_a_token_follows_itself(rows):
    others = 0
    for case, _, batch, phase1, _ in rows:
        counts = count_pretokens([batch], case.pattern, threads=1)
        merges = train_bpe(counts, phase1.vocab_size, special_tokens=(), tie_break="lexicographic-smallest").merges
        if merges != phase1.merges:
            others += 1
            ours, theirs = next(pair for pair in zip(merges, phase1.merges, strict=True) if pair[0] != pair[1])
            assert ours[0] == ours[1] or theirs[0] == theirs[1], case
    assert others == 52


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

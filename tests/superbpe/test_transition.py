from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from superbpe import PRESETS, reference, train_superbpe
from superbpe.transition import Merges, interleave
from tests.properties import examples
from tests.superbpe.oracle import batches
from tokenizer import Batch, count_pretokens, train_bpe


def merges(*rows):
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Merges(*columns)


def test_interleave():
    phase1 = np.array([9, 7, 7, 2])
    superwords = merges((256, 257, 7), (260, 256, 3), (258, 258, 3), (259, 257, 2))
    # 9, 7, 7 (a tie is phase 1's), then 7 > 2, 3 > 2, 3 > 2, then 2 against 2, and what is left.
    sizes = [interleave(phase1, superwords, n) for n in range(9)]
    assert sizes == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3), (4, 3), (4, 4)]
    assert interleave(phase1, superwords, 20) == (4, 4)
    # Rarer candidates are unknown. They matter once the last known one is taken.
    assert interleave(phase1, merges(), 3, unseen=7) == (3, 0)
    assert interleave(phase1, merges(), 4, unseen=2) == (4, 0)
    assert interleave(phase1, merges(), 4, unseen=3) is None
    assert interleave(phase1, superwords, 9, unseen=1) is None


def test_a_superword_waits_for_its_parts():
    # On other text than phase 1's, (258, 256) can be more frequent than what makes 258.
    phase1 = np.array([5, 5, 1, 4])
    assert [interleave(phase1, merges((258, 256, 9), (256, 257, 8)), n) for n in range(1, 7)] == [
        *[(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (4, 2)]
    ]


WORDS = st.lists(st.sampled_from(["a", "b", "ab", "ba", "abc", "x"]), min_size=1, max_size=8).map(" ".join)


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@examples(quick=30, full=60, documents=st.lists(WORDS, min_size=1, max_size=8), n_merges=st.integers(1, 20))
def test_boundless_equals_making_merges_one_by_one(documents, n_merges):
    """Interleaving two finished lists equals making merges one by one on the documents."""
    phase1 = train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2"), 256 + 40, special_tokens=())
    rules = PRESETS["boundless"]
    pieces = reference.training_pieces(documents, phase1.merges, phase1.pattern.regex, replace(rules))
    counts = reference.times_applied(pieces, phase1.merges, "kept")
    assume(counts == sorted(counts, reverse=True))  # phase 1 counts overlapping pairs
    tokenizer = train_superbpe(phase1, batches(documents), vocab_size=256 + n_merges, rules=rules)
    regular, superwords = reference.boundless(documents, phase1.merges, phase1.pattern.regex, n_merges, rules)
    assert tokenizer.merges == regular + superwords
    assert tokenizer.n_phase1_merges == len(regular)


@given(documents=st.lists(WORDS, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_runs_are_the_pieces_of_two_or_more_pretokens(documents):
    phase1 = train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2"), 256 + 10, special_tokens=())
    rules = replace(PRESETS["runs"])
    pieces = reference.training_pieces(documents, phase1.merges, phase1.pattern.regex, rules)
    runs = reference.runs(documents, phase1.merges, phase1.pattern.regex, rules.eligible)
    assert {piece: count for piece, count in pieces.items() if len(piece) > 1} == runs

"""The merges of the source documents' worked examples, by every rung.

Where a document contradicts itself or the facts, a comment says so, and the test holds to what its example shows.
"""

import pytest

from experiments.benchmarks.ladder import TRAINERS
from tokenizer.reference import count_pretokens

SMALLEST, GREATEST = "lexicographic-smallest", "lexicographic-greatest"
# Production BPE.
LOW_NEWER = {b"low": 5, b"lower": 2, b"newer": 6}
# The CS336 trainer on TinyStories. Its corpus is in a figure; these counts give all that its text says.
LOW_LOWER = {b"low": 3, b"lower": 2}
# The BPE Algorithm, fully worked. Its prose and its examples take the smaller pair; its code sketch,
# `max(..., key=(count, pair))`, the greater.
AS_WRITTEN = {b"I work": 2, b"I worked": 1, b"he works": 1, b"he worked": 1}
# The document's tables give (_, w) 3. Its corpus holds it five times, also after "he"; then (_, w), which is
# smaller than (o, r), would win the first tie. Its figures are those of this corpus, with "he " apart.
AS_COUNTED = {b"I work": 2, b"I worked": 1, b"he ": 2, b"works": 1, b"worked": 1}
HE_EATS = count_pretokens(["he eats", "he eats", "I eat", "you eat"], None)


@pytest.mark.parametrize(
    ("counts", "n", "tie_break", "expected"),
    [
        # After (e, r), the pair (w, er) has all eight occurrences that (w, e) was tied with.
        (LOW_NEWER, 4, SMALLEST, "e r 8, w er 8, l o 7, e wer 6"),
        # The other reading of "lexicographic order": the greater pair first.
        (LOW_NEWER, 1, GREATEST, "w e 8"),
        (LOW_LOWER, 9, GREATEST, "o w 5, l ow 5, low e 2, lowe r 2"),
        (AS_COUNTED, 4, SMALLEST, "o r 5, or k 5, w ork 5, _ work 3"),
        (AS_WRITTEN, 4, SMALLEST, "_ w 5, _w o 5, _wo r 5, _wor k 5"),
        # By the code sketch, the greater pair.
        (AS_WRITTEN, 4, GREATEST, "w o 5, wo r 5, wor k 5, _ work 5"),
        # `eat` becomes a token only with its space, but by the code sketch at the second merge.
        (HE_EATS, 4, SMALLEST, "_ e 4, _e a 4, _ea t 4, _eat s 2"),
        (HE_EATS, 4, GREATEST, "e a 4, ea t 4, _ eat 4, h e 2"),
    ],
)
@pytest.mark.parametrize("name", [name for name in TRAINERS if name not in ("approximate", "parallel")])
def test_merges_of_the_examples(name, counts, n, tie_break, expected):
    """`"n e w"` is a word of byte strings, with `_` for the space, as the documents write it."""
    rows = (row.split() for row in expected.split(","))
    assert [
        (left.decode().replace(" ", "_"), right.decode().replace(" ", "_"), count)
        for left, right, count in TRAINERS[name](counts, n, tie_break=tie_break)
    ] == [(left, right, int(count)) for left, right, count in rows]

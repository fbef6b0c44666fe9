"""Segments between shared token boundaries, and their classes."""

import random
from itertools import groupby, pairwise

import numpy as np
import pytest

from lm.evaluate import segments
from lm.evaluate.segments import CLASSES, classes, labels, shared_segments
from tests.lm.conftest import TEXTS


def labelled(text):
    """Parts of a text with one class each."""
    pairs = zip(text.encode(), labels(text).tolist(), strict=True)
    return [
        (bytes(byte for byte, _ in part).decode(), CLASSES[label]) for label, part in groupby(pairs, lambda p: p[1])
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Don't  go", [("Don't", "words"), (" ", "line ends and indentation"), (" go", "words")]),
        ("a:\n\tb ", [("a", "words"), (":", "punctuation"), ("\n\t", "line ends and indentation"), ("b", "words"),
                      (" ", "line ends and indentation")]),
        (" 1,234.5 of 0x1F", [(" 1,234.5", "numbers"), (" of", "words"), (" 0x1F", "numbers")]),
        ("foo_bar (maxValue", [("foo_bar", "identifiers"), (" (", "punctuation"), ("maxValue", "identifiers")]),
        ("os.path.join(x", [("os.path.join", "identifiers"), ("(", "punctuation"), ("x", "words")]),
        ("and/or, e.g. U.S.", [("and", "words"), ("/", "punctuation"), ("or", "words"), (",", "punctuation"),
                               (" e", "words"), (".", "punctuation"), ("g", "words"), (".", "punctuation"),
                               (" U", "words"), (".", "punctuation"), ("S", "words"), (".", "punctuation")]),
        ("see https://a.b/c?d=1. x", [("see", "words"), (" https://a.b/c?d=1", "URLs and paths"), (".", "punctuation"),
                                      (" x", "words")]),
        ("/usr/bin 1/2/3", [("/usr/bin", "URLs and paths"), (" 1", "numbers"), ("/", "punctuation"), ("2", "numbers"),
                            ("/", "punctuation"), ("3", "numbers")]),
        ("<b></b", [("<", "punctuation"), ("b", "words"), ("></", "punctuation"), ("b", "words")]),
        ("naïve 東京 мир ٣ 🙂", [("naïve", "words"), (" 東京 мир", "other scripts"), (" ٣", "numbers"),
                              (" 🙂", "punctuation")]),
        ("", []),
    ],
)  # fmt: skip
def test_labels(text, wanted):
    assert labelled(text) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("part", ["a", "a.", "a/", "a_", "a@", "1,", "aB", ":", "a.b@"])
def test_long_runs_take_linear_time(part):
    assert len(labels(part * 200_000)) == 200_000 * len(part)


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_those_of_a_plain_search(seed):
    rng = random.Random(seed)
    texts = [text for text in rng.choices([*TEXTS, "naïve — 東京 🙂", "x"], k=8) if text]
    joined, places, ends, wanted = "\n".join(texts).encode(), [], ([], []), []
    start = 0
    for text in texts:
        size = len(text.encode())
        cuts = [sorted({*rng.choices(range(size + 1), k=size), size}) for _ in ends]
        for of_tokenizer, cut in zip(ends, cuts, strict=True):
            of_tokenizer += [start + end for end in cut]
        characters = {len(text[:i].encode()) for i in range(1, len(text) + 1)}
        shared = [0, *sorted(set(cuts[0]) & set(cuts[1]) & characters)]
        wanted += [(start + first, start + last) for first, last in pairwise(shared)]
        places.append((start, start + size))
        start += size + 1
    arrays = tuple(np.array(of_tokenizer) for of_tokenizer in ends)
    found = shared_segments(np.frombuffer(joined, np.uint8), np.array(places), arrays)
    assert list(zip(found.starts.tolist(), found.stops.tolist(), strict=True)) == wanted
    for of_tokenizer, index in zip(ends, found.of_tokens, strict=True):
        assert index.tolist() == [next(i for i, (_, stop) in enumerate(wanted) if end <= stop) for end in of_tokenizer]


def test_a_segment_has_the_class_of_two_thirds_of_its_bytes():
    text = "(self.\n   ab-1the catzz"
    parts = ["(self", ".\n  ", " ab", "-1", "the cat", "zz"]
    stops = np.cumsum(list(map(len, parts)))
    found = segments.Segments(np.append(0, stops[:-1]), stops, ())
    superword, untrained = (np.array([part == name for part in parts]) for name in ("the cat", "zz"))
    kinds = classes(labels(text), found, superword, untrained)
    wanted = ["words", "line ends and indentation", "words", "mixed", "superwords", "untrained tokens"]
    assert [CLASSES[i] for i in kinds] == wanted
    assert CLASSES[classes(labels(text), found, superword | untrained, untrained)[-1]] == "untrained tokens"

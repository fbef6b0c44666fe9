"""Overlap of measured with training text, against a search for tuples of words."""

import random
import re

import pytest

from tokenizer import Batch
from tokenizer.corpus.overlap import find_overlap, measured_text


def _words(text):
    return re.findall(r"[一-鿿]|[^\W_一-鿿]+", text.lower())


def _shared(text, training, n):
    if text in training:
        return len(_words(text))
    known = {tuple(words[i : i + n]) for words in map(_words, training) for i in range(len(words) - n + 1)}
    words = _words(text)
    covered = {at for i in range(len(words) - n + 1) if tuple(words[i : i + n]) in known for at in range(i, i + n)}
    return len(covered)


@pytest.mark.parametrize("n", [1, 2, 3, 13])
def test_shared_words_equal_a_search_for_tuples(n):
    rng = random.Random(n)
    vocabulary = ["a", "B2", "été", "ÉTÉ", "漢字", "x_y", "don't", "naïve", "--", "—", "🙂"]

    def text():
        return "".join(rng.choice(vocabulary) + rng.choice([" ", " ", ", ", "\n"]) for _ in range(rng.randint(0, 60)))

    measured, training = [text() for _ in range(30)], [text() for _ in range(120)]
    training += [measured[5], "extra " + measured[6].upper() + " more"]
    batches = [Batch.from_texts(training[:50]), Batch.from_texts(training[50:])]
    found = find_overlap(measured_text([Batch.from_texts(measured)], n), batches, threads=2)
    assert found.words.tolist() == [len(_words(each)) for each in measured]
    assert found.shared.tolist() == [_shared(each, training, n) for each in measured]
    assert found.whole.tolist() == [each in training for each in measured]
    assert found.training_bytes == sum(len(each.encode()) for each in training)


def test_zero_words_compare_whole_documents_only():
    found = find_overlap(measured_text([Batch.from_texts(["a b", "c d"])]), [Batch.from_texts(["a b", "c d e"])])
    assert found.whole.tolist() == [True, False]
    assert found.shared.tolist() == [2, 0]

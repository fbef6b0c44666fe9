import dataclasses
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.robustness import change_of_bits, change_of_tokens, perturb
from tests.lm import tiny
from tests.lm.evaluate.evaluations import made_up

DOCUMENTS = ["a quiet town", "UP", "the hills", "1234"]


def test_perturbations_without_effect_are_left_out():
    found = {each.perturbation.name: each for each in perturb(DOCUMENTS)}
    assert not found.keys() & {"decomposed", "wrapped"}  # the text is ASCII and short
    assert found["upper-case"].changed.tolist() == [True, False, True, False]
    assert found["upper-case"].to_score == ["A QUIET TOWN", "THE HILLS"]


def test_tokens_are_those_of_all_documents():
    tokenizer = tiny.merged([(b"h", b"i"), (b"hi", b"l")], "none")
    upper = next(each for each in perturb(DOCUMENTS) if each.perturbation.name == "upper-case")
    assert change_of_tokens(tokenizer, DOCUMENTS, upper) == pytest.approx(27 / 25 - 1)
    assert change_of_tokens(tiny.bytes_only(), DOCUMENTS, upper) == 0


def test_bits_are_of_the_original_bytes_and_of_every_document():
    upper = next(each for each in perturb(DOCUMENTS) if each.perturbation.name == "upper-case")
    sizes = np.array([len(text) for text in DOCUMENTS])
    before = [made_up(sizes * 1.0, sizes), made_up(sizes * 1.1, sizes)]
    scored = [made_up([12 + 3, 9 + 6], [99, 99]), made_up([13.2 + 5, 9.9 + 8], [99, 99])]
    change = change_of_bits(before, scored, upper)
    assert change.by_seed.tolist() == pytest.approx([9 / 27 / math.log(2), 13 / 27 / math.log(2)])
    assert change.value == pytest.approx(11 / 27 / math.log(2))
    assert change.n_units == 4  # documents that stay as they are count with a change of 0
    groups = {"source": Grouping(("a", "b"), np.array([0, 0, 1, 1], np.int32))}
    by_source = [dataclasses.replace(each, groups=groups) for each in before]
    assert change_of_bits(by_source, scored, upper).n_units == 2

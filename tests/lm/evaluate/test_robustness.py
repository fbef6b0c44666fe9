from __future__ import annotations

import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.robustness import Perturbed, Sample, Scored, measure

N = 40
BYTES = np.full(N, 100)


def sample(n_seeds=3, sources=None, sizes=BYTES):
    """Two tokenizers: 25 and 20 tokens per document, 1 and 0.9 bits per byte."""
    index = np.arange(N) if sources is None else np.asarray(sources)
    units = Grouping(tuple(map(str, range(index.max() + 1))), index.astype(np.int32))
    arms = [scored(25, 1.0 * sizes, n_seeds), scored(20, 0.9 * sizes, n_seeds)]
    return Sample(sizes, "document" if sources is None else "source", units, arms)


def scored(tokens, bits, n_seeds=3):
    """Every document has this number of tokens, and this loss in bits with each seed."""
    return Scored(np.full(N, tokens), np.broadcast_to(bits * math.log(2), (n_seeds, N)).copy())


def perturbed(original, costs, *, changed=N, more=5, noise=0.01, growth=1.0, loses=(False, False)):
    """The first documents change; `costs` has the rise of the loss of each tokenizer, in bits per original byte."""
    rng = np.random.default_rng(0)
    places = np.arange(changed)
    arms = []
    for before, cost in zip(original.arms, costs, strict=True):
        bits = (cost + noise * rng.standard_normal((len(before.nats), changed))) * original.n_bytes[:changed]
        after = Scored(before.tokens[places] + more, before.nats[:, places] + bits * math.log(2))
        arms.append(before.replaced(places, after))
    mask = np.arange(N) < changed
    return Perturbed(mask, np.where(mask, growth * original.n_bytes, original.n_bytes).astype(int), arms, loses)


def test_changes_are_per_original_byte_and_token() -> None:
    original = sample()
    found = measure(original, {"p": perturbed(original, (0.2, 0.3), growth=3.0, noise=0.0)}, 0.95)["p"]
    assert [each.bits for each in found] == pytest.approx([0.2, 0.3])
    assert [each.tokens for each in found] == pytest.approx([5 / 25, 5 / 20])
    assert [each.tokens_per_byte for each in found] == pytest.approx([30 / 300, 25 / 300])
    assert found[0].difference is None
    assert found[1].difference == pytest.approx(0.1)
    assert found[1].interval == pytest.approx((0.1, 0.1))


def test_unchanged_documents_count_as_zero_and_are_no_evidence() -> None:
    original = sample()
    few = measure(original, {"p": perturbed(original, (0.2, 0.3), changed=9, noise=0.001)}, 0.95)["p"][1]
    assert few.bits == pytest.approx(0.3 * 9 / 40, abs=1e-3)
    assert few.too_few
    assert few.loses_more is None
    assert few.withheld == "9.0 effective documents, at least 10 are required"
    enough = measure(original, {"p": perturbed(original, (0.2, 0.3), changed=10, noise=0.001)}, 0.95)["p"][1]
    assert (enough.too_few, enough.withheld, enough.loses_more) == (False, "", "this")
    assert measure(original, {"p": perturbed(original, (0.2, 0.3), changed=0)}, 0.95) == {}


def test_sources_are_the_units_if_the_evaluation_says_so() -> None:
    original = sample(sources=np.arange(N) // 10)
    found = measure(original, {"p": perturbed(original, (0.2, 0.3))}, 0.95)["p"][1]
    assert found.withheld == "4.0 effective sources, at least 5 are required"


def test_one_seed_is_about_these_models() -> None:
    original = sample(n_seeds=1)
    found = measure(original, {"p": perturbed(original, (0.3, 0.2))}, 0.95)["p"][1]
    assert found.loses_more == "reference"
    assert found.withheld == "1 seed, at least 3 are required"


def test_lost_text_is_not_compared() -> None:
    original = sample()
    versions = {
        "lossy": perturbed(original, (0.3, 0.1), loses=(False, True)),
        "whole": perturbed(original, (0.3, 0.1)),
    }
    found = measure(original, versions, 0.95)
    assert found["lossy"][1].bits == pytest.approx(0.1, abs=0.01)
    assert (found["lossy"][1].difference, found["lossy"][1].withheld) == (None, "text is lost")
    # Lost text is not among the comparisons that Holm's method corrects for.
    assert found["whole"][1].level == pytest.approx(0.95)
    assert found["whole"][1].loses_more == "reference"


def test_differences_are_corrected_for_the_number_of_perturbations() -> None:
    original = sample()
    equal = {f"p{i}": perturbed(original, (0.2, 0.2), noise=0.05) for i in range(5)}
    alone = measure(original, {"p0": equal["p0"]}, 0.95)["p0"][1]
    among = measure(original, equal, 0.95)["p0"][1]
    assert alone.level == pytest.approx(0.95)
    assert among.level == pytest.approx(0.99)
    assert alone.interval is not None
    assert among.interval is not None
    assert among.interval[0] < alone.interval[0] < alone.interval[1] < among.interval[1]
    assert alone.bits_interval == among.bits_interval
    assert among.loses_more is None


def test_unchanged_seeds_and_documents_pair_off() -> None:
    """A difference that all seeds and documents share is exact, however much the seeds and documents differ."""
    original = sample()
    rng = np.random.default_rng(1)
    for arm in original.arms:
        arm.nats[:] *= rng.uniform(0.5, 2, (3, 1)) * rng.uniform(0.5, 2, (1, N))
    found = measure(original, {"p": perturbed(original, (0.2, 0.3), noise=0.0)}, 0.95)["p"][1]
    assert found.bits_interval == pytest.approx((0.3, 0.3))
    assert found.interval == pytest.approx((0.1, 0.1))

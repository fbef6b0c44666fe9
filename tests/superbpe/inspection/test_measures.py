import math
from itertools import pairwise

import numpy as np
import pytest

from superbpe.inspection import measures, tokens
from tests import texts
from tests.generated import merged
from tokenizer import Batch, UserError


@pytest.fixture(scope="module")
def tiny():
    return merged([(b"a", b"b")], "none", special_tokens=["<e>"])


def test_measures_by_hand(tiny):
    encoded = measures.encode(tiny, [Batch.from_texts(["abab a"]), Batch.from_texts(["é", "ab"])])
    found = measures.measure(encoded, tokens.describe(tiny), alpha=2)
    # ab ab " " a, \xc3 \xa9, ab
    assert (found.documents, found.bytes, found.tokens, found.words) == (3, 10, 7, 4)
    assert found.bytes_per_token == 10 / 7
    assert found.fertility == 7 / 4
    assert (found.vocabulary, found.used, found.utilisation) == (257, 5, 5 / 257)
    assert found.partial_tokens == 2 / 7
    p = [3 / 7, 1 / 7, 1 / 7, 1 / 7, 1 / 7]
    assert math.isclose(found.entropy, -sum(q * math.log2(q) for q in p))
    assert math.isclose(found.renyi_entropy, -math.log2(sum(q * q for q in p)))
    assert math.isclose(found.renyi_efficiency, found.renyi_entropy / math.log2(257))
    assert math.isclose(found.renyi_efficiency_observed, found.renyi_entropy / math.log2(5))
    assert found.superword_tokens == found.superword_bytes == 0.0
    with pytest.raises(UserError, match="the text is empty"):
        measures.encode(tiny, [Batch.from_texts([""])])


def test_superwords_in_a_text(trained):
    tokenizer = trained["superwords"]
    documents = texts.english()[1][:20]
    encoded = measures.encode(tokenizer, [Batch.from_texts(documents)])
    found = measures.measure(encoded, tokens.describe(tokenizer))
    superwords = set(tokenizer.superword_ids().tolist())
    ids = [i for document in documents for i in tokenizer.encode_ordinary(document)]
    assert math.isclose(found.superword_tokens, sum(i in superwords for i in ids) / len(ids))
    n_bytes = sum(len(tokenizer.vocab[i]) for i in ids if i in superwords)
    assert math.isclose(found.superword_bytes, n_bytes / sum(len(d.encode()) for d in documents))


def test_renyi_entropy_of_any_order():
    # p = 1/2, 1/4, 1/4: the sum of p^2.5 is 2^-2.5 + 2 * 2^-5.
    assert measures.renyi_entropy([2, 1, 1], 2.5) == pytest.approx(math.log2(2**-2.5 + 2**-4) / -1.5)
    counts = [1000, 10, 1]  # a high order does not underflow
    assert math.isclose(measures.renyi_entropy(counts, 500), measures.renyi_entropy(counts, math.inf), rel_tol=0.01)
    orders = [measures.renyi_entropy(counts, alpha) for alpha in (0, 0.5, 1, 1.0001, 2, 2.5, 20, math.inf)]
    assert orders == sorted(orders, reverse=True)
    assert math.isclose(orders[2], orders[3], rel_tol=1e-3)
    for alpha in (-1.0, math.nan):
        with pytest.raises(UserError, match=r"must be at least 0"):
            measures.renyi_entropy([1, 2], alpha)


@pytest.mark.parametrize("most_bytes", [10_000_000, 3000, 0])
def test_contexts_are_the_text_around_tokens(trained, most_bytes):
    tokenizer = trained["superwords"]
    documents = [*texts.english()[1][:12], *texts.SCRIPTS.values(), "a", "of the"]
    about = tokens.describe(tokenizer)
    encoded = measures.encode(tokenizer, [Batch.from_texts(documents[:5]), Batch.from_texts(documents[5:])])
    found = measures.contexts(encoded, about, per_token=2, reach=20, most_bytes=most_bytes)
    excerpts = found.data.tobytes()
    originals = [document.encode() for document in documents]
    bounds = [*found.starts.tolist(), len(excerpts)]
    for start, end in pairwise(bounds):
        assert any(excerpts[start:end] in original for original in originals)
    for i, place in zip(found.tokens.tolist(), found.places.tolist(), strict=True):
        token = tokenizer.vocab[i]
        assert excerpts[place : place + len(token)] == token
        excerpt = int(np.searchsorted(found.starts, place, side="right"))
        before, after = place - bounds[excerpt - 1], bounds[excerpt] - place - len(token)
        shown = excerpts[bounds[excerpt - 1] : bounds[excerpt]]
        # The context has the full width, or ends with the document.
        assert before >= 20 or any(original.startswith(shown) for original in originals)
        assert after >= 20 or any(original.endswith(shown) for original in originals)
    assert (np.diff(found.tokens) >= 0).all()
    seen, chosen = np.flatnonzero(encoded.counts), np.bincount(found.tokens, minlength=len(encoded.counts))
    if most_bytes == 10_000_000:
        assert (chosen[seen] == np.minimum(encoded.counts[seen], 2)).all()
    elif most_bytes:
        superwords = np.flatnonzero(about.superword & (encoded.counts > 0))
        assert (chosen[superwords] == 1).all()
        assert chosen.max() == 1
        assert len(superwords) < chosen.sum() < len(seen)
        assert len(excerpts) <= most_bytes
    else:
        assert chosen.sum() == len(excerpts) == 0

"""Lists in which merges of phase 1 join what phase 2 makes, beside the reference and HF `tokenizers`."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tokenizers

from tests import texts
from tests.generated import by_definition, spelled
from tokenizer import Tokenizer, formats

DAMAGES = ["moved", "swapped", "repeated", "shuffled at the transition", "shuffled"]


def damaged(ours, how, *, n_merges=20, seed=7):
    """The same tokens; some merges of each phase at other ranks, across the transition."""
    rng = np.random.default_rng(seed)
    n, first = len(ours.merge_ids), ours.n_phase1_merges
    order = np.arange(n)
    few = np.sort(rng.choice(first, n_merges, replace=False))
    if how == "moved":
        order = np.insert(np.delete(order, few), rng.integers(first - n_merges, n - n_merges, n_merges), few)
    elif how == "swapped":
        others = rng.choice(np.arange(first, n), n_merges, replace=False)
        order[few], order[others] = others, few
    elif how == "repeated":  # the last rank counts
        order = np.append(order, few)
    else:
        window = slice(max(first - 200, 0), first + 200) if how == "shuffled at the transition" else slice(None)
        order[window] = rng.permutation(order[window])
    return Tokenizer(replace(ours.definition, merge_ids=ours.merge_ids[order], n_phase1_merges=first))


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["superwords", "unfenced"])
def test_ids_equal_the_reference_and_hf(name, how, trained, disputed):
    ours = damaged(trained[name], how)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(formats.hf_json(ours)))
    held_out = [*texts.english()[1][:30], *texts.various()]
    ids, offsets = ours.encode_batch(held_out, threads=2)
    for (start, end), encoding in zip(pairwise(offsets.tolist()), theirs.encode_batch_fast(held_out), strict=True):
        np.testing.assert_array_equal(ids[start:end], encoding.ids)
    assert ours.count_tokens_batch(held_out).tolist() == np.diff(offsets).tolist()
    assert not np.array_equal(ids, trained[name].encode_batch(held_out)[0])
    for text in [*texts.various()[:4], *texts.english()[1][:3]]:
        text = "".join(c for c in text[:800] if c not in disputed)
        found = ours.encode_ordinary(text)
        assert spelled(ours, found) == by_definition(ours, text)
        assert [i for part in ours.encode_iter([text[:99], text[99:300], text[300:]]) for i in part.tolist()] == found

"""Trimmed tokenizers encode text as before if all of its tokens stay, whatever family they are of."""

import json
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from tests import texts
from tests.generated import ONE_PASS, TWO_PASS, arbitrary, by_definition, hf, spelled
from tests.properties import examples
from tests.tokenizer.formats.other_formats import added, edit, hf_file
from tokenizer import Tokenizer, UserError, formats, train_bpe
from tokenizer.formats import carried
from tokenizer.special import Preparation
from tokenizer.trim import count_ids, trim


def _several_derivations(rng):
    """Any tokenizer; its tokens may have other merges too, none, or a special string inside their ids."""
    base = arbitrary(rng).definition
    vocab, merges = base.vocab, base.merge_ids.tolist()
    ids = {vocab[i]: i for i in base.ordinary_ids().tolist()}
    for token in [token for token in ids if len(token) > 1]:
        cut = rng.randint(1, len(token) - 1)
        if rng.random() < 0.5 and token[:cut] in ids and token[cut:] in ids:
            merges.insert(rng.randint(0, len(merges)), [ids[token[:cut]], ids[token[cut:]], ids[token]])
    ignore = base.mode == "one-pass" and rng.random() < 0.5
    alone = [bytes(rng.choices(b"ab .1", k=rng.randint(2, 4))) for _ in range(5 * ignore)]
    unmerged = {token: len(vocab) + 2 + i for i, token in enumerate(dict.fromkeys(alone)) if token not in ids}
    tokens = {"[x]": len(vocab)} if rng.random() < 0.3 else {}
    return Tokenizer(
        replace(
            base,
            merge_ids=np.array(merges, np.int64).reshape(-1, 3),
            n_phase1_merges=rng.randint(0, len(merges)) if base.fence else len(merges),
            ignore_merges=ignore,
            unmerged=unmerged,
            preparation=Preparation(added_tokens=tokens),
        )
    )


def _slowly(tokenizer, counts, n_removed):
    """Ids that are left after removing one leaf after the other, by the definition."""
    definition, counts = tokenizer.definition, list(counts)
    live = definition.merge_ids[definition.encoder.live_merges()].tolist()
    kept = {i for i, token in enumerate(tokenizer.vocab) if token}
    stay = {*definition.byte_ids, *definition.special_tokens.values(), *definition.preparation.added_tokens.values()}
    for _ in live:
        stay |= {part for left, right, new in live if new in stay for part in (left, right)}
    for _ in range(n_removed):
        parts = {part for left, right, new in live if new in kept for part in (left, right)}
        _, least = min((counts[i], -i) for i in kept - parts - stay)
        kept.remove(-least)
        for left, right, _ in [merge for merge in live if merge[2] == -least][:1]:
            counts[left] += counts[-least]
            counts[right] += counts[-least]
    return sorted(kept), len(stay)


def _same(tokenizer, trimmed, text):
    """Whether all tokens of the text were kept; if so, they are the same."""
    before = tokenizer.encode_ordinary(text)
    if not {*before} <= {*trimmed.old_ids.tolist()}:
        return False
    assert trimmed.old_ids[trimmed.tokenizer.encode_ordinary(text)].tolist() == before
    return True


@examples(
    250,
    2000,
    rng=st.randoms(use_true_random=False),
    samples=st.lists(st.text(alphabet="aab  .1\néè", max_size=30), min_size=1, max_size=6),
)
@pytest.mark.filterwarnings("ignore:.*merges rank before")
def test_any_tokenizer_keeps_what_it_needs(rng, samples):
    tokenizer = _several_derivations(rng)
    counts = np.array([rng.choice([0, 0, 1, 2, 9]) for _ in tokenizer.vocab])
    _, least = _slowly(tokenizer, counts.tolist(), 0)
    most = sum(map(bool, tokenizer.vocab))
    size = rng.randint(least, most)
    trimmed = trim(tokenizer, counts, vocab_size=size)
    small = trimmed.tokenizer
    assert trimmed.old_ids.tolist() == _slowly(tokenizer, counts.tolist(), most - size)[0]
    assert small.vocab == [tokenizer.vocab[i] for i in trimmed.old_ids.tolist()]
    assert (small.vocab_size, small.mode, small.fence) == (size, tokenizer.mode, tokenizer.fence)
    for name in ("special_tokens", "byte_ids"):
        new, old = ([*getattr(each, name)] for each in (small, tokenizer))
        assert (new == old) == (name == "special_tokens") or trimmed.old_ids[new].tolist() == old
    for text in samples:
        _same(tokenizer, trimmed, text)
        ids = small.encode_ordinary(text)
        if not (small.ignore_merges or small.preparation):
            assert spelled(small, ids) == by_definition(small, text)
        if (theirs := hf(small)) is not None:
            assert theirs.encode(text).ids == ids
    # What occurs stays, so these texts cost nothing.
    unused = trim(tokenizer, count_ids(tokenizer, samples).counts) if any(samples) else trimmed
    assert all(_same(tokenizer, unused, text) for text in samples) or not any(samples)

"""Occurrences of tokens inside other tokens, against their derivations."""

from collections import Counter

import numpy as np

from superbpe.inspection.residues import occurrences
from superbpe.transition import times_applied
from tests import texts
from tests.generated import defined, merged


def test_occurrences_are_those_of_the_derivations(trained):
    for name in ("superwords", "gpt2", "two_pass"):
        tokenizer = trained[name]
        ids, _ = tokenizer.encode_batch(texts.english()[1][:20])
        counts = np.bincount(ids, minlength=tokenizer.vocab_size)
        found = occurrences(tokenizer, counts)
        parts = {made: (left, right) for left, right, made in tokenizer.merge_ids.tolist()}

        def inside(token, start=0, parts=parts, vocab=tokenizer.vocab):
            left, right = parts.get(token, (-1, -1))
            for part, at in ((left, start), (right, start + len(vocab[left]))) if token in parts else ():
                yield part, at
                yield from inside(part, at)

        total, hosts = Counter(), {}
        for token in np.flatnonzero(counts).tolist():
            for part, at in inside(token):
                total[part] += int(counts[token])
                hosts.setdefault(part, {}).setdefault(token, set()).add(at)
        assert found.inside.tolist() == [total[i] for i in range(tokenizer.vocab_size)]
        for i, (host, place) in enumerate(zip(found.host.tolist(), found.place.tolist(), strict=True)):
            assert (host >= 0) == (i in hosts)
            if host >= 0:
                assert counts[host] == max(counts[token] for token in hosts[i])
                assert place in hosts[i][host]
        merges = tokenizer.merge_ids[:, 2]
        by_rank = times_applied(tokenizer.ranks(), counts[tokenizer.ordinary_ids()])
        assert (found.alone + found.inside)[merges].tolist() == by_rank.tolist()


def test_residues_occur_almost_only_inside_others():
    tokenizer = merged([(b"a", b"b"), (b"ab", b"c"), (b"x", b"y"), (b"xy", b"z"), (b"q", b"r")])
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    ids = {token: i for i, token in enumerate(tokenizer.vocab)}
    counts[[ids[token] for token in (b"ab", b"abc", b"xy", b"xyz", b"qr")]] = 2, 38, 3, 38, 29
    found = occurrences(tokenizer, counts)
    assert [tokenizer.vocab[i] for i in np.flatnonzero(found.residue)] == [b"ab"]  # 2 of 40, and xy 3 of 41
    assert found.measured.sum() == 4  # qr occurs 29 times
    assert found.share == 1 / 4
    assert occurrences(tokenizer, counts * 0).share is None


def test_a_token_of_two_derivations_is_taken_apart_by_the_first():
    # abc is made of ab and c, or of a and bc.
    tokenizer = defined([(97, 98, 300), (98, 99, 301), (300, 99, 302), (97, 301, 302)], byte_ids=range(256))
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    counts[302] = 5
    found = occurrences(tokenizer, counts)
    assert (found.inside[300], found.inside[301], found.host[300]) == (5, 0, 302)

"""Losses by kind of token, against loops over the tokens themselves."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from lm.evaluate.token_statistics import (
    PHASES,
    TokenFacts,
    curves,
    loss_by_bytes,
    loss_by_phase,
)
from superbpe import train_superbpe
from tests import texts
from tests.superbpe.oracle import batches
from tokenizer import Batch, count_pretokens, train_bpe


@pytest.fixture(scope="module")
def tokenizer():
    documents = texts.sample(40_000)
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2")
    bpe = train_bpe(counts, 400, special_tokens=["<|endoftext|>"])
    return train_superbpe(bpe, batches(documents), vocab_size=450, rules="uw-2025", transition=380)


@pytest.fixture(scope="module")
def scored(tokenizer):
    """Ids of a text with <|endoftext|> at the end, a loss for each, and the sums by id."""
    ids = [*tokenizer.encode_ordinary("\n".join(texts.sample(20_000))), tokenizer.special_tokens["<|endoftext|>"]]
    losses = np.random.default_rng(0).gamma(2.0, 1.5, len(ids))
    nats = np.bincount(ids, weights=losses, minlength=tokenizer.vocab_size)
    counts = np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)
    return ids, losses, nats, counts


def test_facts(tokenizer):
    facts = TokenFacts.of(tokenizer)
    superwords = set(tokenizer.superword_ids().tolist())
    assert superwords
    for i, token in enumerate(tokenizer.vocab):
        if i == tokenizer.special_tokens["<|endoftext|>"]:
            assert (PHASES[facts.phase[i]], facts.n_bytes[i]) == ("special", 0)
            continue
        assert facts.n_bytes[i] == len(token)
        assert PHASES[facts.phase[i]] == ("superword" if i in superwords else "byte" if len(token) == 1 else "subword")


@pytest.mark.parametrize(
    ("table", "key", "of"),
    [
        (loss_by_phase, "phase", lambda facts, i: PHASES[facts.phase[i]]),
        (loss_by_bytes, "n_bytes", lambda facts, i: min(int(facts.n_bytes[i]), 24)),
    ],
)
def test_tables_are_sums_over_the_tokens(tokenizer, scored, table, key, of):
    ids, losses, nats, counts = scored
    facts = TokenFacts.of(tokenizer)
    rows = table(nats, counts, facts)
    json.dumps(rows, allow_nan=False)
    expected: dict[object, list[float]] = {}
    for i, loss in zip(ids, losses, strict=True):
        if key == "phase" or PHASES[facts.phase[i]] != "special":
            entry = expected.setdefault(of(facts, i), [0, 0, 0.0])
            entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + int(facts.n_bytes[i]), entry[2] + loss
    assert {row[key] for row in rows} == set(expected)
    total = [sum(column) for column in zip(*expected.values(), strict=True)]
    for row in rows:
        tokens, n_bytes, loss = expected[row[key]]
        assert (row["tokens"], row["bytes"]) == (tokens, n_bytes)
        assert row["nats_per_token"] == pytest.approx(loss / tokens)
        assert row["bits_per_byte"] == (pytest.approx(loss / math.log(2) / n_bytes) if n_bytes else None)
        shares = (row["share_of_tokens"], row["share_of_bytes"], row["share_of_nats"])
        assert shares == pytest.approx((tokens / total[0], n_bytes / total[1], loss / total[2]))


def test_arrays_of_another_tokenizer_are_rejected(tokenizer):
    with pytest.raises(ValueError, match="10 sums of nats, 450 counts"):
        loss_by_phase(np.zeros(10), np.zeros(450, np.int64), TokenFacts.of(tokenizer))


def test_curves_average_the_steps_that_all_have():
    rows = [
        {"step": step, "bytes_seen": 10 * step, "grad_norm": float(step), "tokens_per_second": 5.0, "loss": 1.0}
        for step in (1, 2, 3, 3, 4, 5)
    ]
    for row in rows:
        if row["step"] in (1, 4):
            row |= {"residual_rms": 1.0, "gate_rms/00": 2.0}
    found = curves(reversed(rows))
    assert [(row["step"], row["value"]) for row in found if row["name"] == "grad_norm"] == [(1, 1.0), (4, 3.0)]
    assert {row["name"] for row in found} == {"grad_norm", "gate_rms/00"}
    assert found[0]["bytes_seen"] == 10

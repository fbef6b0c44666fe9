import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch

from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.comparison import compare
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from tests.lm import tiny
from tests.lm.evaluate.evaluations import CONFIG, Table, made_up, score, uniform
from tokenizer.errors import UserError


def transformer(shards, context_tokens=16):
    return tiny.model(shards.vocab_size, context_tokens, scale=0.2)


def test_uniform_model_gives_the_exact_numbers(make_shards, texts):
    shards = make_shards(texts)
    evaluation = score(uniform(shards.vocab_size), shards)
    n_bytes = sum(len(text.encode()) for text in texts)
    n_tokens = shards.n_tokens - len(texts)
    bits = math.log2(shards.vocab_size)
    summary = evaluation.summary()
    assert evaluation.document_bytes.tolist() == [len(text.encode()) for text in texts]
    assert evaluation.document_tokens.tolist() == [len(shards.document(i)) for i in range(len(texts))]
    assert summary["bits_per_byte"] == pytest.approx(n_tokens * bits / n_bytes, rel=1e-6)
    assert summary["bytes_per_token"] == n_bytes / n_tokens
    assert summary["eos_nats_per_document"] == pytest.approx(math.log(shards.vocab_size), rel=1e-6)
    low, high = summary["bits_per_byte_interval"]
    assert low < summary["bits_per_byte"] < high
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_bigram_model_gives_the_exact_numbers(make_shards, texts):
    """Every pair of neighbours counts once, <|endoftext|> in front and at the end included, apart."""
    shards = make_shards(texts)
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(shards.vocab_size, shards.vocab_size, generator=generator)
    nats = -table.double().log_softmax(-1)
    evaluation = score(Table(table), shards)
    for i in range(shards.n_documents):
        x = [shards.eos_id, *shards.document(i).tolist(), shards.eos_id]
        pairs = [nats[a, b].item() for a, b in itertools.pairwise(x)]
        assert evaluation.text_nats[i] == pytest.approx(sum(pairs[:-1]), rel=1e-5)
        assert evaluation.eos_nats[i] == pytest.approx(pairs[-1], rel=1e-5)


@pytest.mark.parametrize("context_bytes", [8, 13, 1000])
@pytest.mark.parametrize(("share", "context_tokens"), [(0.0, 4), (0.5, 100), (0.9, 1)])
def test_windows_never_change_what_is_scored(make_shards, context_bytes, share, context_tokens):
    """A bigram model needs one token of context, so every choice of windows must give the same nats."""
    shards = make_shards()
    table = torch.randn(shards.vocab_size, shards.vocab_size, generator=torch.Generator().manual_seed(1))
    reference = score(Table(table), shards)
    config = dataclasses.replace(CONFIG, context_bytes=context_bytes, min_context_bytes=int(share * context_bytes))
    evaluation = score(Table(table, context_tokens), shards, config)
    assert evaluation.text_nats == pytest.approx(reference.text_nats, rel=1e-6)
    assert evaluation.eos_nats == pytest.approx(reference.eos_nats, rel=1e-6)


@pytest.mark.parametrize(("batch_tokens", "planned"), [(1, None), (33, None), (10_000, None), (64, 30)])
def test_batches_and_groups_of_documents_change_nothing(make_shards, monkeypatch, batch_tokens, planned):
    shards, progress = make_shards(), []
    model = transformer(shards)
    reference = score(model, shards)
    if planned:
        monkeypatch.setattr("lm.evaluate.scoring._TOKENS_PLANNED", planned)
    config, report = dataclasses.replace(CONFIG, batch_tokens=batch_tokens), lambda *args: progress.append(args)
    other = evaluate(model, shards, shards.token_byte_lengths, config, progress=report)
    assert other.text_nats == pytest.approx(reference.text_nats, rel=1e-5)
    assert other.eos_nats == pytest.approx(reference.eos_nats, rel=1e-5)
    assert compare(reference, dataclasses.replace(other, config=CONFIG)).decision == "undecided"
    assert (len(progress) > 1) >= bool(planned)
    assert progress[-1] == ("evaluate", shards.n_documents, shards.n_documents)


def test_document_within_the_context_is_scored_in_one_piece(make_shards):
    shards = make_shards(["the history", "of the hills"])
    model = transformer(shards, context_tokens=64)
    evaluation = score(model, shards, dataclasses.replace(CONFIG, context_bytes=100))
    for i in range(2):
        x = torch.tensor([shards.eos_id, *shards.document(i).tolist(), shards.eos_id])
        with torch.no_grad():
            nats = torch.nn.functional.cross_entropy(model(x[None, :-1])[0], x[1:], reduction="none")
        assert evaluation.text_nats[i] == pytest.approx(nats[:-1].sum().item(), rel=1e-5)
        assert evaluation.eos_nats[i] == pytest.approx(nats[-1].item(), rel=1e-5)
    assert evaluation.summary()["position_limited_share"] == 0


def test_limits_on_the_context_are_reported(make_shards):
    shards = make_shards(["abcdefgh" * 20], tiny.bytes_only())
    free = score(Table(torch.zeros(257, 257), context_tokens=17), shards).summary()
    assert free["position_limited_share"] == free["short_context_share"] == 0
    bound = score(Table(torch.zeros(257, 257), context_tokens=4), shards).summary()
    assert bound["position_limited_share"] > 0.9
    assert bound["short_context_share"] > 0.9


def test_mismatched_arguments_are_errors(make_shards):
    shards = make_shards()
    with pytest.raises(UserError, match="vocabularies differ"):
        score(uniform(shards.vocab_size + 1), shards)
    table = torch.zeros(shards.vocab_size, shards.vocab_size)
    with pytest.raises(UserError, match="trained with tokenizer ffff"):
        score(Table(table, sha256="f" * 64), shards)
    lengths = shards.token_byte_lengths + 1
    with pytest.raises(UserError, match="do not belong to the tokenizer"):
        evaluate(uniform(shards.vocab_size), shards, lengths, CONFIG)
    with pytest.raises(UserError, match=r"longest token \(7 bytes\)"):
        score(uniform(shards.vocab_size), shards, EvalConfig(context_bytes=6, min_context_bytes=1))


def test_save_and_load(make_shards, tmp_path):
    shards = make_shards()
    evaluation = score(transformer(shards), shards)
    evaluation.save(tmp_path / "e")
    loaded = Evaluation.load(tmp_path / "e")
    for field in dataclasses.fields(Evaluation):
        assert np.array_equal(getattr(loaded, field.name), getattr(evaluation, field.name)), field.name
    assert loaded.summary() == evaluation.summary()
    ends = np.cumsum(loaded.document_tokens)[:-1]
    by_document = [part.sum(dtype=np.float64) for part in np.split(loaded.token_nats, ends)]
    assert loaded.text_nats.tolist() == by_document
    with pytest.raises(UserError, match="no complete evaluation"):
        Evaluation.load(tmp_path)
    kept = tmp_path / "e" / "token_nats.npy"
    np.save(kept, loaded.token_nats[1:])
    with pytest.raises(UserError, match="damaged evaluation"):
        Evaluation.load(tmp_path / "e")
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(UserError, match="no complete evaluation"):
        Evaluation.load(tmp_path / "e")
    kept.unlink()
    assert Evaluation.load(tmp_path / "e").token_nats is None
    (tmp_path / "e" / "arrays.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"arrays\.npz is damaged .*; evaluate again"):
        Evaluation.load(tmp_path / "e")


def test_only_evaluations_of_the_same_documents_and_settings_are_compared():
    a = made_up([10.0] * 20, [20] * 20)
    with pytest.raises(UserError, match="different documents"):
        compare(a, made_up([10.0] * 20, [21] * 20))
    with pytest.raises(UserError, match="have different settings"):
        compare(a, dataclasses.replace(a, config=dataclasses.replace(CONFIG, context_bytes=32)))
    # One document gives no verdict.
    comparison = compare(made_up([10.0], [20]), made_up([5.0], [20]))
    assert comparison.withheld == "1.0 effective documents, at least 10 are required"
    assert comparison.interval is None
    assert made_up([10.0], [20]).summary()["bits_per_byte_interval"] is None


@pytest.mark.parametrize(
    "settings",
    [{"min_context_bytes": 16}, {"min_context_bytes": -1}, {"batch_tokens": 0}, {"confidence": 95}],
)
def test_impossible_settings_are_errors(settings):
    with pytest.raises(UserError):
        dataclasses.replace(CONFIG, **settings)

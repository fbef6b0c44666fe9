"""Shards, training, evaluation and samples of models whose tokenizer other software runs, and of plain bytes."""

import json
import math

import numpy as np
import pytest
import torch

from lm.bytelevel.byte_model import ByteModel
from lm.data.shards import TextLoss
from lm.data.stream import DocumentStream
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.hf.export import export_hf
from lm.model.generation import generate
from lm.model.sampling import SamplingConfig
from lm.model.transformer import ModelConfig
from lm.model.weights import load_model
from lm.train.config import TrainConfig
from lm.train.loop import train
from tests import other_tokenizers
from tests.lm import tiny
from tests.other_tokenizers import JSON, SENTENCEPIECE, TEXTS
from tests.properties import quick_first
from tokenizer import UserError
from tokenizer.external.load import load_pretrained

END = "<|endoftext|>"
CONFIG = EvalConfig(context_bytes=128, min_context_bytes=16, batch_tokens=256)
NAMES = [*SENTENCEPIECE, *JSON]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("pretrained"), {}

    def open_(name):
        if name not in found:
            path = other_tokenizers.write(folder, name)
            found[name] = load_pretrained(path, add_special_tokens=[END]).tokenizer
        return found[name]

    return open_


@pytest.mark.parametrize("name", quick_first(NAMES[::-1], 4))
def test_shards_state_the_bytes_of_each_token_and_what_is_lost(opened, make_shards, name):
    tokenizer = opened(name)
    shards = make_shards(TEXTS, tokenizer, tokens_per_shard=40)
    manifest = json.loads((shards.folder / "shards.json").read_text())
    loss = dict.fromkeys(TextLoss.__dataclass_fields__, 0)
    for i, text in enumerate(TEXTS):
        ids, covered = shards.document(i), shards.document_token_bytes(i)
        assert ids.tolist() == tokenizer.encode_ordinary(text)
        assert len(covered) == len(ids)
        assert shards.document_bytes[i] == len(text.encode())
        assert shards.spelled_bytes(i) == covered.sum()
        lacking = len(text.encode()) - int(covered.sum())
        changed = tokenizer.decode(ids) != text
        assert shards.normalized_bytes[i] == ((covered.sum() or -1) if changed else 0)
        loss["changed_documents"] += changed
        loss["unaccounted_documents"] += lacking != 0
        loss["unaccounted_bytes"] += lacking
        loss["unknown_tokens"] += int((ids == tokenizer.unknown_id).sum())
        loss["unknown_bytes"] += int(covered[ids == tokenizer.unknown_id].sum())
    assert manifest["n_bytes"] == sum(len(text.encode()) for text in TEXTS)
    assert manifest["text_loss"] == loss
    assert shards.text_loss == TextLoss(**loss)


@pytest.mark.parametrize("name", quick_first(NAMES[::-1], 4))
def test_bits_per_byte_are_all_nats_over_the_bytes_of_the_original_text(opened, make_shards, name):
    tokenizer = opened(name)
    texts = [text[:200] for text in TEXTS]
    shards = make_shards(texts, tokenizer)
    model = tiny.model(tokenizer.vocab_size, 32, sha256=tokenizer.sha256)
    found = evaluate(model, shards, tokenizer.token_byte_lengths(), CONFIG)
    assert found.document_bytes.tolist() == [len(text.encode()) for text in texts]
    by_hand = 0.0
    for text, nats in zip(texts, found.text_nats, strict=True):
        ids = [tokenizer.end_id, *tokenizer.encode_ordinary(text)]
        covered = sum(map(int, shards.document_token_bytes(texts.index(text))))
        if len(ids) <= 32 and covered <= 128:  # in one window
            with torch.no_grad():
                scores = model(torch.tensor([ids[:-1] or ids])).double().log_softmax(-1)[0]
            expected = -sum(float(scores[i, target]) for i, target in enumerate(ids[1:]))
            assert nats == pytest.approx(expected, rel=1e-5, abs=1e-6)
        by_hand += float(nats)
    n_bytes = sum(len(text.encode()) for text in texts)
    assert found.bits_per_byte == pytest.approx(by_hand / math.log(2) / n_bytes)


def test_a_token_longer_than_the_context_is_scored(opened, make_shards):
    tokenizer = opened("word_pieces")
    shards = make_shards(["the " + "🙂" * 30 + " fox jumps over the " + "x" * 300], tokenizer)
    assert shards.document_token_bytes(0).max() > CONFIG.context_bytes
    model = tiny.model(tokenizer.vocab_size, 32, sha256=tokenizer.sha256)
    found = evaluate(model, shards, tokenizer.token_byte_lengths(), CONFIG)
    assert np.isfinite(found.text_nats).all()
    assert found.token_counts.sum() == len(shards.document(0)) + 1


def trained(shards, folder):
    config = TrainConfig(train_bytes=shards.n_bytes, bytes_per_step=512, context_bytes=128, device="cpu")
    train(ModelConfig(n_layers=1, hidden_size=16, head_dim=16, vocab_multiple=16), config, shards, folder)
    return config, load_model(folder, "cpu")


@pytest.mark.parametrize("name", ["word_pieces"])
def test_training_reports_the_bytes_of_the_original_text(opened, make_shards, tmp_path, name):
    tokenizer = opened(name)
    shards = make_shards(other_tokenizers.ENGLISH[:40] + TEXTS[:9], tokenizer)
    config, model = trained(shards, tmp_path / "lm")
    summary = json.loads((tmp_path / "lm" / "summary.json").read_text())
    stream = DocumentStream(shards, seed=config.seed, shuffle=config.shuffle)
    assert stream.text_bytes(0, shards.n_tokens) == shards.n_bytes
    assert summary["bytes"] == pytest.approx(config.steps * config.bytes_per_step, rel=0.02)
    found = evaluate(model, shards, tokenizer.token_byte_lengths(), CONFIG)
    assert found.bits_per_byte < 8


@pytest.mark.parametrize("name", ["unigram.model", "byte_fallback", "word_pieces"])
def test_samples_have_no_unknown_token(opened, name):
    tokenizer = opened(name)
    lm = tiny.language_model(tokenizer, context_tokens=24)
    for sample in generate(lm, ["the fox ", "", "É ﬁ 🙂"], SamplingConfig(max_new_bytes=40)):
        assert tokenizer.unknown_id not in sample.ids
        assert len(sample.data) <= 40


def test_byte_probabilities_are_rejected_with_the_reason(opened):
    lm = tiny.language_model(opened("unigram"))
    with pytest.raises(UserError, match=r"byte-level BPE.*<ExternalTok"):
        ByteModel(lm)


def test_an_export_is_rejected_with_the_reason(opened, tmp_path):
    lm = tiny.language_model(opened("unigram"))
    with pytest.raises(UserError, match=r"an export for transformers needs a byte-level BPE tokenizer"):
        export_hf(lm.model, lm.tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""Planted tokens that training never sees are found, and well-trained ones are not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import undertrained as command
from experiments.results import ShardsFolder, TrainedModel
from experiments.store.artifacts import Store
from experiments.store.trained_models import training_counts
from lm.data.sharding import ShardConfig, write_shards
from lm.data.shards import Shards
from lm.data.stream import DocumentStream
from lm.evaluate.repetition import repetition_probability
from lm.evaluate.token_statistics import token_counts, trained_counts
from lm.evaluate.undertrained import (
    CATEGORIES,
    categories,
    find_undertrained,
    indicators,
    unused_ids,
)
from lm.model.transformer import ModelConfig, Transformer
from lm.model.weights import load_model
from lm.train.config import TrainConfig
from lm.train.loop import train
from tests import texts
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe
from tokenizer.alphabet import ALPHABET
from tokenizer.errors import UserError
from tokenizer.patterns import resolve

TRAIN = TrainConfig(
    train_bytes=80 * 4096, bytes_per_step=4096, context_bytes=512, seed=1, device="cpu", threads=1, peak_flops=1e9
)


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def planted(request, tmp_path_factory):
    """Artifacts of a model that was trained on English, with a tokenizer that knows other scripts as well."""
    others = [*texts.SCRIPTS.values()] * 20
    pieces = (text[i : i + 2000] for text in texts.sample(200_000) for i in range(0, len(text), 2000))
    english = [piece for piece in pieces if piece.isascii()]
    counts = count_pretokens([Batch.from_texts([*english, *others])], "gpt2")
    tokenizer = train_bpe(counts, 800, special_tokens=["<|endoftext|>", "<|never|>"])
    root = tmp_path_factory.mktemp("artifacts")
    tokenizer.save(root / f"tokenizer-{tokenizer.name}")
    store = Store(root)

    def build_shards(folder):
        manifest = write_shards(folder / "shards", tokenizer, [Batch.from_texts(english)], ShardConfig())
        return ShardsFolder.load({**manifest, "corpus": "", "split": "train"})

    made = store.make(ShardsFolder, "shards", config={}, inputs={}, build=build_shards)
    shards = Shards.open(made.path / "shards", tokenizer)
    shape = ModelConfig(n_layers=1, hidden_size=32, head_dim=16, tie_embeddings=request.param)

    def build_model(folder):
        return TrainedModel(tokenizer=tokenizer.sha256, summary=train(shape, TRAIN, shards, folder))

    model = store.make(TrainedModel, "lm", config={}, inputs={"shards": made.hash}, build=build_model)
    return model.path, tokenizer, shards


def test_planted_tokens_are_found(planted):
    folder, tokenizer, _ = planted
    model, counts = load_model(folder), training_counts(folder)
    assert counts.sum() == json.loads((folder / "summary.json").read_text())["tokens"]
    never = np.flatnonzero(counts == 0)
    assert len(never) > 80
    found = find_undertrained(model, tokenizer)
    assert set(found.ids.tolist()) >= set(never.tolist())
    assert counts[found.ids].max() < 5
    assert (np.diff(found.indicators.cosine[found.ids]) >= 0).all()
    assert {CATEGORIES[kind] for kind in found.categories[found.ids]} >= {
        "ordinary",
        "byte",
        "special",
        "partial UTF-8",
    }
    assert tokenizer.special_tokens["<|never|>"] in found.ids
    # Common tokens look trained, and the indicator follows the counts.
    common = np.flatnonzero(counts >= 100)
    assert found.indicators.cosine[common].min() > 10 * found.indicators.cosine[never].max()
    order = np.corrcoef(found.indicators.cosine.argsort().argsort(), counts.argsort().argsort())[0, 1]
    assert order > 0.8
    assert (found.indicators.input_norm is None) == model.config.tie_embeddings
    assert set(found.controls.tolist()).isdisjoint(found.candidates.tolist())
    assert 0 < found.control_share < 1

    summary = found.summary(tokenizer, counts)
    json.dumps(summary, allow_nan=False)
    assert (summary["never_seen"], summary["never_seen_found"]) == (len(never), len(never))
    assert summary["n_undertrained"] == len(found.ids) == sum(row["undertrained"] for row in summary["tokens"])
    assert sum(row["tokens"] for row in summary["by_category"].values()) == tokenizer.vocab_size
    assert sum(row["undertrained"] for row in summary["by_category"].values()) == len(found.ids)
    # Nothing that is repeated well enough is left, whatever its row looks like.
    assert not len(find_undertrained(model, tokenizer, threshold=1e-12).ids)


def test_command(planted, tmp_path, capsys):
    folder, tokenizer, _ = planted
    out = tmp_path / "found.json"
    assert command.run([str(folder), "--out", str(out), "--top", "5", "--device", "cpu"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    summary = json.loads(out.read_text())
    assert f"{summary['n_undertrained']} of 800 tokens are under-trained" in printed
    assert f"{summary['never_seen']} of the {summary['never_seen']} tokens that training never saw" in printed
    assert "The 5 least trained" in printed
    assert ("warning: the model repeats only" in printed) == (summary["control_share"] < 0.5)
    assert summary["tokenizer_sha256"] == tokenizer.sha256
    for arguments, message in (
        ([folder, "--out", out], "already exists; choose a new file"),
        ([folder, "--out", tmp_path / "none" / "found.json"], "none does not exist"),
        ([folder, "--share", "2"], "--share 2.0"),
        ([folder, "--unused", "800"], "ids of this model are from 0 to 799"),
        ([folder, "--top", "-1"], "--top=-1"),
        ([folder.parent], "has no model.safetensors"),
    ):
        assert command.run([*map(str, arguments), "--device", "cpu"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_tokens_on_a_terminal():
    assert command._shown(" of the") == '" of the"'
    assert command._shown("\x1b[31m\n\u202e\\xff") == '"\\x1b[31m\\n\\u202e\\xff"'


def test_counts_of_the_text_that_was_read(planted):
    _, _, shards = planted
    for n_tokens in (1, 1000, shards.n_tokens, 2 * shards.n_tokens + 77):
        stream = DocumentStream(shards, seed=3, shuffle=True)
        expected = np.bincount(stream.read(0, n_tokens), minlength=shards.vocab_size)
        assert np.array_equal(trained_counts(shards, n_tokens, seed=3, shuffle=True), expected)
    assert token_counts(shards).sum() == shards.n_tokens


def test_counts_need_the_shards(planted, tmp_path):
    folder, _, _ = planted
    assert training_counts(tmp_path) is None
    (tmp_path / "lm-0").mkdir()
    for name in ("manifest.json", "summary.json"):
        (tmp_path / "lm-0" / name).write_bytes((folder / name).read_bytes())
    assert training_counts(tmp_path / "lm-0") is None


def _cosine_distances(rows, unused):
    mean = rows[unused].mean(axis=0)
    return 1 - rows @ mean / np.linalg.norm(rows, axis=1) / np.linalg.norm(mean)


@pytest.mark.parametrize("tied", [False, True])
def test_indicators_equal_the_paper(tied):
    model = Transformer(ModelConfig(n_layers=1, hidden_size=32, head_dim=16, tie_embeddings=tied), 150, 16)
    model.initialize(0, range(model.vocab_size))
    with torch.no_grad():
        model.lm_head.weight += torch.randn(32, generator=torch.Generator().manual_seed(3))  # a common component
        model.lm_head.weight[150:] = 1e3  # padding has no say
    rows = model.lm_head.weight[:150].detach().double().numpy()
    unused = np.array([3, 7, 8])
    found = indicators(model, unused)
    np.testing.assert_allclose(found.cosine, _cosine_distances(rows, unused), atol=1e-12)
    first = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][0]
    without = rows - np.outer(rows @ first, first)
    np.testing.assert_allclose(found.cosine_without_common, _cosine_distances(without, unused), atol=1e-9)
    if tied:
        assert found.input_norm is None
    else:
        table = model.model.embed_tokens.weight[:150].detach().double().numpy()
        np.testing.assert_allclose(found.input_norm, np.linalg.norm(table, axis=1))


@pytest.mark.parametrize("context", [5, 64])
def test_probability_is_highest_after_the_token(planted, context):
    folder, tokenizer, _ = planted
    trained = load_model(folder)
    model = Transformer(trained.config, trained.vocab_size, context)
    model.load_state_dict(trained.state_dict())
    ids = np.array([0, 300, 500, 798])
    end, line, comma = tokenizer.special_tokens["<|endoftext|>"], tokenizer.encode("\n")[0], tokenizer.encode(",")[0]
    found = repetition_probability(model, tokenizer, ids, batch_tokens=40)
    for token, probability in zip(ids.tolist(), found, strict=True):
        quoted: list[int] = []
        while len(quoted) < 40:
            quoted += [*tokenizer.encode('"'), token, *tokenizer.encode('" is "'), token, *tokenizer.encode('" and ')]
        best = 0.0
        for prompt in ([token] * 40, [token, line] * 20, [token, comma] * 20, quoted):
            row = [end, *prompt][: min(32, context)]
            with torch.no_grad():
                log_probabilities = model(torch.tensor([row])).double().log_softmax(dim=-1)[0]
            for i in range(len(row) - 1):
                if token in row[: i + 1] and row[i + 1] == token:
                    best = max(best, log_probabilities[i, token].exp().item())
        assert probability == pytest.approx(best, rel=1e-4)


def test_categories():
    """`abc` is made of `a` and `bc`, but its text becomes `ab` and `c`; `\\xe6\\x97` is two thirds of a character."""
    rank = {byte: i for i, byte in enumerate(ALPHABET)}
    a, b, c, first, second = (rank[byte] for byte in b"abc\xe6\x97")
    merges = [(a, b), (b, c), (a, 257), (first, second)]
    tokenizer = Tokenizer.from_ranks(merges, pattern=resolve("gpt2"), special_tokens=["<|endoftext|>"])
    assert tokenizer.vocab[256:] == [b"ab", b"bc", b"abc", b"\xe6\x97", b"<|endoftext|>"]
    kinds = [CATEGORIES[kind] for kind in categories(tokenizer)]
    assert kinds == ["byte"] * 256 + ["ordinary", "ordinary", "unreachable", "partial UTF-8", "special"]
    assert [tokenizer.vocab[i] for i in unused_ids(tokenizer)] == [bytes([b]) for b in (0xC0, 0xC1, *range(0xF5, 256))]
    gap = Tokenizer(replace(tokenizer.definition, special_tokens={"<|endoftext|>": 262}))
    assert [CATEGORIES[kind] for kind in categories(gap)[260:]] == ["no token", "no token", "special"]
    assert unused_ids(gap)[-2:] == [260, 261]


def test_mistakes(planted):
    folder, tokenizer, _ = planted
    model = load_model(folder)
    with pytest.raises(UserError, match="no id of this tokenizer is known"):
        find_undertrained(model, tokenizer, unused=[])
    with pytest.raises(UserError, match="the model has 800 ids and the tokenizer 600"):
        find_undertrained(model, tokenizer.cut(600))
    assert len(find_undertrained(model, tokenizer, controls=0).controls) == 0
    chosen = find_undertrained(model, tokenizer, unused=[tokenizer.byte_ids[0xFF]], controls=3)
    assert (chosen.unused.tolist(), len(chosen.controls)) == ([tokenizer.byte_ids[0xFF]], 3)

"""Scores per token and per group, and scoring in several processes."""

import math

import numpy as np
import pytest
import torch

from lm.evaluate import scoring
from lm.evaluate.bits_per_byte import Evaluation, Grouping
from lm.evaluate.evaluation import evaluate
from lm.evaluate.forward import Forward, fast_nats
from lm.evaluate.windows import Window
from lm.model.transformer import ModelConfig, Transformer
from lm.model.weights import save_model
from tests.lm import ranks, tiny
from tests.lm.evaluate.evaluation_processes import score as score_alone
from tests.lm.evaluate.evaluations import CONFIG, Table, score
from tests.lm.synchronization import Waits
from tokenizer.errors import UserError


@pytest.mark.parametrize("batch_tokens", [8192, 32768])
def test_little_of_what_is_computed_is_padding(batch_tokens):
    lengths = 1 + np.random.default_rng(0).lognormal(5.5, 1, 200).clip(max=1024).astype(int)
    jobs = [(i, Window(0, 1, int(length), limited=False)) for i, length in enumerate(lengths)]
    batches = list(scoring._batches(jobs, batch_tokens))
    computed = [len(batch) * max(window.last for _, window in batch) for batch in batches]
    assert sorted(i for batch in batches for i, _ in batch) == list(range(200))
    assert max(computed) <= batch_tokens
    assert min(computed[:-1]) >= batch_tokens / 4
    assert sum(computed) < 1.2 * lengths.sum()


def test_groups_follow_the_same_rules_as_the_whole(make_shards, texts, tmp_path):
    shards = make_shards(texts)
    table = torch.randn(shards.vocab_size, shards.vocab_size, generator=torch.Generator().manual_seed(1))
    index = np.array([0, 2, 1, 0, 2, 2], np.int32)
    groups = {"source": Grouping(("web", "wiki", "books"), index)}
    evaluation = evaluate(Table(table), shards, shards.token_byte_lengths, CONFIG, groups=groups)
    assert evaluation.token_counts.sum() == shards.n_tokens
    assert evaluation.token_counts @ shards.token_byte_lengths == shards.n_bytes
    for number, name in enumerate(groups["source"].names):
        alone = score(Table(table), make_shards([text for text, i in zip(texts, index, strict=True) if i == number]))
        for key in ("bits_per_byte", "bytes_per_token", "eos_nats_per_document"):
            part = evaluation.only(index == number).summary()
            assert part[key] == pytest.approx(alone.summary()[key]), (name, key)
    evaluation.save(tmp_path / "e")
    again = Evaluation.load(tmp_path / "e")
    assert again.summary() == evaluation.summary()
    assert again.token_counts.tolist() == evaluation.token_counts.tolist()
    groups = {"source": Grouping(("x",), index[:1])}
    with pytest.raises(UserError, match="grouping by source has 1 documents"):
        evaluate(Table(table), shards, shards.token_byte_lengths, CONFIG, groups=groups)


@pytest.mark.parametrize("shift", [0.0, 60.0, -80.0, 200.0, -200.0])
def test_the_fast_loss_is_cross_entropy_or_declines(shift):
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)) * 4 + shift
    logits[:, 290:] = -math.inf  # padding ids
    targets = torch.arange(50)
    wanted = torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")
    nats = fast_nats(logits.clone(), targets)
    assert (nats is None) == (abs(shift) > 50)
    if nats is not None:
        assert nats.numpy() == pytest.approx(wanted.numpy(), abs=1e-5)


def test_logits_beyond_the_range_of_exp_are_scored(make_shards):
    shards = make_shards()
    table = torch.randn(shards.vocab_size, shards.vocab_size, generator=torch.Generator().manual_seed(1))
    far = score(Table(table + 200), shards)
    assert far.text_nats == pytest.approx(score(Table(table), shards).text_nats, rel=1e-5)


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(make_shards, tmp_path):
    """Exactly: every file of the evaluation is the same, byte for byte."""
    shards = make_shards()
    config = ModelConfig(n_layers=1, hidden_size=32, head_dim=16)
    model = Transformer(config, shards.vocab_size, 16, shards.tokenizer_sha256)
    model.initialize(0, range(model.vocab_size))
    save_model(model, tmp_path)
    arguments = [str(shards.folder), str(tmp_path), str(tmp_path / "two")]
    processes = ranks.start("tests.lm.evaluate.evaluation_processes", arguments, 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    score_alone(tmp_path, shards).save(tmp_path / "one")
    torch.set_num_threads(threads)
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for name in ("arrays.npz", "token_nats.npy", "evaluation.json"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
    assert (tmp_path / "two" / "told").read_text() == "process 1: document 3 is not finite"
    assert (tmp_path / "two" / "absent").read_text().startswith("process 1: ")


def small_model(shards):
    return tiny.uneven(ModelConfig(n_layers=2, hidden_size=32, head_dim=16), shards.vocab_size, 24, scale=0.1)


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Evaluate on the CPU by the path of GPUs, with Torch's own graphs and no generated code."""

    def use(**options):
        monkeypatch.setattr(scoring, "Forward", lambda *args, **_: Forward(*args, on_gpu=True, **options))

    return use


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-6), ("bf16", 5e-3)])
def test_the_path_of_gpus_gives_the_same_loss(make_shards, texts, monkeypatch, like_a_gpu, precision, bound):
    shards = make_shards(texts * 3)
    model = small_model(shards)
    monkeypatch.setattr(scoring, "_TOKENS_PLANNED", 50)  # several groups
    expected = score(model, shards)
    like_a_gpu(precision=precision)
    found = score(model, shards)
    assert abs(found.bits_per_byte - expected.bits_per_byte) < bound
    assert np.array_equal(found.token_counts, expected.token_counts)


def test_gpus_compile_once_and_do_not_wait_for_batches(make_shards, texts, like_a_gpu):
    shards = make_shards(texts * 3)
    like_a_gpu()
    torch.compiler.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    with Waits() as waits:
        score(small_model(shards), shards)
    assert waits.count == 0
    graphs = counters["stats"]["unique_graphs"]
    assert graphs <= 4  # of each of two functions: one of any shape, one of a single row
    score(small_model(shards), shards)
    assert counters["stats"]["unique_graphs"] == graphs  # another model of the same shape
    assert not counters["graph_break"]

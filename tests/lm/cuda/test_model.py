"""A device computes what the CPU computes."""

import functools

import pytest
import torch

from lm.bytelevel.byte_model import ByteModel
from lm.hf.export import export_hf
from lm.model.generation import generate
from lm.model.language_model import LanguageModel
from lm.model.loss import Objective
from lm.model.sampling import SamplingConfig
from lm.model.segments import PackedSegments
from lm.model.transformer import ModelConfig
from lm.train import optim
from lm.train.config import TrainConfig
from lm.train.optim import build_optimizers
from tests.lm import tiny
from tests.lm.bytelevel.definition import LETTERS, bpe
from tests.properties import quick_first

VOCAB, SEQ_LEN = 300, 300
LENGTHS = ([300, 300, 300, 250], [70, 90, 140, 300, 1, 220, 80])
RATES = TrainConfig(embedding_lr=0.01, weight_decay=0.1)


def build(device, *, qk_norm=False):
    config = ModelConfig(n_layers=2, hidden_size=64, head_dim=32, qk_norm=qk_norm)
    return tiny.uneven(config, VOCAB, SEQ_LEN, scale=0.02).train().to(device)


def batch(seed, device, lengths):
    """Ids, targets (of all but a few) and segments."""
    ids = torch.randint(VOCAB, (sum(lengths) + 1,), generator=torch.Generator().manual_seed(seed))
    return ids[:-1].to(device), ids[1:-4].to(device), PackedSegments.of(lengths, device)


def steps(device, n, *, lengths, bf16=False, fuse=False):
    """Losses, first gradients and last weights of a few steps on learnable text: the same batch each time."""
    model = build(device)
    objective = Objective(model)
    if fuse:
        objective.fuse()
    optimizers = build_optimizers(model, RATES)
    losses, gradients = [], {}
    for _ in range(n):
        ids, targets, segments = batch(0, device, lengths)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            total, _ = objective(ids, targets, segments)
        (total / targets.numel()).backward()
        losses.append(total.item() / targets.numel())
        gradients = gradients or {name: p.grad.cpu().clone() for name, p in model.named_parameters()}
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return losses, gradients, {name: p.detach().cpu() for name, p in model.named_parameters()}


def distance(found, expected):
    """Largest relative distance of any tensor."""
    return max(float((found[name] - expected[name]).norm() / (1e-12 + expected[name].norm())) for name in expected)


@pytest.mark.parametrize("lengths", quick_first(LENGTHS))
def test_ten_steps_in_fp32(device, monkeypatch, lengths):
    if device == "cpu" and lengths != LENGTHS[1]:
        pytest.skip("the CPU is compared with itself once")
    # On CUDA Muon computes in bf16.
    monkeypatch.setattr(optim, "orthogonalize", functools.partial(optim.orthogonalize, dtype=torch.float32))
    expected, found = (steps(place, 10, lengths=lengths) for place in ("cpu", device))
    assert found[0] == pytest.approx(expected[0], rel=1e-4)
    assert distance(found[1], expected[1]) < 1e-4
    assert distance(found[2], expected[2]) < 1e-3  # AdamW amplifies rounding where gradients are near zero
    assert expected[0][-1] < 0.8 * expected[0][0]


@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ten_steps_in_bf16_stay_within_two_percent(device, fuse):
    if device == "cpu":
        pytest.skip("bf16 and compiled training on a CPU are checked in tests/lm/train")
    expected, _, _ = steps("cpu", 10, lengths=LENGTHS[1])
    found, _, _ = steps(device, 10, lengths=LENGTHS[1], bf16=True, fuse=fuse)
    assert found == pytest.approx(expected, rel=0.02)
    assert found != expected


@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("qk_norm", "bf16"), [(False, False), (True, True)])
def test_segments(device, qk_norm, bf16, fuse):
    """Several packed sequences, whose numbers and lengths change: hidden states and gradients."""
    if fuse and device == "cpu":
        pytest.skip("compiled training on a CPU is checked in tests/lm/train")
    results = []
    for place in ("cpu", device):
        torch.compiler.reset()
        model = build(place, qk_norm=qk_norm)
        if fuse and len(results) == 3:
            Objective(model).fuse()
        for seed, lengths in enumerate(([300, 1, 40], [128, 64, 7, 2, 90, 33], [5])):
            ids, _, segments = batch(seed, place, lengths)
            with torch.autocast(place, torch.bfloat16, enabled=bf16 and place == device):
                hidden = model.hidden(ids[None], segments=segments)
            model.zero_grad()
            hidden.float().square().sum().backward()
            gradient = model.model.layers[0].self_attn.k_proj.weight.grad
            results.append((hidden.detach().float().cpu(), gradient.cpu() / gradient.norm().cpu()))
    for ours, theirs in zip(results[3:], results[:3], strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=0.1 if bf16 else 1e-4)
        torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=0.02 if bf16 else 1e-4)


def language_models(device):
    tokenizer = bpe("llama3", LETTERS)
    for place in ("cpu", device):
        model = tiny.model(tokenizer.vocab_size, 48, sha256=tokenizer.sha256)
        yield LanguageModel(model.to(place), tokenizer)


def test_generation(device):
    prompts, config = ["ab", "ab s", ""], SamplingConfig(temperature=0, max_new_tokens=60, max_new_bytes=None)
    expected, found = ([sample.ids for sample in generate(lm, prompts, config)] for lm in language_models(device))
    assert found == expected


def test_byte_probabilities(device):
    requests = [("ab s", [" ab", "1"]), ("", ["s'"]), ("ab " * 8, ["a", "ab s"])]
    expected, found = (ByteModel(lm).choices(requests) for lm in language_models(device))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.slow
def test_export(device, tmp_path):
    pytest.importorskip("transformers")
    files = []
    for i, lm in enumerate(language_models(device)):
        export_hf(lm.model, lm.tokenizer, tmp_path / str(i))
        files.append((tmp_path / str(i) / "model.safetensors").read_bytes())
    assert files[0] == files[1]

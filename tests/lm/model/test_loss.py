import math

import pytest
import torch
import torch.nn.functional as F

from lm.model.loss import Objective, linear_cross_entropy
from lm.model.segments import PackedSegments
from lm.model.transformer import ModelConfig, Transformer

N, WIDTH, VOCAB = 37, 16, 50


def inputs(dtype=torch.float32):
    torch.manual_seed(0)
    hidden = torch.randn(N, WIDTH, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCAB, WIDTH, dtype=dtype, requires_grad=True)
    padding = torch.zeros(VOCAB).masked_fill_(torch.arange(VOCAB) >= 45, -math.inf).to(dtype)
    return hidden, weight, padding, torch.randint(45, (N,))


@pytest.mark.parametrize("rows", [1, 5, 37, 100, None])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_torch_cross_entropy_and_its_gradients(rows, padded):
    hidden, weight, padding, targets = inputs()
    padding = padding if padded else None
    expected = F.cross_entropy(F.linear(hidden, weight, padding), targets, reduction="none")
    (expected.sum() / 7).backward()
    gradients = [hidden.grad, weight.grad]
    hidden.grad = weight.grad = None
    total, nats = linear_cross_entropy(hidden, weight, padding, targets, rows)
    (total / 7).backward()
    assert not nats.requires_grad
    torch.testing.assert_close(nats, expected)
    torch.testing.assert_close(total, expected.sum())
    for ours, theirs in zip((hidden.grad, weight.grad), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    if padded:
        assert (weight.grad[45:] == 0).all()
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, padding, targets, rows)[0], total)


def test_extreme_predictions_stay_finite():
    hidden, weight = torch.tensor([[1e4], [1e4]], requires_grad=True), torch.tensor([[1.0], [-1.0]])
    total, nats = linear_cross_entropy(hidden, weight, None, torch.tensor([0, 1]))
    assert nats.tolist() == [0, 2e4]
    total.backward()
    assert hidden.grad.tolist() == [[0], [2]]


def test_bf16_products_stay_close():
    hidden, weight, padding, targets = inputs()
    _, exact = linear_cross_entropy(hidden, weight, padding, targets)
    with torch.autocast("cpu", torch.bfloat16):
        total, nats = linear_cross_entropy(hidden, weight, padding, targets)
    assert nats.dtype == torch.float32
    assert not torch.equal(nats, exact)
    torch.testing.assert_close(nats, exact, rtol=0.05, atol=0.1)
    total.backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n_targets", [24, 20, 0])
def test_objective_is_the_cross_entropy_of_the_logits(tied, n_targets):
    model = Transformer(ModelConfig(n_layers=1, hidden_size=32, head_dim=16, tie_embeddings=tied), 45, 12)
    model.initialize(0, range(model.vocab_size))
    torch.manual_seed(1)
    ids, targets = torch.randint(45, (2, 24))
    segments = PackedSegments.of([5, 12, 7])
    logits = model.head(model.hidden(ids[None], segments=segments))[0, :n_targets, :45]
    expected = F.cross_entropy(logits, targets[:n_targets], reduction="none")
    expected.sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    total, nats = Objective(model)(ids, targets[:n_targets], segments)
    total.backward()
    torch.testing.assert_close(nats, expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-5)

import pytest
import torch

from lm.model.transformer import ModelConfig, Transformer
from lm.train.config import TrainConfig
from lm.train.distributed import World
from lm.train.optim import QUINTIC, Muon, build_optimizers, orthogonalize, orthogonalize_all

RATES = TrainConfig(matrix_lr=1.0, embedding_lr=2.0, head_lr=3.0, vector_lr=4.0, weight_decay=0.1)


@pytest.mark.parametrize("shape", [(32, 32), (24, 64), (64, 24)])
def test_singular_values_approach_one_and_singular_vectors_stay(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    [result] = orthogonalize(matrix[None])
    assert result.dtype == torch.float32
    assert result.shape == shape
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3
    assert values.max() < 1.25
    # Same singular vectors: U^T result V is diagonal.
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    core = u.T @ result @ vh.T
    torch.testing.assert_close(core - core.diag().diag(), torch.zeros_like(core), atol=2e-3, rtol=0)


@pytest.mark.parametrize("shape", [(32, 32), (24, 64), (64, 24)])
@pytest.mark.parametrize("patched", [True, False])
def test_muon_equals_torch_muon_except_for_bf16(shape, patched, monkeypatch):
    """Torch iterates in bf16: 8 bits, whose rounding five iterations amplify to a few percent of the step.

    With our iteration in its place, the rest must agree to fp32 rounding.
    """
    if patched:
        name = "torch.optim._muon._zeropower_via_newtonschulz"
        monkeypatch.setattr(name, lambda grad, *_: orthogonalize(grad[None])[0])
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}
    optimizers = [Muon([ours], **settings), torch.optim.Muon([theirs], nesterov=True, **settings)]
    for _ in range(4):
        gradient = torch.randn(shape)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < (1e-6 if patched else 0.05) * moved


@pytest.mark.parametrize("threads", [1, 2])
def test_stacked_matrices_equal_single_ones(threads):
    """To the bit on some processors; on others, the matrix library sums in an order that depends on the stack."""
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    matrices = [torch.randn(shape) for shape in [(64, 192), (128, 352), (64, 192), (352, 128), (128, 352), (96, 96)]]
    stacked = orthogonalize_all(matrices, World())
    single = [one_at_a_time(matrix) for matrix in matrices]
    torch.set_num_threads(usual)
    for one, other in zip(stacked, single, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def one_at_a_time(matrix):
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T


@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_has_one_optimizer(tied):
    model = Transformer(ModelConfig(n_layers=2, hidden_size=32, head_dim=16, qk_norm=True, tie_embeddings=tied), 100, 8)
    muon, adamw = build_optimizers(model, RATES)
    found = [p for o in (muon, adamw) for g in o.param_groups for p in g["params"]]
    assert len(found) == len({id(p) for p in found}) == len(list(model.parameters()))
    assert all(p.ndim == 2 for g in muon.param_groups for p in g["params"])
    rate = {id(p): g["peak_lr"] for o in (muon, adamw) for g in o.param_groups for p in g["params"]}
    assert rate[id(model.lm_head.weight)] == 3.0
    assert rate[id(model.model.embed_tokens.weight)] == (3.0 if tied else 2.0)
    assert rate[id(model.model.norm.weight)] == 4.0
    assert rate[id(model.model.layers[0].mlp.up_proj.weight)] == 1.0
    assert isinstance(adamw, torch.optim.AdamW)
    assert {group["weight_decay"] for group in adamw.param_groups} == {0.0}
    assert [group["weight_decay"] for group in muon.param_groups] == [0.1]

"""Muon for the hidden matrices, AdamW for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from lm.train.distributed import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lm.model.transformer import Transformer

# Coefficients of the quintic: steepest slope at zero, singular values end within about 0.7 .. 1.2.
# (Keller Jordan, https://kellerjordan.github.io/posts/muon/)
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """Replace a matrix's singular values by values near 1 with Newton-Schulz iterations.

    Computes in bf16 on CUDA and in fp32 elsewhere, since CPUs without fast bf16 take over ten times as long.

    Args:
        matrix: float[rows, columns].
        steps: Number of iterations.
    """
    a, b, c = QUINTIC
    x = matrix.to(torch.bfloat16 if matrix.is_cuda else torch.float32)
    wide = x if x.shape[0] <= x.shape[1] else x.T
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide if x.shape[0] <= x.shape[1] else wide.T).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized: every update of a matrix has singular values near 1.

    The rules are those of `torch.optim.Muon` (Nesterov momentum, decoupled weight decay, step length
    times sqrt(max(1, rows / columns))), which computes in bf16 whatever the device.

    Args:
        params: Two-dimensional parameters.
        lr: Learning rate: the update's spectral norm.
        momentum: Decay of the running mean of gradients.
        weight_decay: Decoupled; multiplied by `lr`.
        world: Processes with the same parameters and gradients, which share the work.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        world: World | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._world = world or World()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; `closure` is not supported."""
        assert closure is None
        jobs = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        directions = []
        for group, parameter in jobs:
            state: dict[str, Any] = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
            directions.append(parameter.grad.lerp(mean, group["momentum"]))
        for (group, parameter), update in zip(jobs, orthogonalize_all(directions, self._world), strict=True):
            rows, columns = parameter.shape
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonalize_all(matrices: Sequence[Tensor], world: World) -> list[Tensor]:
    """Orthogonalize matrices, which is most of Muon's work; each process takes a share and broadcasts it."""
    if world.size == 1:
        return [orthogonalize(matrix) for matrix in matrices]
    made, waiting = [], []
    for i, matrix in enumerate(matrices):
        owner = i % world.size
        update = orthogonalize(matrix).contiguous() if owner == world.rank else torch.empty_like(matrix)
        waiting.append(dist.broadcast(update, owner, async_op=True))
        made.append(update)
    for handle in waiting:
        handle.wait()
    return made


def build_optimizers(
    model: Transformer,
    *,
    matrix_lr: float,
    embedding_lr: float,
    head_lr: float,
    vector_lr: float,
    weight_decay: float,
    world: World | None = None,
) -> list[torch.optim.Optimizer]:
    """Muon on the layers' matrices, AdamW on embedding, head and norms.

    Every parameter group keeps its peak learning rate in `group["peak_lr"]`. A tied table belongs to the head.

    Args:
        model: The model whose parameters are trained.
        matrix_lr: Peak learning rate of Muon.
        embedding_lr: Peak learning rate of AdamW for the input embedding.
        head_lr: Peak learning rate of AdamW for the output head.
        vector_lr: Peak learning rate of AdamW for the norms' weights.
        weight_decay: Decoupled weight decay of the matrices; on a vocabulary table it would mostly affect rare tokens.
        world: Processes that train the same model.
    """
    tied = model.config.tie_embeddings
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    vectors = [p for p in model.model.parameters() if p.ndim == 1]
    groups = [
        {"params": [model.lm_head.weight], "lr": head_lr},
        {"params": vectors, "lr": vector_lr},
    ]
    if not tied:
        groups.append({"params": [model.model.embed_tokens.weight], "lr": embedding_lr})
    optimizers = [
        Muon(matrices, lr=matrix_lr, weight_decay=weight_decay, world=world),
        torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers

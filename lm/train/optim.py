"""Muon for the hidden matrices, AdamW for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from lm.train.distributed import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.optim import Optimizer

    from lm.model.transformer import Transformer
    from lm.train.config import TrainConfig

# Coefficients of the quintic: steepest slope at zero, singular values end within about 0.7 .. 1.2.
# (Keller Jordan, https://kellerjordan.github.io/posts/muon/)
QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def orthogonalize(matrices: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Replace the singular values of each matrix by values near 1 with Newton-Schulz iterations.

    Args:
        matrices: float[matrices, rows, columns].
        dtype: Precision; None for bf16 on CUDA and fp32 elsewhere, since CPUs without fast bf16 take over ten times as
            long.
    """
    a, b, c = QUINTIC
    x = matrices.to(dtype or (torch.bfloat16 if matrices.is_cuda else torch.float32))
    tall = x.shape[1] > x.shape[2]
    wide = x.mT if tall else x
    wide = wide / torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.mT if tall else wide).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized: every update of a matrix has singular values near 1.

    The rules are as in `torch.optim.Muon` (Nesterov momentum, decoupled weight decay, step length
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
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            for parameter in parameters:
                state: dict[str, Any] = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
            gradients = [parameter.grad for parameter in parameters]
            means = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
            torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
            directions = torch._foreach_lerp(gradients, means, group["momentum"])
            updates = orthogonalize_all(directions, self._world)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            for (rows, columns), places in _by_shape([parameter.shape for parameter in parameters]).items():
                length = group["lr"] * max(1.0, rows / columns) ** 0.5
                torch._foreach_add_([parameters[i] for i in places], [updates[i] for i in places], alpha=-length)


def orthogonalize_all(matrices: Sequence[Tensor], world: World) -> list[Tensor]:
    """Orthogonalize matrices, which is most of Muon's work; each process takes a share and broadcasts it.

    Matrices of equal shape are one stack; on CPUs, the bits are as for one at a time.
    """
    share = range(world.rank, len(matrices), world.size)
    updates = [torch.empty_like(matrix) for matrix in matrices]
    for places in _by_shape([matrices[i].shape for i in share]).values():
        stack = [share[place] for place in places]
        for i, update in zip(stack, orthogonalize(torch.stack([matrices[i] for i in stack])), strict=True):
            updates[i] = update.contiguous()
    if world.size > 1:
        waiting = [dist.broadcast(update, i % world.size, async_op=True) for i, update in enumerate(updates)]
        for handle in waiting:
            handle.wait()
    return updates


def _by_shape(shapes: Sequence[torch.Size]) -> dict[torch.Size, list[int]]:
    """Places of each shape."""
    places: dict[torch.Size, list[int]] = {}
    for i, shape in enumerate(shapes):
        places.setdefault(shape, []).append(i)
    return places


def build_optimizers(model: Transformer, config: TrainConfig, world: World | None = None) -> list[Optimizer]:
    """Muon on the layers' matrices, AdamW on embedding, head and norms.

    Every parameter group keeps its peak learning rate in `group["peak_lr"]`. A tied table belongs to the head. Only
    matrices have weight decay: on a vocabulary table it would mostly affect rare tokens.

    Args:
        model: The model whose parameters are trained.
        config: Peak learning rates and weight decay.
        world: Processes that train the same model.
    """
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    vectors = [p for p in model.model.parameters() if p.ndim == 1]
    groups = [
        {"params": [model.lm_head.weight], "lr": config.head_lr},
        {"params": vectors, "lr": config.vector_lr},
    ]
    if not model.config.tie_embeddings:
        groups.append({"params": [model.model.embed_tokens.weight], "lr": config.embedding_lr})
    optimizers = [
        Muon(matrices, lr=config.matrix_lr, weight_decay=config.weight_decay, world=world),
        torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=True),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers

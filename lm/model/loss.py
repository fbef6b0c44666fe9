"""Cross-entropy of the output head, without materializing the logits of all positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lm.model.segments import PackedSegments
    from lm.model.transformer import Transformer

# Logits per chunk. Every chunk adds to the full gradient of the head, so small chunks cost more than they save: chunks
# of 256 positions were 1.5 times slower than all 2,048 at once (vocabulary 8,192, hidden size 256, two cores).
_CPU_LOGITS, _CUDA_LOGITS = 2**24, 2**28
_FEWEST_ROWS = 1024


def slopes_and_nats(inputs: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Derivative of the loss by the logits of one chunk, in the type of its products, and float32[positions], nats."""
    logits = torch.nn.functional.linear(inputs, table, bias).float()
    highest = logits.amax(1, keepdim=True)
    right = logits.gather(1, targets) - highest
    powers = logits.sub_(highest).exp_()
    sums = powers.sum(1, keepdim=True)
    slopes = powers.div_(sums)
    if torch.compiler.is_compiling():  # a scatter would need the slopes in fp32
        slopes = slopes - (torch.arange(len(table), device=targets.device) == targets).float()
    else:
        slopes.scatter_add_(1, targets, slopes.new_full((), -1.0).expand_as(targets))
    return slopes.to(inputs.dtype), (sums.log() - right).squeeze(1)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    padding: Tensor | None,
    targets: Tensor,
    rows: int | None = None,
    chunk: Callable[..., tuple[Tensor, Tensor]] = slopes_and_nats,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of `softmax(hidden weight^T + padding)` in chunks of positions, gradients included.

    The logits of a whole step and their gradients would be by far the largest tensors of training. Here only one chunk
    exists at a time, and it is turned into gradients in place.

    Args:
        hidden: float[positions, hidden_size].
        weight: float[vocabulary, hidden_size].
        padding: float[vocabulary], added to the logits, or None.
        targets: int64[positions].
        rows: Positions per chunk; None for a suitable number.
        chunk: `slopes_and_nats`, compiled or not.

    Returns:
        The sum over positions in nats, which is differentiable, and the nats of each position, float32[positions],
        which are not.
    """
    if rows is None:
        rows = max(_FEWEST_ROWS, (_CUDA_LOGITS if hidden.is_cuda else _CPU_LOGITS) // len(weight))
        if hidden.is_cuda:  # chunks of equal size
            rows = math.ceil(len(targets) / math.ceil(len(targets) / rows))
    return _LinearCrossEntropy.apply(hidden, weight, padding, targets, rows, chunk)  # type: ignore[no-untyped-call, no-any-return]


class Objective(nn.Module):
    """Training loss as a module, for `DistributedDataParallel`."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self._chunk = slopes_and_nats

    def fuse(self, backend: str = "inductor") -> None:
        """Compile the blocks and the loss, each as one graph; an operation that cannot be compiled raises an error.

        All blocks share a graph, for any number of positions. Graphs of earlier models are dropped: Torch keeps a
        limited number.
        """
        torch.compiler.reset()
        for block in self.model.model.layers:
            block.compile(dynamic=True, fullgraph=True, backend=backend)
        self._chunk = torch.compile(slopes_and_nats, dynamic=True, fullgraph=True, backend=backend)

    def forward(self, ids: Tensor, targets: Tensor, segments: PackedSegments) -> tuple[Tensor, Tensor]:
        """Sum of the nats of `targets`, and the nats of each.

        Args:
            ids: int64[seq_len], packed inputs.
            targets: int64[n_targets], next tokens of the first inputs. Further inputs have no loss.
            segments: Segments of the inputs.
        """
        hidden = self.model.hidden(ids[None], segments=segments)[0, : len(targets)]
        return linear_cross_entropy(hidden, self.model.lm_head.weight, self.model.padding, targets, chunk=self._chunk)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        padding: Tensor | None,
        targets: Tensor,
        rows: int,
        chunk: Callable[..., tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        nats = torch.empty(len(targets), device=hidden.device)
        with torch.autocast(kind, enabled=False):
            table = weight.to(dtype)
            bias = None if padding is None else padding.to(dtype)
            for start in range(0, len(targets), rows):
                part = slice(start, start + rows)
                inputs = hidden[part].to(dtype)
                slopes, nats[part] = chunk(inputs, table, bias, targets[part, None])
                grad_hidden[part] = slopes @ table
                if dtype == grad_weight.dtype:
                    grad_weight.addmm_(slopes.T, inputs)
                else:
                    grad_weight += slopes.T @ inputs
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nats)
        return nats.sum(), nats

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _grad_nats: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden.mul_(grad_total), grad_weight.mul_(grad_total), None, None, None, None

"""Diagnostics during training: activation norms and hardware utilization.

Names in the log (with `grad_norm` and `tokens_per_second`, which every logged step has):

- `gate_rms/LL`: root mean square of the input of layer LL's SiLU (the pre-activations of its MLP);
- `residual_rms`: root mean square of the residual stream after the last layer, not finite once it has overflowed;
- `matmul_flops_per_second`: the peak for `mfu`, configured or measured;
- `mfu`: model FLOPs utilization (PaLM, appendix B): `Transformer.flops_per_token` times the tokens per second since the
  last such entry, over that peak.
"""

from __future__ import annotations

import functools
import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from lm.model.transformer import Block
from lm.train.distributed import current

if TYPE_CHECKING:
    from torch import Tensor

    from lm.model.packing import Packing
    from lm.model.transformer import Transformer


class Diagnostics:
    """Measures a model during training, without changing losses, weights or random numbers.

    Args:
        every: Steps between measurements, besides the first and the last step; 0 for none.
        peak_flops: Peak FLOPs per second of one process, for `mfu`; None measures a large matrix product when first
            needed (a fifth of a second, once per process).
        precision: Precision of training, "fp32" or "bf16".
        processes: Number of processes, which share the work and whose peaks add up. All measure at the same time, so
            processes on one CPU compete for it as they do in training.
    """

    def __init__(self, every: int, peak_flops: float | None, precision: str, processes: int = 1) -> None:
        self.every, self.peak_flops, self.precision, self.processes = every, peak_flops, precision, processes
        self._mark = (0, 0.0)

    def mark(self, tokens: int, seconds: float) -> None:
        """Set the point from which speed is measured, for a resumed run."""
        self._mark = (tokens, seconds)

    def due(self, step: int, steps: int) -> bool:
        """Whether the `step`-th (from 1) of `steps` is measured."""
        return self.every > 0 and (step % self.every == 0 or step in (1, steps))

    def row(
        self,
        model: Transformer,
        ids: Tensor,
        *,
        tokens: int,
        seconds: float,
        flops_per_token: int,
        documents: Packing | None = None,
    ) -> dict[str, float]:
        """Measure the model after a step.

        Args:
            model: The model.
            ids: int64[batch, seq_len], input of the forward pass: at most a micro-batch of the step.
            tokens: Tokens that the run has read so far.
            seconds: Time that it has taken so far.
            flops_per_token: Training FLOPs of a token.
            documents: Documents of the rows, for `Transformer.hidden`; None if a row is one document.
        """
        one = self.peak_flops or matmul_flops_per_second(ids.device.type, self.precision, torch.get_num_threads())
        peak = one * self.processes
        rate = (tokens - self._mark[0]) / max(seconds - self._mark[1], 1e-9)
        self.mark(tokens, seconds)
        return {
            **activations(model, ids, self.precision, documents),
            "matmul_flops_per_second": peak,
            "mfu": rate * flops_per_token / peak,
        }


@torch.no_grad()
def activations(
    model: Transformer, ids: Tensor, precision: str = "fp32", documents: Packing | None = None
) -> dict[str, float]:
    """`gate_rms` and `residual_rms`, from a separate forward pass without the head.

    A separate pass gives the same numbers whether training is compiled or not.

    Args:
        model: Any model.
        ids: int64[batch, seq_len], rows of this process; all processes have the same number of rows.
        precision: "bf16" for autocast.
        documents: Documents of the rows, for `Transformer.hidden`; None if a row is one document.
    """
    squares: list[Tensor] = []

    def read(x: Tensor) -> None:
        squares.append(x.float().square().mean())

    with ExitStack() as stack:
        for layer in model.model.layers:
            assert isinstance(layer, Block)
            stack.callback(layer.mlp.gate_proj.register_forward_hook(lambda _, __, output: read(output)).remove)
        stack.callback(model.model.norm.register_forward_pre_hook(lambda _, inputs: read(inputs[0])).remove)
        stack.enter_context(torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"))
        # Run eagerly: a compiled layer would not call the hooks of its submodules.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        model.hidden(ids, documents=documents)
    world = current()
    *gates, residual = (world.sum(torch.stack(squares)) / world.size).sqrt().tolist()  # one transfer
    return {**{f"gate_rms/{i:02d}": value for i, value in enumerate(gates)}, "residual_rms": residual}


@functools.cache
def matmul_flops_per_second(device_type: str, precision: str, threads: int, rounds: int = 6) -> float:
    """FLOPs per second of a large square matrix product, best of `rounds`; measured once per process.

    This is what a program can reach on the machine in its current state. Vendors' figures are higher; load from other
    programs lowers it.

    Args:
        device_type: "cpu" or "cuda".
        precision: Precision of the factors, "fp32" or "bf16".
        threads: CPU threads of Torch; part of the cache key.
        rounds: Timed products, after one untimed product.
    """
    size = 8192 if device_type == "cuda" else 1024
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    # Constant factors would switch fewer transistors, and run faster on a GPU than those of a model.
    generator = torch.Generator(device_type).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, device=device_type).to(dtype) for _ in range(2))
    best = math.inf
    for i in range(rounds + 1):
        began = _now(device_type)
        torch.mm(left, right)
        elapsed = _now(device_type) - began
        best = min(best, elapsed) if i else best
    return 2 * size**3 / best


def _now(device_type: str) -> float:
    if device_type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()

"""Diagnostics during training: activation and weight norms, and hardware utilization.

Names in the log (with `grad_norm` and `tokens_per_second`, which every logged step has):

- `residual_rms/LL/attention`, `residual_rms/LL/mlp`, `residual_rms/final`: root mean square of the residual stream
  before the norms of layer LL's attention, its MLP, and the head;
- `gate_rms/LL`: root mean square of the input of layer LL's SiLU;
- `weight_norm/GROUP` and `weight_rms/GROUP`: Euclidean norm and root mean square of the weights of each of `GROUPS`,
  without padding rows. Only the root mean square compares vocabularies of different sizes;
- `matmul_flops_per_second`: the peak for `mfu`, configured or measured;
- `mfu`: model FLOPs utilization (PaLM, appendix B): `Transformer.flops_per_token` times the tokens per second since the
  last such entry, over that peak.
"""

from __future__ import annotations

import functools
import math
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from lm.model.transformer import Block
from lm.train.distributed import current
from lm.train.sharding import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from lm.model.transformer import Transformer

GROUPS = ("embedding", "head", "attention", "mlp", "norms")


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

    def row(self, model: Transformer, ids: Tensor, *, tokens: int, seconds: float, **options: Any) -> dict[str, float]:
        """Measure the model after a step.

        Args:
            model: The model.
            ids: int64[batch, seq_len], input of the forward pass: at most a micro-batch of the step.
            tokens: Tokens that the run has read so far.
            seconds: Time that it has taken so far.
            **options: Further arguments of the model's forward.
        """
        one = self.peak_flops or matmul_flops_per_second(ids.device.type, self.precision, torch.get_num_threads())
        peak = one * self.processes
        rate = (tokens - self._mark[0]) / max(seconds - self._mark[1], 1e-9)
        self.mark(tokens, seconds)
        return {
            **activations(model, ids, self.precision, **options),
            **weights(model),
            "matmul_flops_per_second": peak,
            "mfu": rate * model.flops_per_token() / peak,
        }


@torch.no_grad()
def activations(model: Transformer, ids: Tensor, precision: str = "fp32", **options: Any) -> dict[str, float]:
    """Root mean squares inside the model, from a separate forward pass without the head.

    A separate pass gives the same numbers whether training is compiled or not.

    Args:
        model: Any model.
        ids: int64[batch, seq_len], rows of this process, which are as many in each.
        precision: "bf16" for autocast.
        **options: Further arguments of the model's forward.
    """
    world = current()
    squares: dict[str, Tensor] = {}

    def read(name: str, x: Tensor) -> None:
        squares[name] = x.float().square().mean()

    autocast = torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16")
    # Run eagerly: a compiled layer would not call the hooks of its submodules.
    with _reading(model, read), torch.compiler.set_stance("force_eager"), autocast:
        model(ids, torch.zeros_like(ids, dtype=torch.bool), **options)
    means = world.sum(torch.stack([*squares.values()])) / world.size
    return dict(zip(squares, means.sqrt().tolist(), strict=True))  # one transfer


@contextmanager
def _reading(model: Transformer, read: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `read` with the name and value of each measured activation while the block runs."""
    with ExitStack() as stack:

        def inputs_of(module: nn.Module, name: str) -> None:
            stack.callback(module.register_forward_pre_hook(lambda _, inputs: read(name, inputs[0])).remove)

        def output_of(module: nn.Module, name: str) -> None:
            stack.callback(module.register_forward_hook(lambda _, __, output: read(name, output)).remove)

        for i, layer in enumerate(model.model.layers):
            assert isinstance(layer, Block)
            inputs_of(layer.input_layernorm, f"residual_rms/{i:02d}/attention")
            inputs_of(layer.post_attention_layernorm, f"residual_rms/{i:02d}/mlp")
            output_of(layer.mlp.gate_proj, f"gate_rms/{i:02d}")
        inputs_of(model.model.norm, "residual_rms/final")
        yield


@torch.no_grad()
def weights(model: Transformer) -> dict[str, float]:
    """Euclidean norm and root mean square of each group of weights; a tied table counts as embedding."""
    sums: dict[str, list[Tensor]] = {}
    sizes: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        group = _group(name)
        full = whole(parameter)
        used = full[: model.vocab_size] if group in ("embedding", "head") else full
        sums.setdefault(group, []).append(used.float().square().sum())
        sizes[group] = sizes.get(group, 0) + used.numel()
    found = dict(zip(sums, torch.stack([torch.stack(parts).sum() for parts in sums.values()]).tolist(), strict=True))
    norms = {f"weight_norm/{group}": math.sqrt(found[group]) for group in GROUPS if group in found}
    means = {f"weight_rms/{group}": math.sqrt(found[group] / sizes[group]) for group in GROUPS if group in found}
    return norms | means


def _group(name: str) -> str:
    if name.startswith("model.embed_tokens"):
        return "embedding"
    if name.startswith("lm_head"):
        return "head"
    if "norm" in name:
        return "norms"
    return "attention" if ".self_attn." in name else "mlp"


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

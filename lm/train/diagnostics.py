"""Diagnostics during training: activation norms and hardware utilization. They do not change the training.

Names in the log (with `grad_norm` and `tokens_per_second`, which every logged step has):

- `gate_rms/LL`: root mean square of the input of layer LL's SiLU (the pre-activations of its MLP);
- `residual_rms`: root mean square of the residual stream after the last layer, not finite once it has overflowed;
- `mfu`: model FLOPs utilization (PaLM, appendix B), where `lm.train.peak_flops` is set: `Transformer.flops_per_token`
  times `tokens_per_second`, over that peak.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from lm.model.transformer import Block
from lm.train.distributed import current

if TYPE_CHECKING:
    from torch import Tensor

    from lm.model.transformer import Transformer


@torch.no_grad()
def activations(
    model: Transformer, ids: Tensor, precision: str = "fp32", documents: Tensor | None = None
) -> dict[str, float]:
    """`gate_rms` and `residual_rms`, from a separate forward pass without the head.

    A separate pass gives the same numbers whether training is compiled or not.

    Args:
        model: Any model.
        ids: int64[batch, seq_len], rows of this process; all processes have the same number of rows.
        precision: "bf16" for autocast.
        documents: As for `Transformer.hidden`.
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

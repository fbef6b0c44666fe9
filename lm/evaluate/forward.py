"""Forward passes of an evaluation: the loss of the scored targets of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from lm.model.device import arithmetic, upload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from lm.evaluate.windows import Window
    from lm.model.transformer import Transformer

# If the sum of exp(logits) is in this range, fp32 is precise enough without a shift by the maximum.
_SAFE = (1e-20, 1e30)
_LOGITS = 2**28
"""Logits that exist at a time on a GPU."""


class Forward:
    """Computes losses of batches of windows; a GPU only queues the work.

    Args:
        model: The model, in evaluation mode.
        padding_id: Any id.
        precision: As in `TrainConfig`; CPUs always compute in fp32.
        on_gpu: Whether to compute as on a GPU; None for what the model's device is.

    Attributes:
        bf16: Whether matrix products are in bf16. The logits are never rounded to bf16.
    """

    def __init__(
        self,
        model: Transformer,
        padding_id: int,
        *,
        precision: str = "auto",
        on_gpu: bool | None = None,
    ) -> None:
        self._model, self._padding_id = model, padding_id
        self._device = next(model.parameters()).device
        on_gpu = self._device.type == "cuda" if on_gpu is None else on_gpu
        self.bf16 = on_gpu and arithmetic(precision, False, self._device)["precision"] == "bf16"
        self._table: Tensor | None = None
        if on_gpu:
            weight = model.lm_head.weight.detach()
            self._table = weight.bfloat16() if self.bf16 else weight

    @torch.no_grad()
    def __call__(self, windows: Sequence[tuple[NDArray[np.int64], Window]]) -> Callable[[], list[NDArray[np.float64]]]:
        """Nats of the scored targets of each window, from a function that waits for them.

        With causal attention, padding on the right has no effect.
        """
        width = max(window.last - window.start for _, window in windows)
        inputs = np.full((len(windows), width), self._padding_id)
        targets = np.full((len(windows), width), self._padding_id)
        keep = np.zeros((len(windows), width), bool)
        for row, (x, window) in enumerate(windows):
            size = window.last - window.start
            inputs[row, :size] = x[window.start : window.last]
            targets[row, :size] = x[window.start + 1 : window.last + 1]
            keep[row, window.first - 1 - window.start : size] = True
        ends = np.cumsum(keep.sum(axis=1))
        ids, places, next_ids = (
            upload(torch.from_numpy(array), self._device) for array in (inputs, np.flatnonzero(keep), targets[keep])
        )
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self.bf16):
            hidden = self._model.hidden(ids).flatten(0, 1).index_select(0, places)
        nats = _fetch(self._losses(hidden, next_ids))
        return lambda: np.split(nats().astype(np.float64), ends[:-1])

    def _losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Nats of targets after hidden states, float32[targets]."""
        if self._table is not None:
            rows = max(1, _LOGITS // len(self._table))
            parts = zip(torch.split(hidden.to(self._table.dtype), rows), torch.split(targets, rows), strict=True)
            return torch.cat([_nats(_product(part, self._table), self._model.padding, ids) for part, ids in parts])
        nats = fast_nats(self._model.head(hidden).float(), targets)
        return F.cross_entropy(self._model.head(hidden).float(), targets, reduction="none") if nats is None else nats


def _product(hidden: Tensor, table: Tensor) -> Tensor:
    """Logits in fp32, also of bf16 factors."""
    if hidden.is_cuda and hidden.dtype == torch.bfloat16:
        return torch.mm(hidden, table.T, out_dtype=torch.float32)
    return hidden.float() @ table.T.float()


def _nats(logits: Tensor, padding: Tensor | None, targets: Tensor) -> Tensor:
    """Cross-entropy on a GPU: `fast_nats` would wait for it."""
    logits = logits if padding is None else logits + padding
    return logits.logsumexp(1) - logits.gather(1, targets[:, None])[:, 0]


def fast_nats(logits: Tensor, targets: Tensor) -> Tensor | None:
    """-log softmax of the targets, overwriting the logits; None if fp32 needs a shift by the maximum.

    This takes two passes over the logits instead of cross_entropy's four.
    """
    chosen = logits.gather(1, targets[:, None])[:, 0]
    total = logits.exp_().sum(-1)
    low, high = (value.item() for value in total.aminmax())
    if not (_SAFE[0] < low and high < _SAFE[1]):
        return None
    return total.log_() - chosen


def _fetch(values: Tensor) -> Callable[[], NDArray[np.float32]]:
    """Queue a copy to the host; the result waits for it, but not for work that is queued later."""
    on_host = values.to("cpu", non_blocking=True)
    if not values.is_cuda:
        return on_host.numpy
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()

    def wait() -> NDArray[np.float32]:
        event.synchronize()
        return on_host.numpy()

    return wait

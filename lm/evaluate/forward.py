"""Forward passes of an evaluation: the loss of the scored targets of windows, for our models and for any other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from lm.model.device import arithmetic, upload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from lm.evaluate.windows import Window
    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike

# If the sum of exp(logits) is in this range, fp32 is precise enough without a shift by the maximum.
_SAFE = (1e-20, 1e30)
LOGITS = 2**25
"""Logits that exist at a time, 128 MiB."""


class ScorableModel(ABC):
    """The part of a language model that an evaluation needs; a GPU only queues the work.

    Attributes:
        vocab_size: Number of ids of its tokenizer; further rows of the model have probability 0.
        device: Device of the inputs.
        context_tokens: Maximum number of inputs of a forward pass.
        start_id: The token before the first one of a document.
        end_id: The token after the last one, whose loss is reported separately; None if the model has none.
        starts_windows: Whether every window begins with `start_id`, not only the first one of a document.
    """

    tokenizer_sha256: str
    vocab_size: int
    device: torch.device
    context_tokens: int
    start_id: int
    end_id: int | None
    starts_windows: bool = False

    @abstractmethod
    def nats(self, ids: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Loss of some targets, float32[n_targets].

        Args:
            ids: int64[batch, seq_len], inputs, padded on the right, which causal models do not see.
            places: int64[n_targets], the last input before each target, as an index into the flattened inputs.
            targets: int64[n_targets], ids.
        """

    @abstractmethod
    def logits(self, ids: Tensor, places: Tensor, past: Any = None) -> Tensor:
        """Logits of the next token in fp32, float32[n_places, vocab_size].

        Args:
            ids: int64[batch, seq_len], inputs, padded on the right.
            places: int64[n_places], ascending indices into the flattened inputs.
            past: A cache of `past` that precedes every row.
        """

    def past(self, ids: Sequence[int], before: Any = None, keep: int = 0) -> Any:
        """Cache of inputs for `logits`; None if the model has no cache that gives the logits of whole passes.

        Args:
            ids: The inputs.
            before: A cache, which does not change.
            keep: How many of its inputs precede `ids`.
        """
        return None

    @torch.no_grad()
    def __call__(self, windows: Sequence[tuple[NDArray[np.int64], Window]]) -> Callable[[], list[NDArray[np.float64]]]:
        """Nats of the scored targets of each window, from a function that waits for them."""
        shifts = [int(self.starts_windows and window.start > 0) for _, window in windows]
        width = max(window.last - window.start + shift for (_, window), shift in zip(windows, shifts, strict=True))
        inputs = np.full((len(windows), width), self.start_id)
        targets = np.full((len(windows), width), self.start_id)
        keep = np.zeros((len(windows), width), bool)
        for row, ((x, window), shift) in enumerate(zip(windows, shifts, strict=True)):
            size = window.last - window.start + shift
            inputs[row, shift:size] = x[window.start : window.last]
            targets[row, shift:size] = x[window.start + 1 : window.last + 1]
            keep[row, window.first - 1 - window.start + shift : size] = True
        ends = np.cumsum(keep.sum(axis=1))
        ids, places, next_ids = (
            upload(torch.from_numpy(array), self.device) for array in (inputs, np.flatnonzero(keep), targets[keep])
        )
        nats = _fetch(self.nats(ids, places, next_ids))
        return lambda: np.split(nats().astype(np.float64), ends[:-1])


class Forward(ScorableModel):
    """Computes losses of our models.

    Args:
        model: The model, in evaluation mode.
        eos_id: Id of `end_of_text`.
        precision: As in `TrainConfig`; CPUs always compute in fp32.
        on_gpu: Whether to compute as on a GPU; None for what the model's device is.

    Attributes:
        bf16: Whether matrix products are in bf16. The logits are never rounded to bf16.
    """

    def __init__(
        self,
        model: Transformer,
        eos_id: int,
        *,
        precision: str = "auto",
        on_gpu: bool | None = None,
    ) -> None:
        self._model = model
        self.tokenizer_sha256, self.vocab_size = model.tokenizer_sha256, model.vocab_size
        self.context_tokens = model.context_tokens
        self.start_id, self.end_id = eos_id, eos_id
        self.device = next(model.parameters()).device
        on_gpu = self.device.type == "cuda" if on_gpu is None else on_gpu
        self.bf16 = on_gpu and arithmetic(precision, False, self.device)["precision"] == "bf16"
        self._table: Tensor | None = None
        if on_gpu:
            weight = model.lm_head.weight.detach()
            self._table = weight.bfloat16() if self.bf16 else weight

    def nats(self, ids: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Loss of some targets."""
        return chunked_nats(
            self._logits, self._hidden(ids, places), targets, self.vocab_size, queued=self._table is not None
        )

    def logits(self, ids: Tensor, places: Tensor, past: Any = None) -> Tensor:
        """Logits of the next token; there is no cache."""
        return self._logits(self._hidden(ids, places))[:, : self.vocab_size]

    def _hidden(self, ids: Tensor, places: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return self._model.hidden(ids).flatten(0, 1).index_select(0, places)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits in fp32, of padding ids at -inf."""
        if self._table is None:
            return self._model.head(hidden).float()
        logits = product(hidden.to(self._table.dtype), self._table)
        return logits if self._model.padding is None else logits + self._model.padding


class LogitsModel(ScorableModel):
    """A function from ids to logits as a model.

    Args:
        function: Gets int64[batch, seq_len], a Torch tensor, and returns float[batch, seq_len, rows], a Torch tensor or
            a NumPy array: logits of the next token. Inputs are padded on the right, which must not change logits of
            earlier positions. Rows beyond the tokenizer's ids are ignored.
        tokenizer: Its tokenizer.
        context_tokens: Maximum number of inputs.
        start_id: The token before the first one of a document; None for the end of text.
        starts_windows: Whether every window begins with it, for models that never saw text without it.
        device: Device of the ids.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor | ArrayLike],
        tokenizer: TokenizerLike,
        *,
        context_tokens: int,
        start_id: int | None = None,
        starts_windows: bool = False,
        device: str = "cpu",
    ) -> None:
        self._function = function
        self.tokenizer_sha256, self.vocab_size = tokenizer.sha256, tokenizer.vocab_size
        self.device, self.context_tokens = torch.device(device), context_tokens
        self.end_id = tokenizer.end_id
        self.start_id, self.starts_windows = self.end_id if start_id is None else start_id, starts_windows

    def nats(self, ids: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Loss of some targets."""
        logits = torch.as_tensor(self._function(ids)).flatten(0, 1)
        return chunked_nats(
            lambda rows: logits[rows, : self.vocab_size].float(),
            places,
            targets,
            self.vocab_size,
            queued=logits.is_cuda,
        )

    def logits(self, ids: Tensor, places: Tensor, past: Any = None) -> Tensor:
        """Logits of the next token; there is no cache."""
        return torch.as_tensor(self._function(ids)).flatten(0, 1)[places, : self.vocab_size].float()


def chunked_nats(
    logits_of: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, vocab_size: int, *, queued: bool
) -> Tensor:
    """Loss of targets in chunks of positions, float32[n_targets].

    Args:
        logits_of: Logits in fp32 of a part of `hidden`, in memory of their own.
        hidden: Something for each target.
        targets: int64[n_targets].
        vocab_size: Number of logits.
        queued: Whether to wait for no result, as on a GPU.
    """
    rows = max(1, LOGITS // vocab_size)
    nats = []
    for part, ids in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
        if queued:
            logits = logits_of(part)
            nats.append(logits.logsumexp(1) - logits.gather(1, ids[:, None])[:, 0])
            continue
        fast = fast_nats(logits_of(part), ids)
        nats.append(F.cross_entropy(logits_of(part), ids, reduction="none") if fast is None else fast)
    return torch.cat(nats)


def product(hidden: Tensor, table: Tensor) -> Tensor:
    """Logits in fp32, also of bf16 factors."""
    if hidden.is_cuda and hidden.dtype == torch.bfloat16:
        return torch.mm(hidden, table.T, out_dtype=torch.float32)
    return hidden.float() @ table.T.float()


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

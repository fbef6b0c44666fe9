"""State of an unfinished run as tensors, weights and optimizer state, and the thread that writes it."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lm.model.weights import load_model_tensors, model_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from torch import Tensor
    from torch.optim import Optimizer

    from lm.model.transformer import Transformer

_logger = logging.getLogger(__name__)


def training_tensors(model: Transformer, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Weights of the model, and the optimizers' state as `<parameter>#<entry>`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = {
        f"{names[parameter]}#{entry}": value
        for optimizer in optimizers
        for parameter, entries in optimizer.state.items()
        for entry, value in entries.items()
    }
    return model_tensors(model) | state


def load_training_tensors(model: Transformer, optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Fill the model and the optimizers with the tensors of `training_tensors`."""
    load_model_tensors(model, {name: value for name, value in tensors.items() if "#" not in name})
    states: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if "#" in key:
            name, entry = key.rsplit("#", 1)
            states.setdefault(name, {})[entry] = value
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entries = states[names[parameter]]
                optimizer.state[parameter] = {entry: value.to(parameter.device) for entry, value in entries.items()}


class BackgroundWriter:
    """Writes one file at a time in a thread, while training continues.

    An error is raised by the next call. Leaving the context waits for the file.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def start(self, write: Callable[..., None], *args: Any) -> None:
        """Call `write` in the thread, after the previous file is written."""
        self.wait()
        self._pending = self._thread.submit(write, *args)

    def check(self) -> None:
        """Raise the error of a file that could not be written."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until no file is being written."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except Exception as failed:
            if error is None:
                raise
            _logger.error("the last checkpoint was not written: %s", failed)  # noqa: TRY400
        finally:
            self._thread.shutdown()

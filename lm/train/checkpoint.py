"""State of an unfinished run as tensors: weights, optimizer state and the ids that it has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm.model.weights import load_model_tensors, model_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from lm.model.transformer import Transformer


_LEARNED = "#learned"


def training_tensors(model: Transformer, optimizers: Sequence[Optimizer], learned: Tensor) -> dict[str, Tensor]:
    """Weights of the model, the optimizers' state as `<parameter>#<entry>`, and `Trainer.learned`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = {
        f"{names[parameter]}#{entry}": value
        for optimizer in optimizers
        for parameter, entries in optimizer.state.items()
        for entry, value in entries.items()
    }
    return model_tensors(model) | state | {_LEARNED: learned}


def load_training_tensors(model: Transformer, optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> Tensor:
    """Fill the model and the optimizers with the tensors of `training_tensors`; return the last one."""
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
    return tensors[_LEARNED]

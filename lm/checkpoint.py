"""State of an unfinished run in one safetensors file, renamed into place."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tokenizer.errors import UserError
from tokenizer.files import check_file, parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor
    from torch.optim import Optimizer

    from lm.model import Transformer


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON-able `meta` to `path`; a reader sees the old file or the new one, never half."""
    partial = path.with_name(f".{path.name}.partial")
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, partial, metadata={"format": "pt", "json": json.dumps(meta)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def load_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        UserError: If the file is missing or damaged.
    """
    try:
        check_file(path)
        with safe_open(path, framework="pt", device=device) as file:
            meta = parse_json((file.metadata() or {})["json"], path)
            return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118  (not a dict)
    except (FileNotFoundError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged ({error}); delete its folder and train again") from error


def model_tensors(model: Transformer) -> dict[str, Tensor]:
    """The weights under HF's names; a tied head is left out, as HF does."""
    tensors = model.state_dict()
    if model.config.tie_embeddings:
        del tensors["lm_head.weight"]
    return tensors


def load_model_tensors(model: Transformer, tensors: dict[str, Tensor]) -> None:
    """Fill `model` with weights from `model_tensors`."""
    if model.config.tie_embeddings:
        tensors = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}
    model.load_state_dict(tensors)


def optimizer_tensors(model: Transformer, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The optimizers' state as `<parameter>#<entry>`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}#{entry}": value
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for entry, value in state.items()
    }


def load_optimizer_tensors(model: Transformer, optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Fill the optimizers with state from `optimizer_tensors`."""
    states: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, entry = key.rsplit("#", 1)
        states.setdefault(name, {})[entry] = value
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter] = dict(states[names[parameter]])

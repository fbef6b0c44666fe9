"""State of an unfinished run in one safetensors file, renamed into place."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tokenizer.durable import replacing_path
from tokenizer.errors import UserError
from tokenizer.files import check_file, parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor
    from torch.optim import Optimizer

    from lm.model.transformer import Transformer

_JSON, _CHECKSUM = "json", "xxh3_128"


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors, JSON-able `meta` and a checksum of both; a reader sees the old file or the new one, never half.

    Equal content gives equal files: safetensors writes several entries of metadata in random order, so there is one.

    Raises:
        OSError: If the file cannot be written (disk full, no permission).
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, on_cpu, {_JSON: json.dumps({**meta, _CHECKSUM: _checksum(on_cpu, meta)})})


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file next to its final name, bring it to disk and rename it.

    Raises:
        OSError: If the file cannot be written (disk full, no permission).
    """
    with replacing_path(path) as partial:
        try:
            save_file(tensors, partial, metadata=metadata)
        except SafetensorError as error:
            if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


def _checksum(tensors: dict[str, Tensor], meta: dict[str, Any]) -> str:
    """XXH3-128 (32 hex digits) of tensors with their names, types and shapes, and of `meta`."""
    digest = xxhash.xxh3_128(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, f"{tensor.dtype}", list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        UserError: If the file is missing or damaged.
    """
    try:
        check_file(path)
        with safe_open(path, framework="pt", device="cpu") as file:
            meta = parse_json((file.metadata() or {})[_JSON], path)
            checksum = meta.pop(_CHECKSUM, None)  # files of older versions have none
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (FileNotFoundError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged ({error}); delete its folder and train again") from error
    if checksum not in (None, _checksum(tensors, meta)):
        raise UserError(f"{path} is damaged: its checksum is wrong; delete its folder and train again")
    return {name: tensor.to(device) for name, tensor in tensors.items()}, meta


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

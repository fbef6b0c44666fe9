"""Models on disk: safetensors files with JSON metadata and a checksum, replaced atomically."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lm.model.config import MODEL, ModelConfig
from lm.model.device import resolve_device
from lm.model.transformer import Transformer
from tokenizer import system
from tokenizer.durable import replacing_path
from tokenizer.errors import UserError
from tokenizer.files import check_file, parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_JSON, _CHECKSUM = "json", "xxh3_128"


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors, JSON-able `meta` and a checksum of both, atomically.

    Equal content gives equal files: safetensors writes metadata entries in random order, so there is only one.

    Raises:
        OSError: If the file cannot be written (disk full, no permission).
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, on_cpu, {_JSON: json.dumps({**meta, _CHECKSUM: _checksum(on_cpu, meta)})})


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically.

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
        system.share(partial)


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
            checksum = meta.pop(_CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (FileNotFoundError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged ({error}); delete its folder and train again") from error
    if checksum != _checksum(tensors, meta):
        raise UserError(f"{path} is damaged: its checksum is wrong; delete its folder and train again")
    return {name: tensor.to(device) for name, tensor in tensors.items()}, meta


def model_tensors(model: Transformer) -> dict[str, Tensor]:
    """The weights under HF's names; like HF, without a tied head."""
    tensors = model.state_dict()
    if model.config.tie_embeddings:
        del tensors["lm_head.weight"]
    return tensors


def load_model_tensors(model: Transformer, tensors: dict[str, Tensor]) -> None:
    """Load weights from `model_tensors` into `model`."""
    if model.config.tie_embeddings:
        tensors = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}
    model.load_state_dict(tensors)


def save_model(model: Transformer, folder: Path) -> None:
    """Write `model.safetensors`, which `load_model` reads, into a folder."""
    meta = {
        "model": dataclasses.asdict(model.config),
        "vocab_size": model.vocab_size,
        "context_tokens": model.context_tokens,
        "tokenizer_sha256": model.tokenizer_sha256,
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / MODEL, model_tensors(model), meta)


def load_model(folder: Path, device: str = "cpu", local_rank: int | None = None) -> Transformer:
    """Load a trained model in evaluation mode.

    Args:
        folder: A folder that `save_model` or `lm.train.loop.train` wrote.
        device: As in `TrainConfig`.
        local_rank: As for `lm.model.device.resolve_device`.

    Raises:
        UserError: If the folder does not hold a complete model.
    """
    place = resolve_device(device, local_rank)
    tensors, meta = load_tensors(folder / MODEL, str(place))
    try:
        model = Transformer(
            ModelConfig(**meta["model"]), meta["vocab_size"], meta["context_tokens"], meta["tokenizer_sha256"]
        ).to(place)
        load_model_tensors(model, tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{folder / MODEL} does not hold a model of this package ({error}); train it again") from error
    return model.eval()

"""Where a model computes."""

from __future__ import annotations

import torch

from tokenizer.errors import UserError


def resolve_device(name: str) -> torch.device:
    """The device that `name` means: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".

    Raises:
        UserError: If it is unknown or absent.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device={name!r} is unknown; use auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name!r} is not supported; use auto, cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name!r}, but Torch finds {torch.cuda.device_count()} CUDA devices; use device=auto")
    return device


def precision(device: torch.device) -> str:
    """What training computes in there: "bf16" on CUDA, "fp32" elsewhere. Models of both are not comparable."""
    return "bf16" if device.type == "cuda" else "fp32"

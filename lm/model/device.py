"""Device and arithmetic of a model."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Dense bf16 FLOPs per second by a part of the device's name (manufacturers' data sheets); the first match counts.
_PEAK_FLOPS = {
    "B200": 2.25e15,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10G": 70e12,
    "RTX 4090": 165e12,
}


def peak_flops(device: torch.device) -> float | None:
    """Largest number of bf16 FLOPs per second of a GPU, which utilization is relative to; None if it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in _PEAK_FLOPS.items() if part in name), None)


def resolve_device(name: str, local_rank: int | None = None) -> torch.device:
    """Return the device named "auto" (CUDA if available), "cpu", "cuda" or "cuda:N".

    Args:
        name: As in `TrainConfig`.
        local_rank: Index of this process on its machine; each process gets its own CUDA device.

    Raises:
        UserError: If the device is unknown or missing.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and local_rank is not None:
        name = f"cuda:{local_rank}"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name!r} is unknown; use auto, cpu or cuda")
    device = torch.device(name)
    n_gpus = torch.cuda.device_count()
    if device.type == "cuda" and local_rank is not None:
        if device.index != local_rank:
            raise UserError(f"device={name!r} is one GPU for several processes; use lm.train.device=cuda")
        if local_rank >= n_gpus:
            raise UserError(
                f"local rank {local_rank} has no GPU: Torch finds {n_gpus} CUDA devices on this machine; use "
                f"torchrun --nproc-per-node {max(1, n_gpus)}, or lm.train.device=cpu"
            )
    if device.type == "cuda" and (device.index or 0) >= n_gpus:
        raise UserError(f"device={name!r}, but Torch finds {n_gpus} CUDA devices; use device=auto")
    return device


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the host to a device, which does not wait for earlier work of the device."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@contextmanager
def memory_advice(advice: str) -> Iterator[None]:
    """Turn a lack of GPU memory into a UserError that names the setting to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"out of GPU memory {advice}") from error


def arithmetic(precision: str, compiled: bool | str, device: torch.device) -> dict[str, str | bool]:
    """Resolve the settings that affect rounding; models that differ in them are not comparable.

    Args:
        precision: As in `TrainConfig`.
        compiled: `TrainConfig.compile`.
        device: Device of the model.

    Returns:
        `precision`, "fp32" or "bf16", and `compile`, True, if `torch.compile` fuses the layers.
    """
    cuda = device.type == "cuda"
    bf16 = precision == "bf16" or (precision == "auto" and cuda)
    fused = cuda if compiled == "auto" else bool(compiled)
    return {"precision": "bf16" if bf16 else "fp32", **({"compile": True} if fused else {})}

"""Finds operations that would make a GPU wait for the host, on any device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WAITING = {
    torch.ops.aten._local_scalar_dense.default,  # item, tolist, int(), bool()
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}


class Waits(TorchDispatchMode):
    """Counts operations whose result or shape the host needs, among them indexing by a mask."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        by_mask = func is torch.ops.aten.index.Tensor and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        self.count += by_mask or func in _WAITING
        return func(*args, **(kwargs or {}))

"""Packing: attention within documents when a row contains several."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which positions attend to which, computed once for all layers: a mask, or document bounds for a kernel.

    Attributes:
        mask: bool[batch, 1, seq_len, seq_len], True where a query (third axis) may attend to a key.
        bounds: int32[documents + 1], start of each document in the concatenated rows, and the end of the last.
        flash: The variable-length attention kernel that takes `bounds`.
    """

    mask: Tensor | None = None
    bounds: Tensor | None = None
    flash: Any = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention within documents, float[batch, n_heads, seq_len, head_dim] each."""
        if self.bounds is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        batch, _, seq_len, _ = q.shape
        # Concatenate rows: [batch * seq_len, n_heads, head_dim]. Under autocast, norms may have widened q and k.
        ends = [x.transpose(1, 2).flatten(0, 1).to(v.dtype) for x in (q, k, v)]
        mixed = self.flash(*ends, self.bounds, self.bounds, seq_len, seq_len, window_size=(-1, 0))
        together: Tensor = mixed.view(batch, seq_len, *mixed.shape[1:]).transpose(1, 2)
        return together


def flash_attention() -> Any:
    """Torch's variable-length attention, or None if this version of Torch lacks it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None


def pack(documents: Tensor) -> Packing:
    """Prepare attention within documents.

    With half precision on CUDA, Flash Attention skips pairs of positions in different documents. Elsewhere they are
    masked, which costs as much as attention over whole rows.

    Args:
        documents: int64[batch, seq_len], index of each position's document, non-decreasing within a row.
    """
    if documents.is_cuda and torch.is_autocast_enabled("cuda") and (flash := flash_attention()) is not None:
        return Packing(bounds=bounds(documents), flash=flash)
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return Packing(mask=same.tril_())


def bounds(documents: Tensor) -> Tensor:
    """int32[documents + 1]: start of each document in the concatenated rows, and the end of the last."""
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = first.flatten().nonzero().flatten()
    return torch.cat((starts, starts.new_tensor([documents.numel()]))).to(torch.int32)

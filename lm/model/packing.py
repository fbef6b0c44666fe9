"""Attention where a row holds several documents: each sees itself alone."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which positions may see which, worked out once for all layers; one of the two forms.

    Attributes:
        mask: bool[batch, 1, seq_len, seq_len], True where a query (third axis) may see a key.
        bounds: int32[documents + 1], where documents begin in the rows laid end to end, and the end of the last.
        flash: With `bounds`: the kernel that takes them.
    """

    mask: Tensor | None = None
    bounds: Tensor | None = None
    flash: Any = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention within documents, float[batch, n_heads, seq_len, head_dim] each."""
        if self.bounds is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        batch, _, seq_len, _ = q.shape
        # Laid end to end, [batch * seq_len, n_heads, head_dim]; norms under autocast may have widened q and k.
        ends = [x.transpose(1, 2).flatten(0, 1).to(v.dtype) for x in (q, k, v)]
        mixed = self.flash(*ends, self.bounds, self.bounds, seq_len, seq_len, window_size=(-1, 0))
        together: Tensor = mixed.view(batch, seq_len, *mixed.shape[1:]).transpose(1, 2)
        return together


def flash_attention() -> Any:
    """Torch's attention over sequences of any lengths laid end to end, or None where Torch is too old to have it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None


def pack(documents: Tensor) -> Packing:
    """Prepare attention within documents.

    With half precision on CUDA, Flash Attention takes documents of any lengths and skips what lies between
    them; elsewhere a mask hides it, which computes all the same and costs no less than whole rows.

    Args:
        documents: int64[batch, seq_len], number of each position's document, never falling within a row.
    """
    if documents.is_cuda and torch.is_autocast_enabled("cuda") and (flash := flash_attention()) is not None:
        return Packing(bounds=bounds(documents), flash=flash)
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return Packing(mask=same.tril_())


def bounds(documents: Tensor) -> Tensor:
    """Where documents begin in the rows laid end to end, and the end of the last: int32[documents + 1]."""
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = first.flatten().nonzero().flatten()
    return torch.cat((starts, starts.new_tensor([documents.numel()]))).to(torch.int32)

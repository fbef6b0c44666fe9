"""Packing: attention within documents when a row contains several."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class Packing:
    """Which positions attend to which, computed once for all layers: a mask, or blocks for a kernel.

    Attributes:
        mask: bool[batch, 1, seq_len, seq_len], True where a query (third axis) may attend to a key.
        blocks: Blocks of queries and keys that share a document.
        flex: The kernel that takes `blocks`.
    """

    mask: Tensor | None = None
    blocks: BlockMask | None = None
    flex: Any = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention within documents, float[batch, n_heads, seq_len, head_dim] each."""
        if self.blocks is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        # Under autocast, norms may have widened q and k.
        mixed: Tensor = self.flex(q.to(v.dtype), k.to(v.dtype), v, block_mask=self.blocks)
        return mixed


def pack(documents: Tensor) -> Packing:
    """Prepare attention within documents: FlexAttention on CUDA, a mask elsewhere.

    FlexAttention skips blocks of positions in different documents. A mask costs as much as attention over whole rows.
    Neither has shapes that depend on the documents, so compiled layers are compiled once.

    Args:
        documents: int64[batch, seq_len], index of each position's document, non-decreasing within a row.
    """
    if documents.is_cuda:
        return Packing(blocks=document_blocks(documents), flex=compiled_flex_attention())
    return dense(documents)


def dense(documents: Tensor) -> Packing:
    """Prepare attention within documents by a mask, which also works without `torch.compile`."""
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return Packing(mask=same.tril_())


def document_blocks(documents: Tensor) -> BlockMask:
    """Blocks of attention within documents, on their device; the argument is that of `pack`."""
    from torch.nn.attention.flex_attention import create_block_mask

    def causal_within_documents(batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents[batch, query] == documents[batch, key])

    rows, seq_len = documents.shape
    return create_block_mask(causal_within_documents, rows, None, seq_len, seq_len, device=str(documents.device))


@functools.cache
def compiled_flex_attention() -> Any:
    """FlexAttention as one kernel; without `torch.compile` it would compute the scores of all pairs."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)

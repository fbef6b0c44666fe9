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

BLOCK = 128
"""Positions of a block, FlexAttention's own default."""


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
    """Blocks of attention within documents, computed from the documents at the blocks' ends, on their device.

    `create_block_mask` would evaluate the mask for every pair of positions.

    Args:
        documents: As for `pack`.
    """
    from torch.nn.attention.flex_attention import BlockMask

    seq_len = documents.shape[1]
    starts = torch.arange(0, seq_len, BLOCK, device=documents.device)
    first, last = documents[:, starts], documents[:, (starts + BLOCK - 1).clamp(max=seq_len - 1)]
    below = starts[:, None] >= starts[None, :]
    some = (last[:, None, :] >= first[:, :, None]) & below
    # A block without a boundary between documents, off the diagonal, needs no mask of its own.
    whole = (first[:, None, :] == last[:, :, None]) & (starts[:, None] > starts[None, :])

    def causal_within_documents(batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents[batch, query] == documents[batch, key])

    return BlockMask.from_kv_blocks(
        *_ordered(some & ~whole),
        *_ordered(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=causal_within_documents,
        seq_lengths=(seq_len, seq_len),
    )


def _ordered(wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Number of wanted key blocks of each query block, and the key blocks, the wanted ones first."""
    order = wanted.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    return wanted.sum(-1, dtype=torch.int32)[:, None], order.to(torch.int32)[:, None].contiguous()


@functools.cache
def compiled_flex_attention() -> Any:
    """FlexAttention as one kernel; without `torch.compile` it would compute the scores of all pairs."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)

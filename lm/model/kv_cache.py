"""KV cache for incremental decoding."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm.model.config import ModelConfig


class Cached(Protocol):
    """A model that can use a cache: `lm.model.transformer.Transformer`."""

    config: ModelConfig
    context_tokens: int
    lm_head: nn.Linear


class KVCache:
    """KV cache for `Transformer.forward(ids, cache=cache)`; for inference only.

    Each row has its own length, and a forward pass appends its ids after it. Pad prompts of unequal lengths on the
    right, then rewind the cache to their lengths: slots past a row's length are never read, and the next pass
    overwrites them.

    Several continuations of one text can be read together as a tree: see `branch`.

    Args:
        model: The model that will use the cache.
        rows: Number of sequences.
        capacity: Tokens per row to allocate initially; it grows on demand.

    Attributes:
        lengths: int64[rows], on the CPU: cached tokens of each row.
    """

    def __init__(self, model: Cached, rows: int = 1, capacity: int = 64) -> None:
        config, weight = model.config, model.lm_head.weight
        self._context_tokens = model.context_tokens
        self._device = weight.device
        shape = (rows, config.n_heads, capacity, config.head_dim)
        self.layers = [LayerKVCache(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(config.n_layers)]
        self.lengths = torch.zeros(rows, dtype=torch.int64)
        self._parents: Tensor | None = None

    def branch(self, parents: Sequence[Sequence[int]]) -> None:
        """Make the next forward pass read a tree of tokens after the cached ones.

        Each token attends to the cached tokens of its row, its ancestors and itself; its position is that of a sequence
        of these. After the pass, rewind the cache: only a leading chain (parents -1, 0, 1, ...) can be kept.

        Args:
            parents: For each row and each token of the pass, the index of its parent, which must come before it; -1 for
                the last cached token.
        """
        self._parents = torch.tensor(parents, dtype=torch.int64)

    def rewind(self, lengths: int | Sequence[int] | Tensor) -> None:
        """Keep only the first `lengths` tokens of each row; one number applies to all rows."""
        new = torch.as_tensor(lengths, dtype=torch.int64).cpu().expand(len(self.lengths)).clone()
        if (new < 0).any() or (new > self.lengths).any():
            raise ValueError(f"cannot rewind rows of {self.lengths.tolist()} tokens to {new.tolist()}")
        self.lengths = new

    def select(self, rows: Sequence[int]) -> KVCache:
        """Copy the given rows, in that order; a row may be repeated or left out."""
        chosen, index = copy.copy(self), torch.tensor(rows, dtype=torch.int64)
        chosen._parents, chosen.lengths = None, self.lengths[index]
        used, index = int(self.lengths.max()), index.to(self._device)
        chosen.layers = [
            LayerKVCache(layer.keys[:, :, :used][index], layer.values[:, :, :used][index]) for layer in self.layers
        ]
        return chosen

    def begin(self, rows: int, n: int) -> Tensor:
        """Prepare the layers for a pass over n tokens per row, and add n to the lengths.

        Returns:
            int64[rows, n], the positions of the tokens.

        Raises:
            ValueError: If the number of rows differs from the cache's, or a position exceeds the model's context.
        """
        parents, self._parents = self._parents, None
        if rows != len(self.lengths) or (parents is not None and parents.shape != (rows, n)):
            raise ValueError(f"{rows} rows of {n} tokens do not fit a cache of {len(self.lengths)} rows, or its tree")
        start = self.lengths[:, None]
        slots = start + torch.arange(n)
        if parents is None:
            positions = slots
            below = torch.ones(1, n, n, dtype=torch.bool).tril_()
        else:
            below, depth = _ancestors(parents)
            positions = start + depth
        if n and int(positions.max()) >= self._context_tokens:
            raise ValueError(f"position {int(positions.max())}, but the model was built for {self._context_tokens}")
        end = int(slots.max()) + 1 if n else 0
        # Every token sees the cached tokens; tokens of this pass are seen by themselves and their descendants.
        index = torch.arange(end)[None, :] - start  # int64[rows, slots]: index in the pass
        ours = ((index >= 0) & (index < n))[:, None]
        places = index.clamp(0, max(n - 1, 0))[:, None].expand(rows, n, end)
        mask = (index < 0)[:, None] | ours & below.expand(rows, n, n).gather(2, places)
        fresh = parents is None and not self.lengths.any()
        for layer in self.layers:
            layer.begin(slots.to(self._device), end, None if fresh else mask[:, None].to(self._device))
        self.lengths = self.lengths + n
        return positions.to(self._device)


class LayerKVCache:
    """Keys and values of one layer, float[batch, n_heads, capacity, head_dim]."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self._slots: Tensor
        self._end = 0
        self._mask: Tensor | None = None

    def begin(self, slots: Tensor, end: int, mask: Tensor | None) -> None:
        """Set the slots of the next tokens, int64[rows, n] below `end`, and their mask (None: causal attention)."""
        self._slots, self._end, self._mask = slots, end, mask
        if (missing := end - self.keys.shape[2]) > 0:
            extra = max(missing, self.keys.shape[2] // 2)
            self.keys, self.values = (F.pad(x, (0, 0, 0, extra)) for x in (self.keys, self.values))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append keys and values, then attend; all are float[batch, n_heads, n, head_dim]."""
        index = self._slots[:, None, :, None].expand_as(k)
        self.keys.scatter_(2, index, k)
        self.values.scatter_(2, index, v)
        if self._mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        # Masked values are multiplied by zero and must be finite, so new slots are zeroed.
        return F.scaled_dot_product_attention(
            q, self.keys[:, :, : self._end], self.values[:, :, : self._end], attn_mask=self._mask
        )


def _ancestors(parents: Tensor) -> tuple[Tensor, Tensor]:
    """bool[rows, n, n]: whether j is i or an ancestor of i; int64[rows, n]: number of ancestors of i."""
    rows, n = parents.shape
    sees = torch.eye(n, dtype=torch.bool).repeat(rows, 1, 1)
    every = torch.arange(rows)
    for node in range(n):
        parent = parents[:, node]
        sees[:, node] |= sees[every, parent.clamp(min=0)] & (parent >= 0)[:, None]
    return sees, sees.sum(2) - 1

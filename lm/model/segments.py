"""Attention within the segments of a packed sequence."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lm.model.device import upload

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH_MULTIPLE = 512
_FLASH_DIM = 256
"""Largest dimension of a head with which flash attention computes."""


class PackedSegments(NamedTuple):
    """Segments of a packed sequence. Each attends causally within itself, as if it were computed alone.

    Attributes:
        positions: int64[seq_len], position of each token within its segment.
        bounds: int32[n_segments + 1], start of each segment, and `seq_len`.
        longest: Length of the longest segment, rounded up so that it rarely changes: a compiled kernel depends on it.
        flash: Whether the device has flash attention: a GPU since Ampere.
    """

    positions: Tensor
    bounds: Tensor
    longest: int
    flash: bool

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> PackedSegments:
        """Segments of the given lengths, in this order."""
        bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
        longest = -(-max(lengths) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
        place = torch.device(device)
        flash = place.type == "cuda" and torch.cuda.get_device_capability(place) >= (8, 0)
        return cls(upload(torch.from_numpy(positions), place), upload(torch.from_numpy(bounds), place), longest, flash)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of queries, keys and values, float[1, n_heads, seq_len, head_dim]."""
        head_dim = v.shape[-1]
        if self.flash and v.dtype in (torch.bfloat16, torch.float16) and head_dim % 8 == 0 and head_dim <= _FLASH_DIM:
            from torch.nn.attention.varlen import varlen_attn  # imports the compiler: seconds

            q, k, v = (x.squeeze(0).transpose(0, 1).to(v.dtype) for x in (q, k, v))
            bounds, longest = self.bounds, self.longest
            out = varlen_attn(q, k, v, bounds, bounds, longest, longest, window_size=(-1, 0))
            assert isinstance(out, Tensor)
            return out.transpose(0, 1)[None]
        if v.is_cuda or torch.compiler.is_compiling():  # reading the bounds would synchronize or break the graph
            return self._padded(q, k, v)
        parts = []
        for start, stop in pairwise(self.bounds.tolist()):
            segment = slice(start, stop)
            part = F.scaled_dot_product_attention(q[:, :, segment], k[:, :, segment], v[:, :, segment], is_causal=True)
            parts.append(part)
        return torch.cat(parts, dim=2)

    def _padded(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of segments as rows of equal length; positions after the end of one are not read."""
        device = self.positions.device
        columns = self.bounds[:-1, None] + torch.arange(self.longest, device=device)
        columns = columns.clamp(max=len(self.positions) - 1)
        q, k, v = (x[0][:, columns].transpose(0, 1) for x in (q, k, v))
        rows = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        index = torch.arange(len(self.positions), device=device)
        segment = torch.bucketize(index, self.bounds, right=True) - 1
        return rows[segment, :, self.positions].transpose(0, 1)[None]

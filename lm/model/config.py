"""Shape of a model, apart from the model: a configuration is read without importing Torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenizer.errors import UserError

# Width over depth where only the depth is given.
_ASPECT = 64


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a `Transformer`; the vocabulary and the context length come from the shards.

    `depth` alone gives a whole family: 4 layers have 3 million parameters beside the vocabulary's, 8 have 25,
    11 have 65, 16 have 201, 24 have 680 (12 depth width^2). Any other field may be given as well.

    Attributes:
        depth: Number of layers.
        width: Width of the residual stream (HF: `hidden_size`); 0 for 64 times the depth, in whole heads.
        head_width: Width of one attention head; `width / head_width` heads.
        mlp_ratio: Width of the SwiGLU layer over `width`, rounded up to a multiple of 32.
        rope_theta: Base of the rotary frequencies.
        norm_eps: Epsilon of every RMSNorm.
        tie_embeddings: Share one matrix between the input embedding and the output head.
        vocab_multiple: The vocabulary is padded to a multiple of this; padding ids get -inf.
        qk_norm: RMSNorm on queries and keys, per head. The layout is then HF's Qwen3.
    """

    depth: int = 4
    width: int = 0
    head_width: int = 64
    mlp_ratio: float = 8 / 3
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    vocab_multiple: int = 64
    qk_norm: bool = False

    def __post_init__(self) -> None:
        if self.width == 0 and self.depth > 0 and self.head_width > 0:
            width = max(1, round(_ASPECT * self.depth / self.head_width)) * self.head_width
            object.__setattr__(self, "width", width)  # so that it is known wherever the shape is recorded
        for name in ("depth", "width", "head_width", "vocab_multiple"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: use a positive whole number")
        if self.width % self.head_width:
            raise UserError(
                f"width={self.width} is not a multiple of head_width={self.head_width}; "
                f"use width={max(1, self.width // self.head_width) * self.head_width}"
            )
        if self.head_width % 2:
            raise UserError(f"head_width={self.head_width} is odd: rotary embeddings need an even width")
        if self.mlp_ratio <= 0:
            raise UserError(f"mlp_ratio={self.mlp_ratio}: use a positive number, for instance 2.67")

    @property
    def mlp_width(self) -> int:
        """Width of the SwiGLU layer (HF: `intermediate_size`)."""
        return math.ceil(self.width * self.mlp_ratio / 32) * 32

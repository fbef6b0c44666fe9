"""Shape of a model. Separate from the model, so that reading a configuration does not import Torch."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tokenizer.errors import UserError
from tokenizer.fields import check_fields, declare

MODEL = "model.safetensors"
"""Name of a model's file."""
# hidden_size / n_layers where only n_layers is given.
_ASPECT_RATIO = 64


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a `Transformer`; the vocabulary and the context length come from the shards.

    `n_layers` alone gives a family of models. Without the vocabulary's, 4 layers have 3 million parameters, 8 have 25,
    11 have 65, 16 have 201 and 24 have 680 (12 n_layers hidden_size^2). Any other field can be set as well.

    Attributes:
        n_layers: Number of layers.
        hidden_size: Width of the residual stream; 0 for about 64 n_layers, a multiple of `head_dim`.
        head_dim: Width of one attention head.
        mlp_ratio: `intermediate_size` over `hidden_size`, before rounding up to a multiple of 32.
        rope_theta: Base of the rotary frequencies.
        norm_eps: Epsilon of every RMSNorm.
        tie_embeddings: Share one matrix between the input embedding and the output head.
        vocab_multiple: The vocabulary is padded to a multiple of this; padding ids have probability 0.
        qk_norm: RMSNorm on queries and keys, per head. The layout is then HF's Qwen3.
    """

    n_layers: int = declare(4, least=1)
    hidden_size: int = declare(0, least=0)
    head_dim: int = declare(64, least=1)
    mlp_ratio: float = declare(8 / 3, above=0, below=math.inf, remedy=", for instance 2.67")
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    vocab_multiple: int = declare(64, least=1)
    qk_norm: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.hidden_size == 0:
            n_heads = max(1, round(_ASPECT_RATIO * self.n_layers / self.head_dim))
            object.__setattr__(self, "hidden_size", n_heads * self.head_dim)
        if self.hidden_size % self.head_dim:
            low = max(1, self.hidden_size // self.head_dim) * self.head_dim
            raise UserError(f"hidden_size={self.hidden_size} is not a multiple of head_dim={self.head_dim}; use {low}")
        if self.head_dim % 2:
            raise UserError(f"head_dim={self.head_dim} is odd: rotary embeddings need an even number")

    def with_layers(self, n_layers: int) -> ModelConfig:
        """This shape with another number of layers, and the same ratio of width to layers."""
        n_heads = max(1, round(self.n_heads * n_layers / self.n_layers))
        return dataclasses.replace(self, n_layers=n_layers, hidden_size=n_heads * self.head_dim)

    @property
    def n_heads(self) -> int:
        """Number of attention heads."""
        return self.hidden_size // self.head_dim

    @property
    def intermediate_size(self) -> int:
        """Width of the SwiGLU layer."""
        return math.ceil(self.hidden_size * self.mlp_ratio / 32) * 32

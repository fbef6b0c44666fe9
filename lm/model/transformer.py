"""A decoder-only transformer with the layout and the parameter names of Hugging Face's Llama."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model.config import ModelConfig as ModelConfig
from lm.model.initialization import draw_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lm.model.kv_cache import KVCache
    from lm.model.segments import PackedSegments

FLOPS_FORMULA = "per token: 6 * parameters_matmul + 12 * n_layers * hidden_size * context_tokens"

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of queries, keys and values, all float[batch, n_heads, seq_len, head_dim]."""


class Transformer(nn.Module):
    """Decoder-only transformer: token ids in, logits out. Positions from `context_tokens` on raise an error.

    Args:
        config: Shape of the model.
        vocab_size: Number of ids without padding.
        context_tokens: Maximum number of positions.
        tokenizer_sha256: Hash of the model's tokenizer; empty if unknown.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, context_tokens: int, tokenizer_sha256: str = "") -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.context_tokens = context_tokens
        self.tokenizer_sha256 = tokenizer_sha256
        padded = math.ceil(vocab_size / config.vocab_multiple) * config.vocab_multiple
        self.model = Decoder(config, padded, context_tokens)
        self.lm_head = nn.Linear(config.hidden_size, padded, bias=False)
        if config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        # As a bias of the head's product, -inf costs nothing; assigning it afterwards would copy the logits.
        padding = torch.zeros(padded).masked_fill_(torch.arange(padded) >= vocab_size, -math.inf)
        self.register_buffer("padding", padding if padded > vocab_size else None, persistent=False)
        self.padding: Tensor | None

    def forward(self, ids: Tensor, keep: Tensor | None = None, *, cache: KVCache | None = None) -> Tensor:
        """Logits of the next token.

        Args:
            ids: int64[batch, seq_len].
            keep: bool[batch, seq_len]: positions for which the head computes logits, which is most of the work when
                the vocabulary is large; None for all.
            cache: KV cache for decoding: the ids continue the cached ones and are added to them.

        Returns:
            float[batch, seq_len, vocabulary], or float[marked, vocabulary] with `keep`.
        """
        hidden = self.hidden(ids, cache=cache)
        if keep is not None:
            hidden = hidden[keep]
        return self.head(hidden)[..., : self.vocab_size]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, float[..., hidden_size], and of padding ids, which are at -inf."""
        return F.linear(hidden, self.lm_head.weight, self.padding)

    def hidden(self, ids: Tensor, *, cache: KVCache | None = None, segments: PackedSegments | None = None) -> Tensor:
        """Normalized hidden states, the input of the head: float[batch, seq_len, hidden_size].

        Args:
            ids: int64[batch, seq_len].
            cache: As for `forward`; cannot be combined with `segments`.
            segments: Segments of a batch of one packed sequence; each has at most `context_tokens` positions. None: a
                row is one segment.
        """
        # A cache checks positions itself; a tree has fewer positions than tokens.
        if cache is None and segments is None and ids.shape[1] > self.context_tokens:
            raise ValueError(f"{ids.shape[1]} positions, but the model was built for {self.context_tokens}")
        hidden: Tensor = self.model(ids, cache, segments)
        return hidden

    @torch.no_grad()
    def initialize(self, seed: int, token_hashes: Sequence[int] | NDArray[np.uint64]) -> None:
        """Draw the weights, on the CPU.

        With the same seed, two vocabularies get the same layers, and the same rows for the tokens that they share.
        Projections into the residual stream start at zero, so the first logits are almost uniform.
        (Recipe: karpathy/nanochat, nanochat/gpt.py.)

        Args:
            seed: Seed of the random numbers.
            token_hashes: uint64[vocab_size], `lm.data.shards.token_hashes` of the tokenizer.
        """
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in [*self.model.layers.named_parameters(), *self.model.norm.named_parameters()]:
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            elif "o_proj" in name or "down_proj" in name:
                parameter.zero_()
            else:
                bound = math.sqrt(3 / parameter.shape[1])
                parameter.copy_(torch.rand(parameter.shape, generator=generator) * 2 * bound - bound)
        draw_rows(self.lm_head.weight, token_hashes, stream=2 * seed, std=0.02)
        if not self.config.tie_embeddings:
            draw_rows(self.model.embed_tokens.weight, token_hashes, stream=2 * seed + 1, std=1.0)

    def n_parameters(self) -> dict[str, int]:
        """Numbers of parameters: `total`; `non_embedding`, without both vocabulary tables; `matmul`,
        every weight that multiplies activations, the head included.
        """
        total = sum(parameter.numel() for parameter in self.parameters())
        layers = sum(parameter.numel() for parameter in self.model.layers.parameters())
        matrices = sum(p.numel() for p in self.model.layers.parameters() if p.ndim == 2)
        return {
            "total": total,
            "non_embedding": layers + self.model.norm.weight.numel(),
            "matmul": matrices + self.lm_head.weight.numel(),
        }

    def flops_per_token(self, context_tokens: float) -> int:
        """Training FLOPs of one token, `FLOPS_FORMULA`; `context_tokens` is the mean number of tokens of a row.

        N_matmul includes the head but not the embedding, which is a look-up. The second term is attention's two
        products, forward and backward, without the factor 1/2 for causality (PaLM, appendix B).
        """
        attention = 12 * self.config.n_layers * self.config.hidden_size * context_tokens
        return 6 * self.n_parameters()["matmul"] + round(attention)


class Decoder(nn.Module):
    """Embedding, blocks and final norm (HF: `model.`).

    Attributes:
        measuring: Whether forward passes set `squares`.
        squares: float64[batch, seq_len], mean square of the residual stream before the final norm in that pass.
    """

    def __init__(self, config: ModelConfig, padded_vocab: int, context_tokens: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(padded_vocab, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        frequencies = config.rope_theta ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
        angles = torch.outer(torch.arange(context_tokens).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.cos: Tensor
        self.sin: Tensor
        self.measuring = False
        self.squares: Tensor

    def forward(self, ids: Tensor, cache: KVCache | None = None, segments: PackedSegments | None = None) -> Tensor:
        """Normalized hidden states, float[batch, seq_len, hidden_size], of int64[batch, seq_len]."""
        x: Tensor = self.embed_tokens(ids)
        attends: list[Attend] = [causal if segments is None else segments.attend] * len(self.layers)
        positions: Tensor | slice = slice(ids.shape[1])
        if segments is not None:
            positions = segments.positions
        if cache is not None:
            positions = cache.begin(*ids.shape)[:, None]
            attends = [layer.attend for layer in cache.layers]
        cos, sin = self.cos[positions], self.sin[positions]
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, cos, sin, attend)
        if self.measuring:
            self.squares = torch.linalg.vector_norm(x.detach(), dim=-1, dtype=torch.float64).square() / x.shape[-1]
        normalized: Tensor = self.norm(x)
        return normalized


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Return the updated residual stream, float[batch, seq_len, hidden_size]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        norm = partial(nn.RMSNorm, config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity
        self.q_norm, self.k_norm = norm(), norm()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Mix the positions of float[batch, seq_len, hidden_size] with `attend`."""
        heads = (*x.shape[:2], -1, self.head_dim)
        q = rotate(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        out: Tensor = self.o_proj(attend(q, k, v).transpose(1, 2).reshape(x.shape))
        return out


class SwiGLU(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform every position of float[..., hidden_size]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention within each row."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding with HF's pairing: components i and i + head_dim / 2 rotate together.

    Args:
        x: float[batch, n_heads, seq_len, head_dim].
        cos: float[seq_len, head_dim], or float[batch, 1, seq_len, head_dim]: cosines of the angles.
        sin: Sines of the angles, in the same shape.
    """
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-second, first), dim=-1) * sin.to(x.dtype)

"""Cost of serving and training a model of any shape, for the tokenizer that it would be deployed with.

The small model of a comparison and the model that will be deployed differ in shape: the head is a third of a small
model's FLOPs and a few percent of a large one's. Everything here follows from the shape of the deployed model, the
size of the vocabulary and the bytes per token.

FLOPs are two per weight and token (Kaplan et al., arXiv 2001.08361, section 2.1) plus those of attention, 4 n_heads
head_dim for every pair of a query and a key that it attends to (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B,
without the backward pass). Traffic and the roofline are those of Pope et al., Efficiently Scaling Transformer
Inference, arXiv 2211.05102, section 2. Norms, rotations, softmax, activations and communication are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tokenizer.errors import UserError, check_whole
from tokenizer.fields import check_fields, declare

if TYPE_CHECKING:
    from lm.model.transformer import Transformer

NUMBER_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}
"""Bytes per number of each format, without scales of blocks."""
MLP_MATRICES = {"gated": 3, "plain": 2}
"""Matrices of an MLP: up and down, and the gate of SwiGLU and its relatives."""
PUBLISHED_RATE = 0.040
"""`Deployment.rate` between 6e19 and 2.6e20 training FLOPs in the published points of `configs/points/`."""
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Deployment:
    """The model that will be deployed, and how it is served. The vocabulary comes from the tokenizer.

    Attributes:
        n_layers: Number of layers.
        hidden_size: Width of the residual stream.
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads; fewer than `n_heads` with grouped-query attention.
        head_dim: Width of one attention head.
        mlp: Kind of MLP: `gated` (three matrices, as SwiGLU) or `plain` (two).
        mlp_size: Intermediate width of the MLP, or of one expert.
        n_experts: Routed experts of a layer; 0 for a dense model.
        active_experts: Routed experts that one token uses.
        shared_experts: Experts that every token uses; the MLP of a dense model is one.
        window_layers: Layers with sliding-window attention. The other layers attend to the whole context.
        window_bytes: Length of the sliding window in bytes, so that it is the same text for all tokenizers.
        context_bytes: Length of the context in bytes.
        train_context_bytes: Length of the context in training, in bytes.
        weight_format: Number format of the weights, a key of `NUMBER_BYTES`.
        kv_format: Number format of keys and values, a key of `NUMBER_BYTES`.
        batch: Sequences that are read, or decoded, together.
        device_flops: Peak FLOPs per second of the device in the format it computes in.
        device_bandwidth: Bytes per second between the device and its memory.
        rho: FLOPs of serving over the model's life, divided by those of its training; see
            `lm.scaling.equivalent`.
        rate: Decrease of ln(bits per byte) per e-fold of training FLOPs, by which losses at other amounts of training
            are estimated; None for what the models of the comparison show.
    """

    n_layers: int = declare(32, least=1)
    hidden_size: int = declare(4096, least=1)
    n_heads: int = declare(32, least=1)
    n_kv_heads: int = declare(8, least=1)
    head_dim: int = declare(128, least=1)
    mlp: str = declare("gated", choices=tuple(MLP_MATRICES))
    mlp_size: int = declare(14_336, least=1)
    n_experts: int = declare(0, least=0)
    active_experts: int = declare(0, least=0)
    shared_experts: int = declare(1, least=0)
    window_layers: int = declare(0, least=0)
    window_bytes: int = declare(0, least=0)
    context_bytes: int = declare(32_768, least=1)
    train_context_bytes: int = declare(32_768, least=1)
    weight_format: str = declare("bf16", choices=tuple(NUMBER_BYTES))
    kv_format: str = declare("bf16", choices=tuple(NUMBER_BYTES))
    batch: int = declare(64, least=1)
    device_flops: float = declare(989e12, above=0, below=math.inf, remedy=", for instance 1e15")
    device_bandwidth: float = declare(3.35e12, above=0, below=math.inf, remedy=", for instance 1e12")
    rho: float = declare(1.0, least=0, below=math.inf, remedy="; 0 compares at equal training FLOPs")
    rate: float | None = declare(None, least=0, below=1, remedy=f"; published models have {PUBLISHED_RATE}")

    def __post_init__(self) -> None:
        check_fields(self, "deployment.")
        if self.n_heads % self.n_kv_heads:
            raise UserError(
                f"deployment.n_heads={self.n_heads} is not a multiple of deployment.n_kv_heads={self.n_kv_heads}"
            )
        if self.active_experts > self.n_experts or not self.active_experts + self.shared_experts:
            raise UserError(
                f"a token uses {self.active_experts} of deployment.n_experts={self.n_experts} experts and "
                f"deployment.shared_experts={self.shared_experts}; a dense model has 0, 0 and 1"
            )
        if self.window_layers > self.n_layers or bool(self.window_layers) != bool(self.window_bytes):
            raise UserError(
                f"deployment.window_layers={self.window_layers} of {self.n_layers} layers with "
                f"deployment.window_bytes={self.window_bytes}: set both for sliding windows, or neither"
            )

    def weights(self, experts: float) -> float:
        """Weights of all layers that multiply activations, with this many experts per layer."""
        attention = 2 * self.hidden_size * self.head_dim * (self.n_heads + self.n_kv_heads)
        router = self.hidden_size * self.n_experts
        expert = MLP_MATRICES[self.mlp] * self.hidden_size * self.mlp_size
        return self.n_layers * (attention + router + experts * expert)

    def positions(self, tokens: float, window: float) -> float:
        """Keys that the last of `tokens` positions attends to, itself included, summed over the layers."""
        return (self.n_layers - self.window_layers) * tokens + self.window_layers * min(tokens, window)

    def pairs(self, tokens: float, window: float) -> float:
        """Pairs of a query and a key in a context of `tokens` positions, summed over the layers."""
        near = min(tokens, window)
        windowed = near * (near + 1) / 2 + (tokens - near) * window
        return (self.n_layers - self.window_layers) * tokens * (tokens + 1) / 2 + self.window_layers * windowed


class PhaseCost(NamedTuple):
    """Cost of reading (prefill) or generating (decode) one byte of text.

    Attributes:
        flops_per_byte: Forward FLOPs.
        seconds_per_byte: The longer of the times for FLOPs and for traffic at the device's peak: a lower bound.
    """

    flops_per_byte: float
    seconds_per_byte: float


@dataclass(frozen=True)
class ServingCost:
    """Cost of a deployment with one tokenizer.

    Attributes:
        cache_bytes_per_byte: Size of the KV cache after the context, per byte of the context.
        prefill: Cost of reading a whole context at once. Only its last token needs the head.
        decode: Cost of one more token at the end of the context, as its last position.
    """

    cache_bytes_per_byte: float
    prefill: PhaseCost
    decode: PhaseCost

    @property
    def flops_per_byte(self) -> float:
        """FLOPs of reading a byte and generating a byte."""
        return self.prefill.flops_per_byte + self.decode.flops_per_byte


def distinct_experts(n_experts: int, active: int, tokens: float) -> float:
    """Expected number of distinct experts that a batch of tokens uses: E (1 - (1 - k / E)^tokens).

    Each token picks k of E experts uniformly and independently of the others. Real routers are less even, so real
    batches use fewer.

    >>> distinct_experts(8, 2, 1), distinct_experts(8, 2, 2)
    (2.0, 3.5)
    """
    return n_experts * (1 - (1 - active / n_experts) ** tokens) if n_experts else 0.0


def serving_cost(deployment: Deployment, *, vocab_size: int, tokens_per_byte: float) -> ServingCost:
    """Cost of serving a model of this shape with a tokenizer.

    With N = active weights of the layers, H = weights of the head, T = context_bytes tokens_per_byte, B = batch:

    - prefill FLOPs per byte: (2 N T + 2 H + 4 n_heads head_dim pairs(T)) / context_bytes
    - decode FLOPs per byte: (2 N + 2 H + 4 n_heads head_dim positions(T)) tokens_per_byte
    - weight traffic per byte: the weights that the batch uses, once, over the bytes of the batch's text
    - KV traffic per byte: prefill writes the cache and reads it once; decode reads T positions, its own included

    Args:
        deployment: Shape and setting of the deployed model.
        vocab_size: Rows of the head, with its padding if it has one.
        tokens_per_byte: Tokens per byte of the text that is served.

    Raises:
        UserError: If a number is not positive.
    """
    check_whole("vocab_size", vocab_size, 1)
    if not 0 < tokens_per_byte < math.inf:
        raise UserError(f"tokens_per_byte={tokens_per_byte} must be a positive number; measure it on a text")
    d = deployment
    tokens, window = d.context_bytes * tokens_per_byte, d.window_bytes * tokens_per_byte
    head = float(d.hidden_size * vocab_size)
    active = d.weights(d.shared_experts + d.active_experts)
    per_pair = 4 * d.n_heads * d.head_dim
    per_position = 2 * d.n_kv_heads * d.head_dim * NUMBER_BYTES[d.kv_format]
    positions = d.positions(tokens, window)
    cache = positions * per_position / d.context_bytes

    def phase(flops: float, text_bytes: float, batch_tokens: float, kv_bytes_per_byte: float) -> PhaseCost:
        """FLOPs of one sequence, which reads or generates this many bytes."""
        used = d.weights(d.shared_experts + distinct_experts(d.n_experts, d.active_experts, batch_tokens)) + head
        weight_bytes_per_byte = used * NUMBER_BYTES[d.weight_format] / (d.batch * text_bytes)
        compute = flops / text_bytes / d.device_flops
        memory = (weight_bytes_per_byte + kv_bytes_per_byte) / d.device_bandwidth
        return PhaseCost(flops / text_bytes, max(compute, memory))

    prefill_flops = 2 * active * tokens + 2 * head + per_pair * d.pairs(tokens, window)
    decode_flops = 2 * (active + head) + per_pair * positions
    return ServingCost(
        cache_bytes_per_byte=cache,
        prefill=phase(prefill_flops, d.context_bytes, d.batch * tokens, 2 * cache),
        decode=phase(decode_flops, 1 / tokens_per_byte, d.batch, positions * per_position * tokens_per_byte),
    )


def training_flops(deployment: Deployment, *, vocab_size: int, tokens: float, n_bytes: float) -> float:
    """FLOPs of training the deployed model on a text: three times a forward pass over all of its tokens.

    With N = active weights of the layers and the head, and T = train_context_bytes tokens / n_bytes, a token costs
    6 N + 12 n_heads head_dim pairs(T) / T.

    Args:
        deployment: Shape of the deployed model, and its context in training.
        vocab_size: Rows of the head.
        tokens: Tokens that training reads.
        n_bytes: Their bytes of text.
    """
    d = deployment
    context, window = (size * tokens / n_bytes for size in (d.train_context_bytes, d.window_bytes))
    weights = d.weights(d.shared_experts + d.active_experts) + d.hidden_size * vocab_size
    return tokens * (6 * weights + 12 * d.n_heads * d.head_dim * d.pairs(context, window) / context)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of inference per byte of text.

    Attributes:
        prefill_flops_per_byte: FLOPs of reading the context; see `serving_cost`.
        decode_flops_per_byte: FLOPs of decoding after the context; see `serving_cost`.
        kv_bytes_per_byte: Bytes of keys and values, in bf16, per byte of context.
    """

    prefill_flops_per_byte: float
    decode_flops_per_byte: float
    kv_bytes_per_byte: float


def shape_of(model: Transformer, context_bytes: int) -> Deployment:
    """The shape of one of our models."""
    config = model.config
    return Deployment(
        n_layers=config.n_layers,
        hidden_size=config.hidden_size,
        n_heads=config.n_heads,
        n_kv_heads=config.n_heads,
        head_dim=config.head_dim,
        mlp_size=config.intermediate_size,
        context_bytes=context_bytes,
    )


def inference_cost(shape: Deployment, *, vocab_size: int, bytes_per_token: float) -> Cost:
    """Inference cost of a model on text with this many bytes per token.

    Args:
        shape: Its shape, and the length of the context; use the same length for all models of a comparison.
        vocab_size: Rows of the head, with its padding.
        bytes_per_token: Bytes per token of held-out text.
    """
    cost = serving_cost(shape, vocab_size=vocab_size, tokens_per_byte=1 / bytes_per_token)
    return Cost(
        prefill_flops_per_byte=cost.prefill.flops_per_byte,
        decode_flops_per_byte=cost.decode.flops_per_byte,
        kv_bytes_per_byte=cost.cache_bytes_per_byte,
    )

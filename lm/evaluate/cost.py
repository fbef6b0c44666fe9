"""Inference cost of a model per byte of text: FLOPs and memory of the KV cache.

A tokenizer changes the number of tokens per byte and the size of the head; both are included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lm.evaluate.deployment import Deployment, serving_cost

if TYPE_CHECKING:
    from lm.model.transformer import Transformer

FORMULAS = {
    "prefill_flops_per_byte": "(2 N_layers T + 2 N_head + 2 n_layers hidden_size T (T + 1)) / context_bytes: "
    "a context of T tokens read at once, of which only the last needs the head",
    "decode_flops_per_byte": "(2 (N_layers + N_head) + 4 n_layers hidden_size T) / bytes_per_token: "
    "one more token after T",
    "kv_bytes_per_byte": "2 n_layers hidden_size bytes_per_number / bytes_per_token",
}
"""N counts weights that multiply activations; T = context_bytes / bytes_per_token; the last terms are attention's."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of inference per byte of text.

    Attributes:
        context_bytes: Length of the context in bytes.
        context_tokens: Length of the context in tokens.
        bytes_per_token: Bytes per token of the held-out text.
        prefill_flops_per_byte: FLOPs of reading the context, see `FORMULAS`.
        decode_flops_per_byte: FLOPs of decoding after the context, see `FORMULAS`.
        kv_bytes_per_byte: Bytes of keys and values per byte of context.
        kv_dtype: Type of keys and values.
        parameters_total: Parameters of the model.
    """

    context_bytes: int
    context_tokens: float
    bytes_per_token: float
    prefill_flops_per_byte: float
    decode_flops_per_byte: float
    kv_bytes_per_byte: float
    kv_dtype: str
    parameters_total: int


def inference_cost(model: Transformer, *, bytes_per_token: float, context_bytes: int, kv_dtype: str = "bf16") -> Cost:
    """Inference cost of a model on text with this many bytes per token.

    Args:
        model: The model; only its shape matters. Padding rows of the head are included.
        bytes_per_token: Bytes per token of held-out text.
        context_bytes: Length of the context; use the same for all models of a comparison.
        kv_dtype: A key of `deployment.NUMBER_BYTES`.

    Raises:
        UserError: If `kv_dtype` is unknown.
    """
    config = model.config
    served = Deployment(
        n_layers=config.n_layers,
        hidden_size=config.hidden_size,
        n_heads=config.n_heads,
        n_kv_heads=config.n_heads,
        head_dim=config.head_dim,
        mlp_size=config.intermediate_size,
        context_bytes=context_bytes,
        kv_format=kv_dtype,
    )
    cost = serving_cost(served, vocab_size=model.lm_head.weight.shape[0], tokens_per_byte=1 / bytes_per_token)
    return Cost(
        context_bytes=context_bytes,
        context_tokens=cost.context_tokens,
        bytes_per_token=bytes_per_token,
        prefill_flops_per_byte=cost.prefill.flops_per_byte,
        decode_flops_per_byte=cost.decode.flops_per_byte,
        kv_bytes_per_byte=cost.cache_bytes_per_byte,
        kv_dtype=kv_dtype,
        parameters_total=model.n_parameters()["total"],
    )

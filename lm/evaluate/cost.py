"""Inference cost of a model per byte of text: FLOPs, memory of the KV cache, seconds.

A tokenizer changes the number of tokens per byte and the size of the head; both are included. Only `decode_seconds`
depends on the machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.model.transformer import Transformer

KV_BYTES = {"bf16": 2, "fp32": 4}
"""Bytes per number in the KV cache."""
FORMULAS = {
    "prefill_flops_per_byte": "(2 N_layers T + 2 N_head + 2 n_layers hidden_size T (T + 1)) / context_bytes: "
    "a context of T tokens read at once, of which only the last needs the head",
    "decode_flops_per_byte": "(2 (N_layers + N_head) + 4 n_layers hidden_size T) / bytes_per_token: "
    "one more token after T",
    "kv_bytes_per_byte": "2 n_layers hidden_size bytes_per_number / bytes_per_token",
}
"""N counts weights that multiply activations; T = context_bytes / bytes_per_token; the last terms are attention's."""


@dataclass(frozen=True)
class Cost:
    """Cost of inference per byte of text.

    Attributes:
        context_bytes: Length of the context in bytes.
        context_tokens: Length of the context in tokens.
        bytes_per_token: Bytes per token of the held-out text.
        prefill_flops_per_byte: FLOPs of reading the context, see `FORMULAS`.
        decode_flops_per_byte: FLOPs of decoding after the context, see `FORMULAS`.
        kv_bytes_per_byte: Bytes of keys and values per byte of context.
        kv_dtype: Type of keys and values: "bf16" or "fp32".
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
        kv_dtype: A key of `KV_BYTES`.

    Raises:
        UserError: If `kv_dtype` is unknown.
    """
    if kv_dtype not in KV_BYTES:
        raise UserError(f"kv_dtype={kv_dtype!r} is not one of {', '.join(KV_BYTES)}")
    parameters, head = model.n_parameters(), model.lm_head.weight.numel()
    layers = parameters["matmul"] - head
    attention = model.config.n_layers * model.config.hidden_size
    tokens = context_bytes / bytes_per_token
    return Cost(
        context_bytes=context_bytes,
        context_tokens=tokens,
        bytes_per_token=bytes_per_token,
        prefill_flops_per_byte=(2 * layers * tokens + 2 * head + 2 * attention * tokens * (tokens + 1)) / context_bytes,
        decode_flops_per_byte=(2 * (layers + head) + 4 * attention * tokens) / bytes_per_token,
        kv_bytes_per_byte=2 * attention * KV_BYTES[kv_dtype] / bytes_per_token,
        kv_dtype=kv_dtype,
        parameters_total=parameters["total"],
    )


@torch.inference_mode()
def decode_seconds(
    model: Transformer, ids: NDArray[Any], *, tokens: int = 32, rounds: int = 5, patience: float = 1.0
) -> float:
    """Seconds to decode one token after a context with a KV cache, for a single sequence.

    The tokens are given, not sampled, so that every model does the same work. Each token counts with its fastest
    repetition, because models are timed minutes apart and the load of the machine varies.

    Args:
        model: The model, timed on its device and in its dtype.
        ids: int[n], at most the model's `context_tokens`; all but the last `tokens` are the context.
        tokens: Number of tokens to decode.
        rounds: Minimum number of repetitions, after one untimed repetition.
        patience: Seconds to repeat for, up to ten times `rounds`, since timings of small models are noisy.

    Raises:
        UserError: If there are too few ids, or more than the model has positions.
    """
    context = len(ids) - tokens
    if context < 1 or len(ids) > model.context_tokens:
        raise UserError(
            f"{len(ids)} ids are not a context and {tokens} tokens within {model.context_tokens} positions; "
            "decode fewer tokens, or use another context"
        )
    device = model.lm_head.weight.device
    text = torch.as_tensor(ids, dtype=torch.int64).to(device)[None]
    cache = KVCache(model, capacity=len(ids))
    training = model.training
    model.eval()
    model(text[:, :context], cache=cache)
    fastest = np.full(tokens, np.inf)
    repetition, end = 0, _now(device) + patience
    while repetition <= rounds or (repetition <= 10 * rounds and _now(device) < end):
        cache.rewind(context)
        for i in range(tokens):
            began = _now(device)
            model(text[:, context + i : context + i + 1], cache=cache)
            if repetition:
                fastest[i] = min(fastest[i], _now(device) - began)
        repetition += 1
    model.train(training)
    return float(fastest.mean())


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

"""What a model costs when it is used, per byte of text: FLOPs, memory of the key-value cache, seconds.

A tokenizer changes how many tokens a byte takes and how large the head is; both are in here, so that "cheaper" is a
number. Only the counts of one time (`decode_seconds`) depend on the machine.
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
"""Bytes of one number of the cache."""
FORMULAS = {
    "prefill_flops_per_byte": "(2 N_layers T + 2 N_head + 2 n_layers hidden_size T (T + 1)) / context_bytes: "
    "a context of T tokens read at once, of which only the last needs the head",
    "decode_flops_per_byte": "(2 (N_layers + N_head) + 4 n_layers hidden_size T) / bytes_per_token: "
    "one more token after T",
    "kv_bytes_per_byte": "2 n_layers hidden_size bytes_per_number / bytes_per_token",
}
"""N are weights that multiply activations, T = context_bytes / bytes_per_token; last come attention's products."""


@dataclass(frozen=True)
class Cost:
    """Cost of inference per byte of text.

    Attributes:
        context_bytes: Bytes of the context that is read, or that is there when a token is decoded.
        context_tokens: The same in tokens of this tokenizer.
        bytes_per_token: Of the held-out text.
        prefill_flops_per_byte: FLOPs of reading the context, see `FORMULAS`.
        decode_flops_per_byte: FLOPs of decoding behind the context, see `FORMULAS`.
        kv_bytes_per_byte: Bytes of keys and values for each byte of context.
        kv_dtype: What these are held in: "bf16" or "fp32".
        parameters_total: Of the model, for its memory.
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
    """Cost of a model on text of which a token spells so many bytes.

    Args:
        model: Its shape counts, not its weights. The head counts with the rows that pad the vocabulary.
        bytes_per_token: Measured on held-out text.
        context_bytes: The same for all that are compared.
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
    """Seconds of decoding one token behind a context, with a key-value cache, one sequence at a time.

    The tokens are given, not sampled, so that models of all qualities do the same work: a forward pass each. Every
    token counts with the fastest of its repetitions: two models are timed minutes apart, and a busy neighbour would
    otherwise decide between them.

    Args:
        model: As it is, on its device, in its dtype.
        ids: int[n], text; all but the last `tokens` are the context. At most the model's `context_tokens`.
        tokens: How many to decode.
        rounds: Repetitions at least; one before them does not count.
        patience: Seconds to go on for, up to ten times as many: a small model's times are of the size of a pause.

    Raises:
        UserError: If there are too few ids, or more than the model has positions.
    """
    context = len(ids) - tokens
    if context < 1 or len(ids) > model.context_tokens:
        raise UserError(
            f"{len(ids)} ids cannot be {tokens} tokens behind a context within {model.context_tokens} positions; "
            "decode fewer tokens, or take another context"
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

"""Measured decoding time of a model with a KV cache."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.model.transformer import Transformer


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

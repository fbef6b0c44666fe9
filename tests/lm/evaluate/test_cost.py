"""Cost per byte against a count of every product, one by one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lm.evaluate.cost import inference_cost
from lm.model.kv_cache import KVCache
from lm.model.transformer import ModelConfig, Transformer
from tokenizer.errors import UserError

CONFIG = ModelConfig(n_layers=2, hidden_size=32, head_dim=16, vocab_multiple=64)


def model(context_tokens: int = 64) -> Transformer:
    made = Transformer(CONFIG, 300, context_tokens)
    made.initialize(0, range(made.vocab_size))
    return made


def test_counts_by_hand():
    made = model()
    layers, head = 2 * (4 * 32 * 32 + 3 * 32 * CONFIG.intermediate_size), 320 * 32
    # 60 bytes of context, 3 bytes per token: 20 tokens.
    cost = inference_cost(made, bytes_per_token=3.0, context_bytes=60, kv_dtype="fp32")
    assert cost.context_tokens == 20
    assert cost.prefill_flops_per_byte == pytest.approx((2 * layers * 20 + 2 * head + 2 * 2 * 32 * 20 * 21) / 60)
    assert cost.decode_flops_per_byte == pytest.approx((2 * (layers + head) + 4 * 2 * 32 * 20) / 3)
    assert cost.parameters_total == sum(p.numel() for p in made.parameters())
    with pytest.raises(UserError, match="kv_format=fp7 is not one of fp32, bf16"):
        inference_cost(made, bytes_per_token=3.0, context_bytes=60, kv_dtype="fp7")


def test_decoding_flops_equal_the_count_of_torch():
    """One token per byte, so that per byte is per token; the cache also holds the token itself."""
    made = model().eval()
    cache = KVCache(made)
    # The counter sees only the plain products of attention.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        made(torch.arange(20)[None], cache=cache)
        with FlopCounterMode(display=False) as counter:
            made(torch.tensor([[20]]), cache=cache)
    cost = inference_cost(made, bytes_per_token=1.0, context_bytes=21)
    assert cost.decode_flops_per_byte == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_the_cache_takes_the_stated_bytes():
    made = model()
    cache = KVCache(made, capacity=20)
    cost = inference_cost(made, bytes_per_token=3.0, context_bytes=60, kv_dtype="fp32")
    assert cost.kv_bytes_per_byte * 60 == pytest.approx(sum(2 * layer.keys.nbytes for layer in cache.layers))
    halved = inference_cost(made, bytes_per_token=3.0, context_bytes=60)
    assert halved.kv_bytes_per_byte == cost.kv_bytes_per_byte / 2

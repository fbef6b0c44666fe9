"""Cost at a deployment's shape against Torch's count of the same products, and factors against brute force."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import configs
from lm.evaluate.deployment import (
    MLP_MATRICES,
    Deployment,
    distinct_experts,
    inference_cost,
    serving_cost,
    shape_of,
    training_flops,
)
from lm.model.kv_cache import KVCache
from lm.model.transformer import ModelConfig, Transformer
from tokenizer.errors import UserError

VOCAB = 128_256
FILES = (Path(configs.__file__).parent / "deployment").glob("*.yaml")
PRESETS = {path.stem: Deployment(**OmegaConf.load(path)) for path in FILES}


def counted(d, queries, keys):
    """FLOPs that Torch counts for the layers: of matrix products with weights, and of attention as full rectangles."""

    def weight(rows, columns):
        return torch.empty(rows, columns, device="meta")

    x = torch.empty(queries, d.hidden_size, device="meta")
    heads, kv = d.n_heads * d.head_dim, d.n_kv_heads * d.head_dim
    with FlopCounterMode(display=False) as products:
        for _ in range(d.n_layers):
            for width in (heads, kv, kv):
                x @ weight(d.hidden_size, width)
            torch.empty(queries, heads, device="meta") @ weight(heads, d.hidden_size)
            if d.n_experts:
                x @ weight(d.hidden_size, d.n_experts)
            for _ in range(d.shared_experts + d.active_experts):
                for _ in range(MLP_MATRICES[d.mlp] - 1):
                    x @ weight(d.hidden_size, d.mlp_size)
                torch.empty(queries, d.mlp_size, device="meta") @ weight(d.mlp_size, d.hidden_size)
    with FlopCounterMode(display=False) as attention:
        for _ in range(d.n_layers):
            q = torch.empty(d.n_kv_heads, d.n_heads // d.n_kv_heads * queries, d.head_dim, device="meta")
            k = torch.empty(d.n_kv_heads, keys, d.head_dim, device="meta")
            (q @ k.mT) @ k
    return products.get_total_flops(), attention.get_total_flops()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_flops_are_those_that_torch_counts(name):
    """One token per byte, so that per byte is per token."""
    d = dataclasses.replace(PRESETS[name], context_bytes=96, n_layers=2)
    cost = serving_cost(d, vocab_size=VOCAB, tokens_per_byte=1.0)
    with FlopCounterMode(display=False) as head:
        torch.empty(1, d.hidden_size, device="meta") @ torch.empty(d.hidden_size, VOCAB, device="meta")
    # One query attends to all keys: there is nothing for causality to save.
    products, attention = counted(d, 1, 96)
    assert cost.decode.flops_per_byte == products + attention + head.get_total_flops()
    assert 2 * d.weights(d.shared_experts + d.active_experts) == products
    # Torch counts the full square; half of it and the diagonal are attended to.
    products, attention = counted(d, 96, 96)
    expected = products + head.get_total_flops() + attention * (96 * 97 / 2) / 96**2
    assert cost.prefill.flops_per_byte * 96 == pytest.approx(expected, rel=1e-12)


def test_the_presets_have_the_sizes_of_their_names():
    """Without the input embedding, at Llama 3's vocabulary."""
    sizes = {}
    for name, d in PRESETS.items():
        weights = [d.weights(d.shared_experts + n) + d.hidden_size * VOCAB for n in (d.n_experts, d.active_experts)]
        sizes[name] = tuple(round(n / 1e9, 1) for n in weights)
    dense = {"dense-1b": (1.2, 1.2), "dense-8b": (7.5, 7.5), "dense-70b": (69.5, 69.5)}
    assert sizes == dense | {"moe-250b": (240.2, 21.0)}
    assert Deployment() == PRESETS["dense-8b"]


@pytest.mark.parametrize(("tokens", "window"), [(1, 1), (7, 3), (3, 7), (12, 12), (12, 1)])
def test_pairs_under_a_causal_and_a_sliding_window_mask(tokens, window):
    d = Deployment(n_layers=5, window_layers=3, window_bytes=window)
    query, key = np.arange(tokens)[:, None], np.arange(tokens)
    causal = key <= query
    near = causal & (key > query - window)
    assert d.pairs(tokens, window) == 2 * causal.sum() + 3 * near.sum()
    assert d.positions(tokens, window) == 2 * causal[-1].sum() + 3 * near[-1].sum()


def test_the_expected_number_of_distinct_experts():
    picks = list(itertools.combinations(range(5), 2))
    pairs = [len({*one, *two}) for one in picks for two in picks]
    assert distinct_experts(5, 2, 2) == pytest.approx(np.mean(pairs))
    assert distinct_experts(128, 8, 1) == pytest.approx(8)
    assert distinct_experts(128, 8, 1e6) == 128
    assert distinct_experts(0, 0, 64) == 0


SHAPE = {"n_layers": 2, "hidden_size": 8, "n_heads": 4, "n_kv_heads": 2, "head_dim": 4, "mlp_size": 16}
DEVICE = {"weight_format": "fp8", "device_flops": 1e3, "device_bandwidth": 1e2}
SMALL = Deployment(**SHAPE, **DEVICE, context_bytes=40, batch=3)


def test_traffic_and_roofline_by_hand():
    cost = serving_cost(SMALL, vocab_size=100, tokens_per_byte=0.25)
    weights = 2 * (2 * 8 * 16 + 2 * 8 * 8 + 3 * 8 * 16) + 800
    assert SMALL.weights(1) + 800 == weights
    # Keys and values of 2 heads of width 4, in 2 layers, 2 bytes each: 64 bytes per token.
    assert cost.cache_bytes_per_byte == 64 * 10 / 40
    # One byte per weight, read once for 3 sequences of 40 bytes, or of 4 bytes (one token). Prefill writes keys and
    # values and reads them once.
    assert cost.decode.seconds_per_byte == pytest.approx((weights / (3 * 4) + 64 * 10 / 4) / 1e2)
    slow = serving_cost(dataclasses.replace(SMALL, device_flops=1e9), vocab_size=100, tokens_per_byte=0.25)
    assert slow.prefill.seconds_per_byte == pytest.approx((weights / (3 * 40) + 2 * 64 * 10 / 40) / 1e2)
    fast = serving_cost(dataclasses.replace(SMALL, device_bandwidth=1e6), vocab_size=100, tokens_per_byte=0.25)
    assert fast.decode.seconds_per_byte == fast.decode.flops_per_byte / 1e3


def test_a_batch_reads_the_distinct_experts_once():
    sparse = dataclasses.replace(SMALL, n_experts=8, active_experts=2, shared_experts=1, batch=2)
    cost = serving_cost(sparse, vocab_size=100, tokens_per_byte=0.25)
    expert, other = 3 * 8 * 16, 2 * 8 * 16 + 2 * 8 * 8 + 8 * 8
    assert [sparse.weights(n) for n in (3, 9)] == [2 * (other + n * expert) for n in (3, 9)]
    traffic = (2 * (other + 4.5 * expert) + 800) / (2 * 4)
    assert cost.decode.seconds_per_byte == pytest.approx((traffic + 64 * 10 / 4) / 1e2)
    # Prefill reads 2 sequences of 10 tokens together.
    slow = serving_cost(dataclasses.replace(sparse, device_flops=1e9), vocab_size=100, tokens_per_byte=0.25)
    used = 1 + distinct_experts(8, 2, 20)
    traffic = (2 * (other + used * expert) + 800) / (2 * 40)
    assert slow.prefill.seconds_per_byte == pytest.approx((traffic + 2 * 64 * 10 / 40) / 1e2)


def test_training_has_a_context_of_its_own():
    d = dataclasses.replace(SMALL, train_context_bytes=80, context_bytes=8)
    flops = training_flops(d, vocab_size=100, tokens=100, n_bytes=400)  # rows of 20 tokens
    assert flops == pytest.approx(100 * (6 * (d.weights(1) + 800) + 12 * 4 * 4 * 2 * 21 / 2))


def test_longer_tokens_save_all_but_the_head():
    """Twice the bytes per token: half the layers' FLOPs per byte, and the larger vocabulary counts in decoding only."""
    d = dataclasses.replace(PRESETS["dense-8b"], context_bytes=1)  # hardly any attention
    reference = serving_cost(d, vocab_size=50_000, tokens_per_byte=1e-3)
    larger = serving_cost(d, vocab_size=100_000, tokens_per_byte=5e-4)
    layers, head = d.weights(1), 4096 * 50_000
    relative = larger.decode.flops_per_byte / reference.decode.flops_per_byte
    assert relative == pytest.approx((layers + 2 * head) / 2 / (layers + head), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_kv_heads": 5}, "not a multiple of deployment.n_kv_heads=5"),
        ({"active_experts": 3}, "uses 3 of deployment.n_experts=0"),
        ({"window_layers": 3}, "set both for sliding windows"),
    ],
)
def test_impossible_deployments_are_rejected(changes, message):
    with pytest.raises(UserError, match=message):
        serving_cost(Deployment(**changes), vocab_size=100, tokens_per_byte=0.25)


@pytest.mark.parametrize("size", [{"tokens_per_byte": 0}, {"vocab_size": 0}])
def test_impossible_tokenizers_are_rejected(size):
    with pytest.raises(UserError, match=rf"{next(iter(size))}=0 must be"):
        serving_cost(SMALL, **{"vocab_size": 100, "tokens_per_byte": 0.25} | size)


CONFIG = ModelConfig(n_layers=2, hidden_size=32, head_dim=16, vocab_multiple=64)


def model(context_tokens=64):
    made = Transformer(CONFIG, 300, context_tokens)
    made.initialize(0, range(made.vocab_size))
    return made


def test_counts_by_hand():
    made = model()
    layers, head = 2 * (4 * 32 * 32 + 3 * 32 * CONFIG.intermediate_size), 320 * 32
    # 60 bytes of context, 3 bytes per token: 20 tokens.
    cost = inference_cost(shape_of(made, 60), vocab_size=made.lm_head.weight.shape[0], bytes_per_token=3.0)
    assert cost.prefill_flops_per_byte == pytest.approx((2 * layers * 20 + 2 * head + 2 * 2 * 32 * 20 * 21) / 60)
    assert cost.decode_flops_per_byte == pytest.approx((2 * (layers + head) + 4 * 2 * 32 * 20) / 3)


def test_decoding_flops_equal_the_count_of_torch():
    """One token per byte, so that per byte is per token; the cache also holds the token itself."""
    made = model().eval()
    cache = KVCache(made)
    # The counter sees only the plain products of attention.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        made(torch.arange(20)[None], cache=cache)
        with FlopCounterMode(display=False) as counter:
            made(torch.tensor([[20]]), cache=cache)
    cost = inference_cost(shape_of(made, 21), vocab_size=made.lm_head.weight.shape[0], bytes_per_token=1.0)
    assert cost.decode_flops_per_byte == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_the_cache_takes_the_stated_bytes():
    made = model()
    cache = KVCache(made, capacity=20)
    cost = inference_cost(shape_of(made, 60), vocab_size=made.lm_head.weight.shape[0], bytes_per_token=3.0)
    fp32 = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cost.kv_bytes_per_byte * 60 == pytest.approx(fp32 / 2)

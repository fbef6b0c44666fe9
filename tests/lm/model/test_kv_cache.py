"""The cache gives the logits of a full forward pass, whatever was appended, rewound, forked or branched."""

import pytest
import torch

from lm.model.kv_cache import KVCache
from lm.model.transformer import ModelConfig
from tests.lm import tiny

CONTEXT = 48


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "qk_norm"])
def model(request):
    config = ModelConfig(n_layers=2, hidden_size=32, head_dim=16, vocab_multiple=16, qk_norm=request.param)
    return tiny.uneven(config, 70, CONTEXT).requires_grad_(False)


def ids(*shape, seed=2):
    return torch.randint(70, shape, generator=torch.Generator().manual_seed(seed))


def close(actual, expected):
    torch.testing.assert_close(actual[..., :70], expected[..., :70], rtol=1e-5, atol=1e-5)


def test_parts_of_any_length(model):
    text = ids(3, 40)
    cache = KVCache(model, rows=3, capacity=4)
    parts = [model(part, cache=cache) for part in text.split([1, 7, 1, 30, 1], dim=1)]
    close(torch.cat(parts, dim=1), model(text))
    assert cache.lengths.tolist() == [40, 40, 40]


def test_prompts_of_unequal_lengths_are_padded_on_the_right_and_rewound(model):
    lengths, more = [3, 11, 1], ids(3, 5, seed=4)
    prompts = ids(3, 11)
    cache = KVCache(model, rows=3)
    model(prompts, cache=cache)
    cache.rewind(lengths)
    together = torch.cat([model(token, cache=cache) for token in more.split(1, dim=1)], dim=1)
    for row, length in enumerate(lengths):
        alone = torch.cat([prompts[row : row + 1, :length], more[row : row + 1]], dim=1)
        close(together[row], model(alone)[0, length:])


def test_forks_do_not_disturb_each_other(model):
    prompts, more = ids(2, 6), ids(3, 4, seed=5)
    cache = KVCache(model, rows=2)
    model(prompts, cache=cache)
    forked = cache.select([1, 0, 1])
    result = model(more, cache=forked)
    for row, source in enumerate([1, 0, 1]):
        close(result[row], model(torch.cat([prompts[source], more[row]])[None])[0, 6:])
    other = ids(2, 3, seed=6)
    close(model(other, cache=cache), model(torch.cat([prompts, other], dim=1))[:, 6:])


def test_a_tree_equals_its_paths(model):
    prompt, tokens = ids(1, 5), ids(1, 9, seed=7)
    parents = [-1, 0, 1, 1, -1, 4, 3, 0, 6]
    cache = KVCache(model, capacity=6)
    model(prompt, cache=cache)
    cache.branch([parents])
    logits = model(tokens, cache=cache)
    for node in range(9):
        path, at = [], node
        while at >= 0:
            path.append(at)
            at = parents[at]
        sequence = torch.cat([prompt, tokens[:, path[::-1]]], dim=1)
        close(logits[0, node], model(sequence)[0, -1])
    cache.rewind(5 + 3)  # the chain 0, 1, 2 stays
    close(model(tokens[:, 3:5], cache=cache), model(torch.cat([prompt, tokens[:, :5]], dim=1))[:, 8:])


def test_mistakes_are_rejected(model):
    cache = KVCache(model, rows=2)
    with pytest.raises(ValueError, match="rows"):
        model(ids(1, 2), cache=cache)
    model(ids(2, CONTEXT), cache=cache)
    with pytest.raises(ValueError, match=f"position {CONTEXT}"):
        model(ids(2, 1), cache=cache)
    with pytest.raises(ValueError, match="rewind"):
        cache.rewind([CONTEXT + 1, 0])
    cache.rewind(3)
    cache.branch([[-1]])
    with pytest.raises(ValueError, match="tree"):
        model(ids(2, 2), cache=cache)

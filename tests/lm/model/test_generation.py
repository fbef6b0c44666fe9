import math

import numpy as np
import pytest
import torch

from lm.model.generation import generate, sample
from lm.model.language_model import LanguageModel
from lm.model.sampling import SamplingConfig
from tests.lm import tiny
from tokenizer.errors import UserError

FREE = SamplingConfig(temperature=1.0, top_p=1.0, max_new_tokens=30, max_new_bytes=None)


@pytest.fixture(scope="module")
def lm():
    return tiny.language_model(tiny.bytes_only(), context_tokens=24, scale=0.3)


def with_(config=FREE, **changes):
    return SamplingConfig(**{**config.__dict__, **changes})


def scripted(tokens, *, size=257):
    """A model that generates a given script, byte by byte or in longer tokens."""

    class Scripted:
        context_tokens, vocab_size, tokenizer_sha256 = 1000, size, ""
        config = tiny.model(size).config
        lm_head = tiny.model(size).lm_head

        def eval(self):
            return self

        def __init__(self):
            self.left = list(tokens)

        def __call__(self, ids, keep, *, cache):
            cache.begin(*ids.shape)
            if not keep.any():
                return torch.empty(0, size)
            logits = torch.full((len(ids), size), -1e9)
            logits[:, self.left.pop(0)] = 0.0
            return logits

    return Scripted()


def slowly(lm, prompt, config):
    """Generation as its definition says: no cache, one full pass per token."""
    state = np.random.SeedSequence([config.seed, 0]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]) >> 1)
    ids = [lm.eos_id, *lm.tokenizer.encode_ordinary(prompt)]
    out = []
    while len(out) < config.max_new_tokens:
        logits = lm.model(torch.tensor([ids + out]))[0, -1]
        logits[~lm.text_ids & (torch.arange(len(logits)) != lm.eos_id)] = -math.inf
        token = sample(logits, config, generator)
        if token == lm.eos_id:
            break
        out.append(token)
    return out


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_the_cache_does_not_change_samples(lm, temperature):
    config = with_(temperature=temperature, max_new_tokens=15, seed=3)
    [result] = generate(lm, ["Hello"], config)
    assert result.ids == slowly(lm, "Hello", config)
    assert len(set(result.ids)) > 1
    assert result.n_prompt_tokens == 5


def test_samples_depend_on_the_seed_and_not_on_the_batch(lm):
    prompts = ["Hello", "", "a much longer prompt than the others are", "Hello"]
    first, again = (generate(lm, prompts, with_(seed=1)) for _ in range(2))
    assert first == again
    assert first != generate(lm, prompts, with_(seed=2))
    assert first[0].ids != first[3].ids  # samples of one prompt differ
    assert generate(lm, prompts[:1], with_(seed=1))[0].ids == first[0].ids
    fewer = generate(lm, ["Hello", "x"], with_(seed=1, max_new_tokens=12))
    assert fewer[0].ids == first[0].ids[:12]


def test_a_full_context_slides(lm):
    """A full context is replaced by its last half, so that no position exceeds the trained ones."""
    [result] = generate(lm, ["0123456789"], with_(max_new_tokens=60, temperature=0.0))
    everything = [lm.eos_id, *lm.tokenizer.encode_ordinary("0123456789"), *result.ids]
    start = 0
    for at in range(11, len(everything)):
        if at - start > lm.model.context_tokens:
            start = at - lm.model.context_tokens // 2
        logits = lm.model(torch.tensor([everything[start:at]]))[0, -1, :256]
        assert everything[at] == int(logits.argmax())
    assert len(result.ids) == 60


def test_sampling_agrees_with_transformers():
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    config = SamplingConfig(temperature=0.8, top_k=12, top_p=0.8)
    scores = logits[None]
    warpers = process.TemperatureLogitsWarper(0.8), process.TopKLogitsWarper(12), process.TopPLogitsWarper(0.8)
    for warper in warpers:
        scores = warper(None, scores)
    expected = scores.softmax(-1)[0]
    generator = torch.Generator().manual_seed(1)
    n = 4000
    counts = torch.bincount(torch.tensor([sample(logits, config, generator) for _ in range(n)]), minlength=50)
    assert 1 < int((expected > 0).sum()) < 12
    assert (counts[expected == 0] == 0).all()
    spread = (expected * (1 - expected) / n).sqrt()
    assert ((counts / n - expected).abs() <= 5 * spread).all()


def test_a_tiny_top_p_keeps_the_most_likely_token():
    logits = torch.tensor([0.0, 1.0, 0.5])
    config = SamplingConfig(temperature=1.0, top_p=1e-9)
    assert {sample(logits, config, torch.Generator().manual_seed(i)) for i in range(20)} == {1}
    assert sample(logits, with_(config, temperature=0.0), torch.Generator()) == 1


def test_special_tokens_and_padding_are_never_sampled():
    tokenizer = tiny.merged([(b"a", b"b")], special_tokens=["<|endoftext|>", "<|other|>"])
    lm = tiny.language_model(tokenizer)
    other = tokenizer.special_tokens["<|other|>"]
    with torch.no_grad():
        lm.model.lm_head.weight[other] = lm.model.lm_head.weight.abs().sum(0) * 100
    results = generate(lm, ["ab"] * 8, with_(temperature=2.0))
    assert all(token != other for result in results for token in result.ids)


@pytest.mark.parametrize(
    ("text", "stop", "left", "finish"),
    [
        ("abc.def", (".",), "abc", "stop"),
        ("abcdef", ("cd", "de"), "ab", "stop"),
        ("abcdef", ("bcde", "d"), "abc", "stop"),
        ("naïve café", ("ï",), "na", "stop"),
        ("naïve café", ("é",), "naïve caf", "stop"),
        ("abcabd", ("abd",), "abc", "stop"),
        ("abcdef", ("x",), "abcdef", "end"),
    ],
)
def test_text_ends_before_the_first_stop_string(text, stop, left, finish):
    tokenizer = tiny.bytes_only()
    script = [*tokenizer.encode_ordinary(text), tokenizer.special_tokens["<|endoftext|>"]]
    lm = LanguageModel(scripted(script), tokenizer)
    [result] = generate(lm, ["x"], with_(temperature=0.0, stop=stop))
    assert (result.text, result.finish) == (left, finish)


@pytest.mark.parametrize(("limit", "left"), [(3, "na"), (4, "naï"), (5, "naïv"), (0, "")])
def test_a_limit_in_bytes_cuts_no_character(limit, left):
    tokenizer = tiny.bytes_only()
    lm = LanguageModel(scripted(tokenizer.encode_ordinary("naïve")), tokenizer)
    [result] = generate(lm, [""], with_(temperature=0.0, max_new_tokens=None, max_new_bytes=limit))
    assert (result.text, result.finish) == (left, "bytes")


def test_a_limit_in_bytes_cuts_a_token_and_comes_before_a_later_stop():
    tokenizer = tiny.merged([(b"a", b"b"), (b"ab", b"c")])
    lm = LanguageModel(scripted([tokenizer.vocab.index(b"abc")] * 2, size=tokenizer.vocab_size), tokenizer)
    config = with_(temperature=0.0, max_new_tokens=None, max_new_bytes=4, stop=("bc",))
    [result] = generate(lm, [""], with_(config, stop=("ca",)))
    assert (result.text, result.finish) == ("ab", "stop")
    lm.model.left = [tokenizer.vocab.index(b"abc")] * 2
    [result] = generate(lm, [""], with_(config, stop=("cab",)))
    assert (result.text, result.finish) == ("abca", "bytes")


def test_tokens_that_reach_beyond_the_prompt_count_as_sampled():
    tokenizer = tiny.merged([(b"a", b"b")])
    lm = LanguageModel(scripted([tokenizer.special_tokens["<|endoftext|>"]], size=tokenizer.vocab_size), tokenizer)
    [result] = generate(lm, ["xa"], FREE, [[tokenizer.vocab.index(b"x"), tokenizer.vocab.index(b"ab")]])
    assert (result.text, result.ids) == ("b", [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -1}, "temperature=-1"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_k": 0}, "top_k=0"),
        ({"seed": -1}, "seed=-1"),
        ({"max_new_tokens": -1}, "max_new_tokens=-1"),
        ({"max_new_tokens": None}, "max_new_bytes"),
        ({"stop": ("",)}, "stop="),
    ],
)
def test_meaningless_settings_are_errors(change, message):
    with pytest.raises(UserError, match=message):
        with_(**change)


def test_model_and_tokenizer_must_belong_together():
    tokenizer = tiny.bytes_only()
    for model in (tiny.model(257, sha256="ab" * 32), tiny.model(300)):
        with pytest.raises(UserError, match="not with"):
            LanguageModel(model, tokenizer)

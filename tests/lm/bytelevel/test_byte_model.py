"""Byte probabilities against sums over sequences, each scored by a whole forward pass."""

import math

import numpy as np
import pytest
import torch

from lm.bytelevel import byte_model
from lm.bytelevel.byte_model import END, ByteModel
from lm.evaluate.forward import Forward
from lm.model.generation import generate
from lm.model.language_model import LanguageModel
from lm.model.sampling import SamplingConfig
from superbpe import PRESETS, Rules
from tests.lm import tiny
from tests.lm.bytelevel.definition import LETTERS, bpe, brute, flat, is_canonical, normalizing, superwords
from tokenizer.errors import UserError

STRINGS = [b"ab", b"  ", b"s'", b"ab a", b" sab 1"]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("llama3", "lifted", "runs")]


@pytest.fixture(scope="module", params=["kept", "bytes", *SLOW])
def lm(request):
    makers = {
        "lifted": lambda: superwords(PRESETS["spans"], LETTERS),
        "kept": lambda: superwords(Rules(fence="uw-2025-fence", phase1_fence="kept"), LETTERS),
        "runs": lambda: superwords(PRESETS["runs"], LETTERS),
        "bytes": tiny.bytes_only,
    }
    tokenizer = makers[request.param]() if request.param in makers else bpe(request.param, LETTERS)
    return tiny.language_model(tokenizer, context_tokens=48)


def sequence_log_prob(lm, ids):
    """Log probability of tokens after <|endoftext|>, by one pass without a cache."""
    if not ids:
        return 0.0
    logits = lm.model(torch.tensor([[lm.eos_id, *ids]]))[0, :-1].double()
    return float(logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum())


def log_mass(lm, data):
    """The definition: the sum over the paths that longer strings prove."""
    if not data:
        return 0.0
    found, _ = brute(lm.tokenizer, data, LETTERS, 2)
    more = flat(byte_model.TokenizationPaths(lm.tokenizer).find(data)) - found
    assert all(is_canonical(lm.tokenizer, path) for path in more)
    found |= more
    return float(np.logaddexp.reduce([sequence_log_prob(lm, list(path)) for path in found]))


def test_sums_over_canonical_paths(lm):
    model = ByteModel(lm)
    several = 0
    for data in STRINGS:
        several += len(flat(model.paths.find(data))) > 1
        masses = [log_mass(lm, data[:cut]) for cut in range(len(data) + 1)]
        assert model.log_prob(data) == pytest.approx(masses[-1], abs=1e-5)
        for cut in range(len(data)):
            expected = masses[-1] - masses[cut]
            assert model.log_prob(data[cut:], data[:cut]) == pytest.approx(expected, abs=1e-5)
    assert several or lm.tokenizer.vocab_size == 257


def test_trees_and_rows_without_a_cache_agree(lm):
    trees, rows = ByteModel(lm), ByteModel(LanguageModel(Forward(lm.model, lm.eos_id), lm.tokenizer), batch_tokens=64)
    requests = [("ab s", ["ab", "a 1", " s" * 9]), ("", ["ab"]), ("1 ab" * 6, ["'s", "ab"])]
    for one, other in zip(trees.choices(requests), rows.choices(requests), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(trees.next_byte("ab "), rows.next_byte("ab "), atol=1e-5)


def test_next_bytes_are_a_distribution_and_agree_with_strings(lm):
    model = ByteModel(lm)
    for prefix in (b"", b"ab ", b"s'", b"  "):
        probabilities = model.next_byte(prefix)
        assert 0 < probabilities.sum() < 1 + 1e-12
        for byte in b"as 1\n":
            expected = math.exp(model.log_prob(bytes([byte]), prefix))
            assert probabilities[byte] == pytest.approx(expected, abs=1e-6)
        end = math.exp(model.log_prob(b"", prefix, end=True))
        assert probabilities[END] == pytest.approx(end, abs=1e-6)
        assert probabilities[0x80] == probabilities[0xFF] == 0  # where a character begins
        assert model.likeliest_bytes([prefix]) == [int(probabilities.argmax())]


def test_a_document_has_the_product_over_its_tokens(lm):
    for text in ("", "ab", "naïve", "sab a 1", "a  \n 's"):
        ids = lm.tokenizer.encode_ordinary(text)
        expected = sequence_log_prob(lm, [*ids, lm.eos_id])
        assert ByteModel(lm).log_prob(text, end=True) == pytest.approx(expected, abs=1e-5)


def test_more_choices_than_the_model_has_positions(lm):
    answers = [f"{a}{b} {c}" for a in "ab1" for b in "abs" for c in ["s 1", "ba ab", "1s"]]
    [together] = ByteModel(lm).choices([("ab ", answers)])
    assert sum(map(len, answers)) > lm.model.context_tokens
    assert together[5] == pytest.approx(ByteModel(lm).log_prob(answers[5], "ab "), abs=1e-5)


def test_the_chain_rule_and_parts_of_a_long_text(lm, monkeypatch):
    model = ByteModel(lm)
    whole = model.log_prob("ab sab 1 a.b's", "s ")
    assert whole == pytest.approx(model.log_prob("ab s", "s ") + model.log_prob("ab 1 a.b's", "s ab s"), abs=1e-5)
    monkeypatch.setattr(model, "_part", lambda before, rest: min(3, len(rest)))
    assert model.log_prob("ab sab 1 a.b's", "s ") == pytest.approx(whole, abs=1e-5)


def test_texts_longer_than_the_context(lm):
    model = ByteModel(lm)
    text = "ab sab 1 a.b's " * 12
    assert -math.inf < model.log_prob(text, end=True) < 0
    assert -math.inf < model.log_prob("ab", text) < 0
    [scores] = model.choices([(text, ["a", "b"])])
    np.testing.assert_allclose(scores, [model.log_prob(c, text) for c in "ab"], atol=0.5)
    assert 0 < model.next_byte(text).sum() < 1 + 1e-12


def test_answers_count_every_token_that_covers_the_prompt():
    tokenizer = tiny.merged([(b" ", b"o"), (b" o", b"f"), (b" of", b" "), (b" of ", b"t")], "none")
    lm = tiny.language_model(tokenizer)
    token = tokenizer.vocab.index
    a, of, of_, of_t = token(b"a"), token(b" of"), token(b" of "), token(b" of t")

    def prob(*ids):
        return math.exp(sequence_log_prob(lm, list(ids)))

    expected = math.log(prob(a, of_t) / (prob(a, of) + prob(a, of_) + prob(a, of_t)))
    assert ByteModel(lm).log_prob(" t", "a of") == pytest.approx(expected, abs=1e-5)


def test_healing_samples_paths_by_probability():
    tokenizer = tiny.merged([(b" ", b"o"), (b" o", b"f"), (b" of", b" "), (b" of ", b"t")], "none")
    lm = tiny.language_model(tokenizer)
    model = ByteModel(lm)
    token = tokenizer.vocab.index
    paths = [[token(b"a"), token(text)] for text in (b" of", b" of ", b" of t")]
    weights = np.exp([sequence_log_prob(lm, path) for path in paths])
    n = 150
    drawn = [model.heal("a of", seed=seed) for seed in range(n)]
    for path, share in zip(paths, weights / weights.sum(), strict=True):
        spread = math.sqrt(share * (1 - share) / n)
        assert abs(drawn.count(path) / n - share) < 4 * spread
    assert model.heal("a of", seed=5) == drawn[5]
    assert model.heal("", seed=0) == []
    config = SamplingConfig(temperature=0.0, max_new_tokens=2, max_new_bytes=None)
    [result] = generate(lm, ["a of"], config, [paths[2]])
    assert result.data.startswith(b" t")


@pytest.fixture(scope="module", params=["NFC", pytest.param("NFD", marks=pytest.mark.slow)])
def normalized(request):
    return tiny.language_model(normalizing(request.param))


def test_normalized_text_is_scored(normalized):
    composed, decomposed = "é e\u0305é", "e\u0301 e\u0305e\u0301"
    model = ByteModel(normalized)
    for end in (False, True):
        assert model.log_prob(decomposed, "a ", end=end) == model.log_prob(composed, "a ", end=end)
        assert model.log_prob("b", decomposed, end=end) == model.log_prob("b", composed, end=end)
    ids = normalized.tokenizer.encode_ordinary(composed)
    whole = sequence_log_prob(normalized, [*ids, normalized.eos_id])
    assert model.log_prob(composed, end=True) == pytest.approx(whole, abs=1e-5)
    one, two = model.choices([(composed, ["b", " é"]), (decomposed, ["b", " e\u0301"])])
    assert one.tolist() == two.tolist()
    assert model.heal(decomposed, seed=0) == model.heal(composed, seed=0)
    [likely] = model.likeliest_bytes([composed])
    assert model.greedy_of([(bytes([likely]), decomposed)]) == [True]


def test_bytes_of_normalized_text(normalized):
    """The chain rule holds over all bytes, also inside characters and combining sequences."""
    model = ByteModel(normalized)
    data = model.paths.normalized("e\u0301e\u0305".encode())
    total = sum(math.log(model.next_byte(data[:i])[byte]) for i, byte in enumerate(data))
    assert model.log_prob(data) == pytest.approx(total, abs=1e-5)


def test_marks_that_change_the_prompt_are_rejected():
    model = ByteModel(tiny.language_model(normalizing("NFC")))
    mark = "\u0301".encode()
    for prompt, answer in (("xe", "\u0301a"), (b"xe" + mark[:1], mark[1:] + b"a")):
        for job, argument in ((model.greedy_of, (answer, prompt)), (model.choices, (prompt, [answer]))):
            with pytest.raises(UserError, match="changes the end of the prompt"):
                job([argument])
        with pytest.raises(UserError, match="changes the end of the prompt"):
            model.log_prob(answer, prompt)
    assert model.log_prob("\u0305a", "xe") < 0
    with pytest.raises(UserError, match="no normalized text begins with"):
        model.next_byte("a\uf900".encode()[:3])


def test_a_prompt_is_read_once():
    model = ByteModel(tiny.language_model(bpe("llama3", LETTERS)))
    for passes in (2, 3):  # the prompt and the answers; then the prompt is in the cache
        model.choices([("ab sab ab", ["a", "b", " a"])])
        assert model._reader.passes == passes


def test_mistakes():
    model = ByteModel(tiny.language_model(tiny.bytes_only()))
    with pytest.raises(UserError, match="no text begins"):
        model.log_prob(b"\xff")
    with pytest.raises(UserError, match="end inside a character"):
        model.log_prob(b"\xc3", end=True)
    lm = tiny.language_model(tiny.merged([(b"a", b"a")], "none"), context_tokens=3)
    with pytest.raises(UserError, match="positions"):
        next(ByteModel(lm)._tables([ByteModel(lm)._plan(b"", [b"abcd", b"bcde"])]))


MANY = ["", "ab", "ab s", "ab sab", "ab sab ab", "s'", "ab ab " * 6, "1 ab"]


def test_batches_give_the_numbers_of_single_requests(lm):
    answers = [" ab", "", "a", "b 1", " s" * 8]
    requests = [(prompt, answers[: 1 + i % 5]) for i, prompt in enumerate(MANY)]
    single = ByteModel(lm, batch_rows=1)
    alone = [single.choices([request])[0] for request in requests]
    for scores, (prompt, some) in zip(alone, requests, strict=True):
        assert scores == pytest.approx([single.log_prob(answer, prompt) for answer in some], rel=1e-6, abs=1e-5)
    for rows in (3, 32):
        batched = ByteModel(lm, batch_rows=rows)
        for scores, expected in zip(batched.choices(requests), alone, strict=True):
            assert scores == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert batched._reader.passes < single._reader.passes


def test_a_batch_of_greedy_checks_equals_single_ones(lm):
    model = ByteModel(lm)
    likely = b""
    for _ in range(3):
        [byte] = model.likeliest_bytes([likely])
        if byte == END:
            break
        likely += bytes([byte])
    pairs = [(likely[cut:], likely[:cut]) for cut in range(len(likely))] + [("ab", prompt) for prompt in MANY[1:3]]
    pairs = [(text, prompt) for text, prompt in pairs if text]
    expected = []
    for text, prompt in pairs:
        data, rest = (x.encode() if isinstance(x, str) else x for x in (prompt, text))
        found = [model.next_byte(data + rest[:i]).argmax() for i in range(len(rest))]
        expected.append(found == list(rest))
    assert ByteModel(lm, batch_rows=2).greedy_of(pairs) == expected
    assert not all(expected)


def test_rows_of_a_batch_never_exceed_the_context(lm):
    """A long row in the cache and a long row to read: padding the first to the second would not fit."""
    model = ByteModel(lm)
    longest = "ab1" * 12
    model.choices([(longest, ["a"])])
    requests = [(longest, ["ab"]), ("1s" * 18, ["s"])]
    for scores, (prompt, some) in zip(model.choices(requests), requests, strict=True):
        assert scores == pytest.approx(ByteModel(lm).choices([(prompt, some)])[0], rel=1e-6, abs=1e-6)


def test_a_batch_is_limited_in_tokens(lm, monkeypatch):
    model = ByteModel(lm, batch_tokens=40)
    sizes = []
    read = model._reader.read

    def watched(jobs):
        sizes.append((len(jobs), max(len(trunk) + len(tree.tokens) for trunk, tree in jobs)))
        return read(jobs)

    monkeypatch.setattr(model._reader, "read", watched)
    model.choices([(prompt, ["a"]) for prompt in MANY])
    assert all(rows == 1 or rows * width <= 40 for rows, width in sizes)
    assert 1 < len(sizes) < len(MANY)

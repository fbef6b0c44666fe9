"""Our models in lm-eval, compared with its own Hugging Face model with the same weights."""

import importlib
import sys

import numpy as np
import pytest

from lm.bytelevel.byte_model import ByteModel
from lm.hf.export import export_hf
from tests.lm import tiny
from tests.lm.bytelevel.definition import LETTERS, bpe
from tokenizer.errors import UserError

pytest.importorskip("lm_eval")
harness = pytest.importorskip("lm.evaluate.lm_eval")
from lm_eval.api.instance import Instance  # noqa: E402


def requests(pairs, kind="loglikelihood"):
    return [Instance(kind, {}, pair, i) for i, pair in enumerate(pairs)]


@pytest.fixture(scope="module")
def plain():
    return tiny.language_model(bpe("llama3", LETTERS), context_tokens=48)


@pytest.mark.slow
def test_bytes_are_scored_whatever_the_tokens(plain):
    model = harness.HarnessModel(plain)
    pairs = [("ab s", "ab"), ("ab s", "a"), ("ab s", "1"), ("", "ab"), ("a ", "b")]
    results = model.loglikelihood(requests(pairs))
    for (prompt, answer), (score, greedy) in zip(pairs, results, strict=True):
        assert score == pytest.approx(ByteModel(plain).log_prob(answer, prompt), abs=1e-5)
        assert greedy == ByteModel(plain).greedy_of([(answer, prompt)])[0]
    facts = model.facts()
    assert facts["requests"] == 5
    assert 0 <= facts["noncanonical_share"] < 1
    [rolling] = model.loglikelihood_rolling(requests([("ab sab",)], "loglikelihood_rolling"))
    assert rolling == pytest.approx(ByteModel(plain).log_prob("ab sab"), abs=1e-5)


def test_straddles_are_counted_and_scored_by_bytes():
    tokenizer = tiny.merged([(b"a", b" "), (b"a ", b"b")], "none")
    lm = tiny.language_model(tokenizer)
    pairs = [("x", "y"), ("xa", " b"), ("xa ", "b")]
    model = harness.HarnessModel(lm)
    results = model.loglikelihood(requests(pairs))
    assert (model.straddles, model.requests) == (2, 3)
    assert model.facts()["straddle_share"] == 2 / 3
    for (prompt, answer), (score, _) in zip(pairs, results, strict=True):
        assert score == pytest.approx(ByteModel(lm).log_prob(answer, prompt), abs=1e-5)


def test_generation_stops_heals_and_keeps_settings_apart(plain):
    settings = [
        {"until": ["1"], "max_gen_toks": 12},
        {"until": [], "max_gen_toks": 3, "do_sample": True, "temperature": 1.0},
        {"until": "\n", "max_gen_toks": 12},
    ]
    jobs = requests([("ab s", s) for s in settings] * 2, "generate_until")
    texts = harness.HarnessModel(plain, batch_rows=2).generate_until(jobs)
    assert "1" not in texts[0]
    assert "\n" not in texts[2]
    assert texts[0] == texts[3]
    assert texts == harness.HarnessModel(plain).generate_until(jobs)


def test_without_lm_eval_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(UserError, match=r"pip install '\.\[eval\]'"):
        importlib.reload(harness)


def hugging_face(lm, folder):
    """lm-eval's own model, of the exported folder."""
    import transformers
    from lm_eval.models.huggingface import HFLM

    export_hf(lm.model, lm.tokenizer, folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options = {"add_bos_token": True, "max_length": lm.model.context_tokens, "batch_size": 2}
    return HFLM(pretrained=model, tokenizer=tokenizer, **options)


@pytest.mark.slow
def test_bytes_as_tokens_are_scored_as_by_the_own_model_of_lm_eval(tmp_path):
    """Without merges bytes are tokens; white space at the end of a prompt is not moved to the answer, though."""
    lm = tiny.language_model(tiny.bytes_only(), context_tokens=48)
    theirs = hugging_face(lm, tmp_path / "hf")
    pairs = [("ab sab", " ab"), ("ab sab", " sab 1"), ("", "ab s"), ("1", "\nab")]
    ours = harness.HarnessModel(lm)
    ours_scores = ours.loglikelihood(requests(pairs))
    assert ours.straddles == 0
    theirs_scores = theirs.loglikelihood(requests(pairs), disable_tqdm=True)
    np.testing.assert_allclose([s for s, _ in ours_scores], [s for s, _ in theirs_scores], rtol=1e-4, atol=1e-3)
    assert [bool(g) for _, g in ours_scores] == [bool(g) for _, g in theirs_scores]
    greedy = requests([("ab s", {"until": ["1"], "max_gen_toks": 10})], "generate_until")
    assert ours.generate_until(greedy) == theirs.generate_until(greedy, disable_tqdm=True)
    theirs.add_bos_token = False  # it puts a second one in front of rolled texts, and scores it
    texts = requests([(text,) for text in ["ab sab 1\n" * 3, "s"]], "loglikelihood_rolling")
    expected = theirs.loglikelihood_rolling(texts, disable_tqdm=True)
    np.testing.assert_allclose(ours.loglikelihood_rolling(texts), expected, rtol=1e-4)

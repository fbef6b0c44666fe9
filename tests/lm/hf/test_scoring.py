"""Models of `transformers` as models that an evaluation can score, against their own logits and a plain computation."""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.evaluate.texts import evaluate_texts
from lm.hf import pretrained
from lm.hf.first_token import StartToken, start_of
from lm.hf.scoring import PretrainedModel, context_tokens, deployment_of
from tests.lm.conftest import TEXTS
from tokenizer import Batch, UserError
from tokenizer.external.load import load_pretrained

pytestmark = pytest.mark.filterwarnings("ignore:.*its post-processor")

ROWS = 384
SHAPE = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2}
KINDS = {
    "GPT2": {"vocab_size": ROWS, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "Llama": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 8},
    "Gemma2": {**GROUPED, "head_dim": 8, "sliding_window": 8},  # caps its logits
    "Cohere": {**GROUPED, "logit_scale": 0.5},  # scales its logits
    "Granite": {**GROUPED, "logits_scaling": 1.5},
    "Mistral": {**GROUPED, "sliding_window": 8},
    "Mixtral": {**GROUPED, "num_local_experts": 4},
    "Mamba": {"vocab_size": ROWS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "Bert": SHAPE,  # sees later tokens
    "OPT": {**SHAPE, "ffn_dim": 64, "word_embed_proj_dim": 32},  # does not call its `base_model`
}
QUICK = ("GPT2", "Gemma2", "OPT")
DOCUMENTS = [*TEXTS, "naïve café " * 12, "x = [1, 22, 333]\n" * 9]


def made(kind, dtype=torch.float32, spread=0.6):
    """A random model whose losses depend on the text."""
    config = getattr(transformers, f"{kind}Config")(**KINDS[kind], bos_token_id=0, eos_token_id=0, pad_token_id=0)
    suffix = "LMHeadModel" if kind in ("GPT2", "Bert") else "ForCausalLM"
    model = getattr(transformers, f"{kind}{suffix}")(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, spread, generator=generator)
    return model.eval().to(dtype)


def saved(folder, *, bos=None, eos=None, adds_bos=False, before=None):
    """A byte-level tokenizer in the files of `transformers`."""
    tokenizer = HfTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [token for token in (bos, eos, before) if token is not None]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=specials, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(DOCUMENTS, trainer)
    if adds_bos:
        begins = [token for token in (before, bos) if token is not None]
        ids = [(token, tokenizer.token_to_id(token)) for token in begins]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{' '.join(begins)} $A", special_tokens=ids)
    own = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    own.save_pretrained(folder)
    return own


def plain_bits_per_byte(model, own, start, *, everywhere, before=(), shift=0):
    """Bits per byte of DOCUMENTS, one forward pass for each, in windows of 64 positions without overlap.

    In each window, `before` precedes them.
    """
    nats = 0.0
    for text in DOCUMENTS:
        ids = own(text, add_special_tokens=False)["input_ids"]
        x = [start, *ids]
        room = 64 - everywhere
        for first in range(0, len(x), room):
            inputs = x[first : first + room]
            targets = x[first + 1 : first + 1 + room]
            inputs = inputs[: len(targets)]
            if everywhere and first:
                inputs, targets = [start, *inputs], [None, *targets]
            if not targets:
                continue
            with torch.no_grad():
                logits = model(torch.tensor([[*before, *inputs]])).logits[0, len(before) :, : len(own)]
                logits = logits.double().log_softmax(-1)
            nats -= sum(
                logits[place, (target + shift) % len(own)].item()
                for place, target in enumerate(targets)
                if target is not None
            )
    return nats / math.log(2) / sum(len(text.encode()) for text in DOCUMENTS)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS if kind != "Bert"]
)
@pytest.mark.parametrize("everywhere", [False, True])
def test_losses_are_those_of_the_models_own_logits(kind, everywhere, tmp_path):
    first = {"before": "[gMASK]"} if kind in ("GPT2", "OPT") else {}  # as in GLM 4
    own = saved(tmp_path, bos="<s>", eos="</s>", adds_bos=everywhere, **first)
    model, tokenizer = made(kind), load_pretrained(tmp_path).tokenizer
    start = start_of(tmp_path, tokenizer)
    assert start.everywhere == everywhere
    assert bool(start.before) == (everywhere and bool(first))
    options = {"everywhere": everywhere, "before": start.before}
    expected = plain_bits_per_byte(model, own, start.id, **options)
    shifted = [plain_bits_per_byte(model, own, start.id, **options, shift=by) for by in (1, 5, 50)]
    assert max(abs(loss / expected - 1) for loss in shifted) > 0.01  # the losses depend on the text
    scorable = PretrainedModel(model, tokenizer, start, tokenizer.end_id)
    scorable.context_tokens = 64
    config = EvalConfig(context_bytes=100_000, min_context_bytes=0, batch_tokens=500)
    found = evaluate_texts(scorable, tokenizer, DOCUMENTS, config=config)
    assert found.bits_per_byte == pytest.approx(expected, abs=1e-5)
    assert np.isfinite(found.eos_nats).all()
    assert scorable.whole == (kind == "OPT")
    assert deployment_of(model, 4096).hidden_size == 32


def test_a_function_gives_the_same_losses(tmp_path):
    own, model = saved(tmp_path, eos="</s>"), made("GPT2")
    tokenizer = load_pretrained(tmp_path).tokenizer
    config = EvalConfig(context_bytes=100_000, min_context_bytes=0)
    options = {"config": config, "context_tokens": context_tokens(model.config)}
    found = evaluate_texts(lambda ids: model(ids).logits.detach().numpy(), tokenizer, DOCUMENTS, **options)
    expected = plain_bits_per_byte(model, own, own.eos_token_id, everywhere=False)
    assert found.bits_per_byte == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UserError, match="context_tokens"):
        evaluate_texts(lambda ids: model(ids).logits, tokenizer, DOCUMENTS)
    with pytest.raises(UserError, match="3 entries for"):
        evaluate_texts(lambda ids: model(ids).logits, tokenizer, DOCUMENTS, sources=["a", "b", "c"], **options)


def test_logits_of_16_bit_weights_are_in_fp32(tmp_path, monkeypatch):
    monkeypatch.setattr("lm.hf.scoring._CONVERTED", 10_000)  # several parts
    saved(tmp_path, eos="</s>")
    tokenizer = load_pretrained(tmp_path).tokenizer
    half = made("Llama", torch.bfloat16)
    start = StartToken("</s>", tokenizer.end_id, "")
    ids = torch.arange(40)[None] % tokenizer.vocab_size
    hidden = half.base_model(ids)[0][0].float()
    weight = half.lm_head.weight.detach()[: tokenizer.vocab_size].float()
    expected = torch.nn.functional.cross_entropy(hidden @ weight.T, ids[0], reduction="none")
    found = PretrainedModel(half, tokenizer, start, None).nats(ids, torch.arange(40), ids[0])
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("tokens", "given", "expected"),
    [
        ({"eos": "<|endoftext|>"}, None, ("<|endoftext|>", False)),  # GPT-2, Qwen 3
        ({"bos": "<bos>", "eos": "<eos>", "adds_bos": True}, None, ("<bos>", True)),  # Llama 3, Gemma
        ({"bos": "<bos>", "eos": "<eos>"}, None, ("<eos>", False)),
        ({"bos": "<bos>"}, None, ("<bos>", False)),
        ({"bos": "<bos>", "eos": "<eos>", "adds_bos": True}, "<eos>", ("<eos>", False)),
        ({}, None, None),
        ({"eos": "<eos>"}, "<no>", None),
    ],
)
def test_the_token_before_a_document(tokens, given, expected, tmp_path):
    saved(tmp_path, **tokens)
    tokenizer = load_pretrained(tmp_path).tokenizer
    if expected is None:
        with pytest.raises(UserError, match="--start"):
            start_of(tmp_path, tokenizer, given)
        return
    start = start_of(tmp_path, tokenizer, given)
    assert (start.token, start.everywhere) == expected
    assert start.id == tokenizer.special_tokens[start.token]


def test_models_without_an_end_of_text_report_none(tmp_path):
    saved(tmp_path, bos="<bos>")
    tokenizer = load_pretrained(tmp_path, end_of_text="<bos>").tokenizer
    write_shards(tmp_path / "shards", tokenizer, [Batch.from_texts(DOCUMENTS)])
    shards = Shards.open(tmp_path / "shards", tokenizer)
    scorable = PretrainedModel(made("GPT2"), tokenizer, StartToken("<bos>", tokenizer.end_id, ""), None)
    config = EvalConfig(context_bytes=200, min_context_bytes=50)
    found = evaluate(scorable, shards, tokenizer.token_byte_lengths(), config)
    assert np.isnan(found.eos_nats).all()
    assert found.summary()["eos_nats_per_document"] is None
    assert int(found.token_counts.sum()) == int(found.document_tokens.sum())


def test_damaged_weights_and_missing_rows_are_named(tmp_path):
    saved(tmp_path, eos="</s>")
    tokenizer = load_pretrained(tmp_path).tokenizer
    start, model = StartToken("</s>", tokenizer.end_id, ""), made("GPT2")
    with torch.no_grad():
        model.lm_head.weight[5] = math.nan
    with pytest.raises(UserError, match="not finite"):
        evaluate_texts(PretrainedModel(model, tokenizer, start, None), tokenizer, DOCUMENTS)
    small = transformers.GPT2LMHeadModel(transformers.GPT2Config(**KINDS["GPT2"] | {"vocab_size": 100}))
    with pytest.raises(UserError, match="100 rows"):
        PretrainedModel(small, tokenizer, start, None)


def test_a_model_that_sees_later_tokens_is_rejected(tmp_path):
    saved(tmp_path, eos="</s>")
    tokenizer = load_pretrained(tmp_path).tokenizer
    scorable = PretrainedModel(made("Bert"), tokenizer, StartToken("</s>", tokenizer.end_id, ""), None)
    with pytest.raises(UserError, match="not causal"):
        evaluate_texts(scorable, tokenizer, DOCUMENTS)


def test_the_model_of_an_adapter_is_found_before_anything_is_scored(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"has no config\.json"):
        pretrained.base_of(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert pretrained.base_of(tmp_path) is None
    (tmp_path / "config.json").unlink()
    about = tmp_path / pretrained.ADAPTER
    about.write_text("{}")
    with pytest.raises(UserError, match=r"adapter_model.safetensors; save"):
        pretrained.base_of(tmp_path)
    (tmp_path / "adapter_model.safetensors").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install peft"):
        pretrained.load(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(UserError, match="names no base_model_name_or_path"):
        pretrained.base_of(tmp_path)
    about.write_text(json.dumps({"base_model_name_or_path": "/not/here"}))
    with pytest.raises(UserError, match=r"/not/here.*correct its path"):
        pretrained.base_of(tmp_path)
    about.write_text(json.dumps({"base_model_name_or_path": str(tmp_path)}))
    with pytest.raises(UserError, match="is an adapter itself"):
        pretrained.base_of(tmp_path)
    (base := tmp_path / "base").mkdir()
    about.write_text(json.dumps({"base_model_name_or_path": str(base)}))
    with pytest.raises(UserError, match=r"base has no config\.json"):
        pretrained.base_of(tmp_path)
    (base / "config.json").write_text("{}")
    assert pretrained.base_of(tmp_path) == (base, None)
    asked = []
    monkeypatch.setattr(pretrained, "snapshot", lambda *words: asked.append(words) or (base, "c0ffee"))
    about.write_text(json.dumps({"base_model_name_or_path": "org/model", "revision": "v1"}))
    assert pretrained.base_of(tmp_path) == (base, "c0ffee")
    assert asked == [("org/model", "v1", None, pretrained.FILES)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.safetensors.index.json": '{"weight_map": {"a": "pytorch_model.bin"}}'}, "the weights pytorch"),
        (
            {"model.safetensors.index.json": '{"weight_map": {"a": "../x.safetensors"}}'},
            "not a plain path",
        ),
        ({"model.safetensors.index.json": '{"weight_map": null}'}, "not a plain path"),
        ({"config.json": '{"model_type": "gpt2", "transformers_weights": "w.bin"}'}, "the weights w.bin"),
        ({"config.json": '{"model_type": "gpt2", "transformers_weights": "sub/w.safetensors"}'}, "in the same folder"),
        ({"config.json": '{"model_type": '}, "config.json is not JSON"),
        ({"config.json": "[]"}, "config.json is not a JSON object"),
    ],
)
def test_only_safetensors_in_the_folder_are_opened(changes, said, tmp_path):
    (tmp_path / "config.json").write_text('{"time_step_limit": [0.0, Infinity]}')
    assert pretrained.base_of(tmp_path) is None
    for name, text in changes.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=said):
        pretrained.base_of(tmp_path)


def test_weights_that_the_configuration_does_not_explain(tmp_path):
    made("GPT2").save_pretrained(tmp_path)
    (tmp_path / "other.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    pretrained.load(tmp_path)  # what the model does not use may be anything
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "more.weight": torch.zeros(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match=r"does not use more\.weight"):
        pretrained.load(tmp_path)
    whole = {name: weight.to(torch.int8) for name, weight in tensors.items()}
    save_file(whole, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="the type I8"):
        pretrained.load(tmp_path)

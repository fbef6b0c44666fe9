"""Exported folders give the same results in `transformers`, or are not written."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from experiments.cli import main
from lm.hf import export, export_check
from lm.hf.export import export_hf
from lm.model.weights import save_model, save_tensors
from superbpe import train_superbpe
from tests import texts
from tests.lm import tiny
from tests.lm.tiny import exportable as build
from tests.properties import quick_first
from tests.superbpe.oracle import batches
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe
from tokenizer.errors import UserError
from tokenizer.formats.hf import TEMPLATE
from tokenizer.special import Preparation

transformers = pytest.importorskip("transformers")
from tokenizer.hf import SuperBPETokenizerFast  # noqa: E402

DOCUMENTS = texts.english()[1][:3]
FILES = ["config.json", "generation_config.json", "model.safetensors", "superbpe.json", "tokenizer_config.json"]


@pytest.fixture(scope="module")
def tokenizers():
    """Plain BPE, and superwords of one pass and of two."""
    documents = texts.sample(40_000)
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2")
    bpe = train_bpe(counts, 350, special_tokens=["<|endoftext|>"])
    grown = {
        name: train_superbpe(bpe, batches(documents), vocab_size=size, rules=rules, transition=transition)
        for name, size, rules, transition in (("one", 420, "uw-2025", 300), ("two", 355, "runs", 345))
    }
    assert [grown[name].mode for name in ("one", "two")] == ["one-pass", "two-pass"]
    return {"bpe": bpe, **grown}


@pytest.fixture
def spoilers(monkeypatch):
    """Functions that spoil an exported folder before it is verified."""
    added = []

    def spoiled(model, tokenizer, folder, *arguments):
        for spoil in added:
            spoil(folder)
        return export_check.validate(model, tokenizer, folder, *arguments)

    monkeypatch.setattr(export, "validate", spoiled)
    return added


def test_the_command(tokenizers, tmp_path, capsys):
    """From an artifact's name to a folder that `transformers` opens."""
    tokenizer = tokenizers["one"]
    model = build(tokenizer)
    save_model(model, tmp_path / "lm-0")
    tokenizer.save(tmp_path / f"tokenizer-{tokenizer.name}")
    (tmp_path / "text.txt").write_text("<|doc|>".join(DOCUMENTS), encoding="utf-8", newline="")
    scored = ["--text", str(tmp_path / "text.txt"), "--separator", "<|doc|>"]
    assert main.run(["export", str(tmp_path / "lm-0"), str(tmp_path / "out"), "--to", "hf", *scored]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "LlamaForCausalLM, 420 ids (28 padding rows left out), context 40 tokens" in printed
    assert "warning" not in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("lm-0", "out", "text.txt"),
        f"tokenizer-{tokenizer.name}",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*FILES, "tokenizer.json"])

    weights, ours = load_file(tmp_path / "out" / "model.safetensors"), model.state_dict()
    assert weights.keys() == ours.keys()
    for name, tensor in weights.items():
        assert torch.equal(
            tensor, ours[name][:420] if name.endswith(("embed_tokens.weight", "lm_head.weight")) else ours[name]
        )
    # Generation never leaves the vocabulary, stops at <|endoftext|>, and goes with the same tokens as here.
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert other.config.max_position_embeddings == 40
    ids = torch.tensor([[tokenizer.special_tokens["<|endoftext|>"], *tokenizer.encode_ordinary("in the beginning")]])
    theirs = other.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_length=30)
    for _ in range(theirs.shape[1] - ids.shape[1]):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(ids, theirs)


@pytest.mark.parametrize(("qk_norm", "tied"), [(True, False), (True, True), (False, True)])
def test_architectures_and_tied_embeddings(tokenizers, tmp_path, qk_norm, tied):
    model = build(tokenizers["bpe"], qk_norm=qk_norm, tie_embeddings=tied)
    made = export_hf(model, tokenizers["bpe"], tmp_path / "out")
    assert made.architecture == ("Qwen3ForCausalLM" if qk_norm else "LlamaForCausalLM")
    assert (made.vocab_size, made.padding_rows) == (350, 34)
    assert made.difference < 1e-4
    assert made.n_logits > 30 * 350
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["vocab_size"], config["eos_token_id"], config["bos_token_id"]) == (350, 349, 349)
    assert config["tie_word_embeddings"] == tied
    assert ("lm_head.weight" in load_file(tmp_path / "out" / "model.safetensors")) != tied


def test_a_tokenizer_without_merges(tmp_path):
    tokenizer = tiny.bytes_only()
    made = export_hf(build(tokenizer), tokenizer, tmp_path / "out", ["déjà vu 🙂"])
    assert (made.vocab_size, made.tokenizer_note) == (257, "")


@pytest.mark.parametrize("name", ["one", "two"])
def test_exported_tokenizers_begin_documents(tokenizers, tmp_path, name):
    """By default and with `add_bos_token=True`, exactly one <|endoftext|> comes first, whatever was imported."""
    tokenizer = tokenizers[name]
    imported = {"post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}}
    export_hf(build(tokenizer), Tokenizer(tokenizer.definition, {TEMPLATE: imported}), tmp_path / "out")
    text, end = "in the beginning", tokenizer.special_tokens["<|endoftext|>"]
    ids = tokenizer.encode_ordinary(text)
    stock = [transformers.PreTrainedTokenizerFast] if name == "one" else []
    for opens in (SuperBPETokenizerFast, *stock):
        for options, added in (({}, [end]), ({"add_bos_token": True}, [end]), ({"add_bos_token": False}, [])):
            opened = opens.from_pretrained(tmp_path / "out", **options)
            assert opened(text).input_ids == opened([text], add_special_tokens=True).input_ids[0] == [*added, *ids]
            assert opened(text, add_special_tokens=False).input_ids == ids
    assert Tokenizer.load(tmp_path / "out").sha256 == tokenizer.sha256


@pytest.mark.parametrize("name", ["bpe", "one"])
def test_what_servers_need_of_the_tokenizer(tokenizers, tmp_path, name):
    """Everything that vLLM reads when it opens a tokenizer and decodes a stream of tokens."""
    tokenizer = tokenizers[name]
    export_hf(build(tokenizer), tokenizer, tmp_path / "out")
    opened, end = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), tokenizer.vocab_size - 1
    assert opened.is_fast
    assert opened.bos_token_id == opened.eos_token_id == opened.pad_token_id == end
    assert (opened.all_special_tokens, opened.all_special_ids) == (["<|endoftext|>"], [end])
    assert opened.model_max_length == 40
    assert opened.chat_template is None
    assert len(opened) == tokenizer.vocab_size == max(opened.get_vocab().values()) + 1
    assert opened.convert_ids_to_tokens([end]) == ["<|endoftext|>"]
    text = "naïve café — 東京 🙂 of the of the"
    ids = tokenizer.encode_ordinary(text)
    tokens = opened.convert_ids_to_tokens(ids)
    shown, start = "", 0
    for stop in range(1, len(tokens) + 1):  # a piece is shown once its characters are complete
        before, after = (opened.convert_tokens_to_string(tokens[start:at]) for at in (max(start, stop - 1), stop))
        if not after.endswith("\ufffd"):
            shown, start = shown + after, stop
        assert len(after) >= len(before.rstrip("\ufffd"))
    assert shown == text
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert generation.bos_token_id == generation.eos_token_id == generation.pad_token_id == end
    batch = opened(["of the", "of"], padding=True)
    n_padding = len(batch["input_ids"][0]) - 1 - len(tokenizer.encode_ordinary("of"))
    assert batch["input_ids"][1][-n_padding:] == [end] * n_padding
    assert batch["attention_mask"][1].count(0) == n_padding > 0


def test_a_tokenizer_that_normalizes(tokenizers, tmp_path):
    definition = dataclasses.replace(tokenizers["bpe"].definition, preparation=Preparation(forms=("NFC",)))
    tokenizer = Tokenizer(definition)
    assert export_hf(build(tokenizer), tokenizer, tmp_path / "out", ["e\u0301"]).tokenizer_note == ""


@pytest.mark.slow
def test_two_passes_open_with_our_class_alone(tokenizers, tmp_path):
    """No tokenizer.json can express them: AutoTokenizer fails loudly in a process that has not registered our class."""
    made = export_hf(build(tokenizers["two"]), tokenizers["two"], tmp_path / "out", DOCUMENTS)
    assert "two-pass" in made.tokenizer_note
    assert "tokenizer.hf.register()" in made.tokenizer_note
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    program = f"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained({str(tmp_path / 'out')!r})"
    opened = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert opened.returncode, opened.stdout


def _edit(name, change):
    def spoil(folder):
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return spoil


def _swap_rows(folder):
    tensors = load_file(folder / "model.safetensors")
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = torch.cat([head[1:2], head[:1], head[2:]])
    save_tensors(folder / "model.safetensors", tensors, {})


def _drop(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_tensors(folder / "model.safetensors", tensors, {})


SPOILERS = {
    "wrong base of the rotary frequencies": (
        _edit("config.json", lambda c: c["rope_parameters"].update(rope_theta=10_000.0)),
        "logits differ by",
    ),
    "head_dim": (
        _edit("config.json", lambda c: c.update(num_attention_heads=1, num_key_value_heads=1, head_dim=32)),
        "logits differ",
    ),
    "two rows of the head": (_swap_rows, "logits differ by"),
    "a missing weight": (_drop, "does not load all weights"),
    "another end": (_edit("config.json", lambda c: c.update(eos_token_id=5)), r"model_ends=\[349, 5\], not 349"),
    "another end of generation": (
        _edit("generation_config.json", lambda c: c.update(eos_token_id=5)),
        r"generation_ends=\[349, 5\]",
    ),
    "a merge": (_edit("tokenizer.json", lambda c: c["model"]["merges"].pop(0)), "the exported tokenizer gives"),
    "a pattern": (
        _edit("tokenizer.json", lambda c: c.update(pre_tokenizer=c["decoder"])),
        "the exported tokenizer gives",
    ),
    "a decoder": (_edit("tokenizer.json", lambda c: c.update(decoder=None)), "the exported tokenizer decodes to"),
    "another class": (
        _edit("tokenizer_config.json", lambda c: c.update(tokenizer_class="Qwen2Tokenizer")),
        "the exported tokenizer gives",
    ),
    "no tokenizer.json": (lambda folder: (folder / "tokenizer.json").unlink(), "AutoTokenizer cannot open"),
}


@pytest.mark.parametrize("what", quick_first(SPOILERS, 5))
def test_an_export_that_fails_verification_is_not_written(tokenizers, tmp_path, spoilers, what):
    spoil, message = SPOILERS[what]
    spoilers.append(spoil)
    with pytest.raises(UserError, match=message):
        export_hf(build(tokenizers["bpe"]), tokenizers["bpe"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_reported_and_nothing_is_written(tokenizers, tmp_path, capsys, monkeypatch):
    bpe, other = tokenizers["bpe"], tokenizers["one"]
    save_model(build(bpe), tmp_path / "alone" / "lm-0")
    save_model(build(bpe), tmp_path / "lm-0")
    bpe.save(tmp_path / f"tokenizer-{bpe.name}")
    other.save(tmp_path / "other")
    present = sorted(path.name for path in tmp_path.iterdir())
    model, out = tmp_path / "lm-0", tmp_path / "out"
    for arguments, message in (
        ([tmp_path / "alone" / "lm-0", out], "tokenizer is neither in"),
        ([model, out, "--tokenizer", tmp_path / "other"], f"but the model was trained with {bpe.name}"),
        ([model, tmp_path / "other"], "already exists; choose a new name"),
        ([model, out, "--text", tmp_path / "none.txt"], "none.txt"),
    ):
        assert main.run(["export", *map(str, arguments), "--to", "hf"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert sorted(path.name for path in tmp_path.iterdir()) == present
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="transformers is not installed"):
        export_hf(build(bpe), bpe, out)
    with pytest.raises(UserError, match="trained with tokenizer"):
        export_hf(build(bpe), other, out)


def test_probes_hold_every_token(tokenizers):
    """Each token of text occurs in some probe's ids; bytes that UTF-8 never uses cannot."""
    tokenizer = tokenizers["one"]
    ids = np.unique(
        np.concatenate([tokenizer.encode(t, allowed_special="all") for t in export_check.probes(tokenizer)])
    )
    missing = set(range(tokenizer.vocab_size)) - set(ids.tolist())
    assert {tokenizer.vocab[i][0] for i in missing} >= {0xC0, 0xFF}
    assert len(missing) < 25


def test_settings_of_the_tokenizer_are_kept(tokenizers, tmp_path):
    tokenizers["one"].save(tmp_path / "source")
    (tmp_path / "source" / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "source" / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    changes = {"padding_side": "left", "bos_token": None, "add_bos_token": False, "clean_up_tokenization_spaces": True}
    config = tmp_path / "source" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    tokenizer = Tokenizer.load(tmp_path / "source")
    exported = export_hf(build(tokenizer), tokenizer, tmp_path / "out")
    assert exported.left == ("generation_config.json of the tokenizer, since the model has its own",)
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (opened.chat_template, opened.padding_side, opened.model_max_length) == ("{{ messages }}", "left", 40)

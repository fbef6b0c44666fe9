"""A GGUF file has the weights and the tokenizer as llama.cpp reads them, or is not written."""

import json
import subprocess
import sys

import numpy as np
import pytest

from experiments.cli import main
from lm.hf.export import cut_tensors
from lm.hf.export_check import probes
from lm.hf.gguf import export_gguf
from lm.model.weights import save_model
from superbpe import train_superbpe
from tests import texts
from tests.lm import tiny
from tests.lm.tiny import exportable as build
from tests.properties import quick_first
from tests.superbpe.oracle import batches
from tokenizer import Batch, count_pretokens, train_bpe
from tokenizer.errors import UserError
from tokenizer.formats.llama_cpp import pre_type

gguf = pytest.importorskip("gguf")

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizers():
    """Plain BPE and superwords that llama.cpp knows, and superwords that it does not."""
    documents = texts.sample(40_000)
    made = {}
    for name in ("gpt2", "llama3", "digits1"):
        made[name] = train_bpe(count_pretokens([Batch.from_texts(documents)], name), 350, special_tokens=[END])
    for name, pattern in (("uw-paper", "uw-paper"), ("uw-2025", "superbpe"), ("phrases", "phrases")):
        bpe = train_bpe(count_pretokens([Batch.from_texts(documents)], pattern), 350, special_tokens=[END])
        made[name] = train_superbpe(bpe, batches(documents), vocab_size=420, rules=name, transition=300)
    return made


def read(path):
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


@pytest.mark.parametrize(
    ("name", "pre"),
    [
        *(("gpt2", "trillion"), ("llama3", "smaug-bpe"), ("digits1", "qwen2"), ("uw-paper", "superbpe")),
        ("phrases", "exaone-moe"),
    ],
)
def test_tokenizers_are_declared(tokenizers, tmp_path, name, pre):
    tokenizer = tokenizers[name]
    export_gguf(build(tokenizer), tokenizer, tmp_path / "m.gguf")
    fields, _ = read(tmp_path / "m.gguf")
    assert (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) == ("gpt2", pre)
    size, end = tokenizer.vocab_size, tokenizer.special_tokens[END]
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    assert len(tokens) == len(kinds) == size == len(set(tokens))
    assert (tokens[end], kinds[end]) == (END, gguf.TokenType.CONTROL)
    assert {kind for i, kind in enumerate(kinds) if i != end} == {gguf.TokenType.NORMAL}
    ids = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(map(ids.get, merge.split(" "))) for merge in fields["tokenizer.ggml.merges"]]
    assert merges == [tuple(row) for row in tokenizer.merge_ids[:, :2].tolist()]
    assert {fields[f"tokenizer.ggml.{kind}_token_id"] for kind in ("bos", "eos", "padding")} == {end}
    assert fields["tokenizer.ggml.add_bos_token"]
    assert not fields["tokenizer.ggml.add_space_prefix"]


@pytest.mark.parametrize(("qk_norm", "tied"), [(False, False), (False, True), (True, False)])
def test_weights_and_settings(tokenizers, tmp_path, qk_norm, tied):
    tokenizer = tokenizers["gpt2"]
    model = build(tokenizer, qk_norm=qk_norm, tie_embeddings=tied)
    made = export_gguf(model, tokenizer, tmp_path / "m.gguf")
    fields, tensors = read(tmp_path / "m.gguf")
    arch = "qwen3" if qk_norm else "llama"
    assert made.architecture == fields["general.architecture"] == arch
    assert fields[f"{arch}.context_length"] == 40
    assert fields[f"{arch}.rope.freq_base"] == 500.0
    assert fields[f"{arch}.attention.head_count"] == model.config.n_heads
    assert ("output.weight" in tensors) != tied
    ours = cut_tensors(model)
    assert len(tensors) == len(ours) == made.tensors
    assert np.array_equal(tensors["token_embd.weight"], ours["model.embed_tokens.weight"].numpy())
    assert np.array_equal(tensors["blk.1.ffn_down.weight"], ours["model.layers.1.mlp.down_proj.weight"].numpy())
    q = ours["model.layers.0.self_attn.q_proj.weight"].numpy()
    order = np.arange(len(q))
    if not qk_norm:  # the two halves of each head alternate
        order = np.concatenate([head + np.arange(16).reshape(2, 8).T.reshape(-1) for head in range(0, len(q), 16)])
    assert np.array_equal(tensors["blk.0.attn_q.weight"], q[order])


def test_tokenizers_that_llama_cpp_lacks_are_rejected(tokenizers, tmp_path):
    for tokenizer, message in (
        (tokenizers["uw-2025"], "no pretokenizer type for 'uw-2025-fence'.*rules phrases, or uw-paper"),
        (tiny.bytes_only(), "no pretokenizer type for 'none'"),
        (
            tiny.merged(  # two Arabic digits
                [(b"\xd9", b"\xa0"), (b"\xd9\xa0", b"\xd9\xa0")], "uw-paper", fence="uw-paper-fence", n_phase1=1
            ),
            r"groups ASCII digits only, so '[٠-٩ ]+' would get other ids; deploy",
        ),
        (
            tiny.merged([(b"a", b"b"), (b"ab", b"c")], fence="none", n_phase1=1, mode="two-pass"),
            "two-pass",
        ),
    ):
        with pytest.raises(UserError, match=message):
            export_gguf(build(tokenizer), tokenizer, tmp_path / "m.gguf")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_numbers_of_two_scripts_are_rejected_unless_accepted(tmp_path):
    """With `12` merged, "1234٣" is 12 34٣ here and 1 234 ٣ in llama.cpp."""
    tokenizer = tiny.merged([(b"1", b"2")], "uw-paper", fence="uw-paper-fence", n_phase1=1)
    with pytest.raises(UserError, match=r"groups ASCII digits only.* accept that with mixed_digits"):
        export_gguf(build(tokenizer), tokenizer, tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []
    assert export_gguf(build(tokenizer), tokenizer, tmp_path / "m.gguf", mixed_digits=True).pre == "superbpe"
    apart = tiny.merged([(b"a", b"b")], "uw-paper", fence="uw-paper-fence", n_phase1=1)  # no digits are merged
    assert export_gguf(build(apart), apart, tmp_path / "apart.gguf").pre == "superbpe"


@pytest.mark.parametrize("name", quick_first(["phrases", "uw-paper"]))
def test_the_command(tokenizers, tmp_path, capsys, name):
    tokenizer = tokenizers[name]
    save_model(build(tokenizer), tmp_path / "lm-0")
    tokenizer.save(tmp_path / "tokenizer")
    arguments = [str(tmp_path / "lm-0"), str(tmp_path / "m.gguf"), "--to", "gguf"]
    arguments += ["--tokenizer", str(tmp_path / "tokenizer")]
    assert main.run(["export", *arguments]) == 0
    said = capsys.readouterr().out
    assert f"architecture llama, 21 tensors (fp32), pretokenizer {pre_type(tokenizer)}" in said
    assert ("crashes on tens of thousands of characters" in " ".join(said.split())) == (name == "phrases")
    assert main.run(["export", *arguments]) == 2
    assert "m.gguf already exists" in capsys.readouterr().err


_TOKENIZE = """
import json, sys, urllib.request
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.warmup = sys.argv[1], 64, False
server, found = xllamacpp.Server(params), []
for text in json.load(sys.stdin):
    body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    found.append(json.load(urllib.request.urlopen(request))["tokens"])
json.dump(found, open(sys.argv[2], "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama3", "digits1", "uw-paper", "phrases"])
def test_llama_cpp_gives_the_same_ids(tokenizers, tmp_path, name):
    """In a process of its own, because long text can crash llama.cpp."""
    pytest.importorskip("xllamacpp")
    tokenizer = tokenizers[name]
    export_gguf(build(tokenizer), tokenizer, tmp_path / "m.gguf")
    given = [text for text in [*texts.english()[1][:20], *texts.various(), *probes(tokenizer)] if "\0" not in text]
    command = [sys.executable, "-c", _TOKENIZE, tmp_path / "m.gguf", tmp_path / "ids.json"]
    subprocess.run(command, input=json.dumps(given), text=True, check=True, capture_output=True, timeout=300)
    found = json.loads((tmp_path / "ids.json").read_text())
    ours = [tokenizer.encode_ordinary(text) for text in given]
    assert [text for text, one, other in zip(given, found, ours, strict=True) if one != other] == []

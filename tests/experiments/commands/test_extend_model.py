"""A tiny model gets rows for superwords: old rows to the bit, new ones the mean of their tokens' rows."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.cli import main
from superbpe import train_superbpe
from tests import texts
from tests.superbpe.oracle import batches
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe

transformers = pytest.importorskip("transformers")

DOCUMENTS = texts.english()[1][:3]


@pytest.fixture(scope="module")
def tokenizers():
    documents = texts.sample(40_000)
    old = train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2"), 350)
    return old, train_superbpe(old, batches(documents), vocab_size=420, rules="uw-2025", keep_ids=True)


def _model(folder, old, *, tied, rows=350, dtype=torch.float32):
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"max_position_embeddings": 64, "bos_token_id": 349, "eos_token_id": 349}
    config = transformers.LlamaConfig(vocab_size=rows, tie_word_embeddings=tied, **size, **ends)
    transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    old.save(folder)


def _rows(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    embedding, head = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    return embedding, head, embedding.data_ptr() == head.data_ptr()


@pytest.mark.parametrize(
    ("tied", "rows", "dtype", "expected"),
    [
        (True, 350, torch.float32, 420),
        (False, 350, torch.bfloat16, 420),
        (False, 384, torch.float32, 512),
        (True, 448, torch.float32, 448),
    ],
)
def test_old_rows_stay_and_new_ones_are_means(tied, rows, dtype, expected, tokenizers, tmp_path):
    old, new = tokenizers
    _model(tmp_path / "model", old, tied=tied, rows=rows, dtype=dtype)
    new.save(tmp_path / "tokenizer")
    out = tmp_path / "out"
    assert main.run(["extend-model", str(tmp_path / "model"), str(tmp_path / "tokenizer"), str(out)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out", "tokenizer"]
    assert json.loads((out / "config.json").read_text())["vocab_size"] == expected
    assert Tokenizer.load(out).sha256 == new.sha256
    was, now = _rows(tmp_path / "model"), _rows(out)
    assert was[2] == now[2] == tied
    for before, after in zip(was[:2], now[:2], strict=True):
        assert after.shape == (expected, 32)
        assert after.dtype == dtype
        assert torch.equal(before[:350], after[:350])
        for token in range(350, 420):
            # A derivation is what the old merges and then the new ones make of the bytes.
            ids = old_ids(old, new, token)
            assert b"".join(old.vocab[i] for i in ids) == new.vocab[token]
            assert torch.equal(after[token], before[ids].float().mean(dim=0).to(dtype))
        filler = before[:350].float().mean(dim=0).to(dtype)
        assert torch.equal(after[420:], filler.expand(expected - 420, -1))


def old_ids(old, new, token):
    """A token's derivation, followed from its end."""
    if token < old.vocab_size:
        return [token]
    left, right = new.merge_ids[new.merge_ids[:, 2] == token][0, :2].tolist()
    return [*old_ids(old, new, left), *old_ids(old, new, right)]


def test_mistakes_are_reported_and_nothing_is_written(tokenizers, tmp_path, capsys):
    old, new = tokenizers
    model, tokenizer, out = tmp_path / "model", tmp_path / "tokenizer", tmp_path / "out"
    _model(model, old, tied=True)
    new.save(tokenizer)
    train_superbpe(old, batches(DOCUMENTS), vocab_size=360, rules="none", transition=349).save(tmp_path / "moved")
    (tmp_path / "empty").mkdir()
    _model(tmp_path / "few", old, tied=True, rows=340)
    _model(tmp_path / "broken", old, tied=True)
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no tensors")
    _model(tmp_path / "partial", old, tied=False)
    weights = load_file(tmp_path / "partial" / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tmp_path / "partial" / "model.safetensors", metadata={"format": "pt"})
    present = sorted(path.name for path in tmp_path.iterdir())
    for arguments, message in (
        ([model, tmp_path / "moved", out], "does not keep the old ids: 349 is another token"),
        ([model, tokenizer, tokenizer], "already exists"),
        ([tmp_path / "empty", tokenizer, out, "--old-tokenizer", model], "has no config.json"),
        ([tmp_path / "broken", tokenizer, out], "is damaged"),
        ([tmp_path / "partial", tokenizer, out], "lm_head.weight is missing"),
        ([tmp_path / "few", tokenizer, out], "the model has 340 rows, but its tokenizer has 350 ids"),
        ([model, tokenizer, "/proc/out"], "/proc: cannot write there"),
    ):
        assert main.run(["extend-model", *map(str, arguments)]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert sorted(path.name for path in tmp_path.iterdir()) == present


def test_the_code_of_a_model_is_neither_run_nor_offered(tokenizers, tmp_path, mistake, monkeypatch):
    old, new = tokenizers
    _model(tmp_path / "model", old, tied=True)
    new.save(tmp_path / "tokenizer")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    classes = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": classes}))
    (tmp_path / "model" / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    mistake("extend-model", tmp_path / "model", tmp_path / "tokenizer", tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_settings_of_both_folders_are_kept(tokenizers, tmp_path, capsys):
    old, new = tokenizers
    model, tokenizer, out = tmp_path / "model", tmp_path / "tokenizer", tmp_path / "out"
    _model(model, old, tied=True)
    new.save(tokenizer)
    # `transformers` reads this file, but does not write it: only sampling has a temperature.
    generation = '{"eos_token_id": [349], "do_sample": false, "temperature": 0.5}'
    (model / "generation_config.json").write_text(generation)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoConfig": "code.Config"}}))
    (model / "code.py").write_text("raise SystemExit")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings |= {"chat_template": "{{ old }}", "model_max_length": 64, "padding_side": "left"}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    (tokenizer / "chat_template.jinja").write_text("{{ new }}")
    assert main.run(["extend-model", *map(str, (model, tokenizer, out))]) == 0
    assert "left: code.py, auto_map of config.json\n" in capsys.readouterr().out
    assert "auto_map" not in json.loads((out / "config.json").read_text())
    assert not (out / "code.py").exists()
    assert (out / "generation_config.json").read_text() == generation
    opened = transformers.AutoTokenizer.from_pretrained(out)
    assert (opened.chat_template, opened.model_max_length, opened.padding_side) == ("{{ new }}", 64, "left")

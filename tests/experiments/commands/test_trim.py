"""A tokenizer and a tiny model lose the tokens that a text does not need; what stays, stays to the bit."""

import json

import numpy as np
import pytest
import torch

from experiments.cli import main
from lm.hf.trimming import check_model, trim_model
from tests import texts
from tokenizer import Tokenizer, UserError, train_bpe
from tokenizer.trim import count_ids, trim

transformers = pytest.importorskip("transformers")

TEXTS = texts.sample(20_000)
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
ENDS = {"bos_token_id": 398, "eos_token_id": [398, 399], "pad_token_id": 399}
GPTJ = {"n_embd": 32, "n_layer": 1, "n_head": 2, "rotary_dim": 4}
PER_LAYER = {"vocab_size_per_layer_input": 400, "layer_types": ["full_attention"], "num_key_value_heads": 1}
PER_LAYER |= {"activation_sparsity_pattern": [0.0], "num_kv_shared_layers": 0}


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe(TEXTS, 400, special_tokens=["<|endoftext|>", "[|done|]"])


@pytest.fixture
def place(tokenizer, tmp_path):
    """A folder with a tokenizer and a text of which it needs a part."""
    tokenizer.save(tmp_path / "old")
    (tmp_path / "text.txt").write_text("\n".join(TEXTS)[:4000])
    return tmp_path


def _model(config, *, rows=400, dtype=torch.float32):
    torch.manual_seed(0)
    config.vocab_size = rows
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.normal_(0, 0.3)
    return model


@torch.no_grad()
def _logits(model, ids):
    return model(ids).logits


CONFIGS = {
    "untied": lambda: transformers.LlamaConfig(**SMALL, **ENDS),
    "tied": lambda: transformers.LlamaConfig(**SMALL, **ENDS, tie_word_embeddings=True),
    "bias": lambda: transformers.GPTJConfig(**GPTJ, **ENDS),
    "scaled": lambda: transformers.Gemma2Config(**SMALL, **ENDS, num_key_value_heads=1, head_dim=16),
}


@pytest.mark.parametrize("rows", [400, 448])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_the_tokens_that_stay_do_not_change(name, rows, tokenizer):
    model = _model(CONFIGS[name](), rows=rows)
    named = check_model(model, tokenizer)
    assert named == [398, 399]
    trimmed = trim(tokenizer, count_ids(tokenizer, TEXTS[:3]).counts, vocab_size=320, keep=named)
    old_ids = torch.from_numpy(trimmed.old_ids)
    ids = torch.randint(320, (2, 20))
    before = _logits(model, old_ids[ids])[..., old_ids]
    trim_model(model, trimmed.old_ids)
    assert torch.equal(_logits(model, ids), before)
    for about in (model.config, model.generation_config):
        assert (about.bos_token_id, about.eos_token_id, about.pad_token_id) == (318, [318, 319], 319)
    assert model.config.vocab_size == len(model.get_input_embeddings().weight) == 320


def test_other_tensors_of_the_vocabulary_are_rejected(tokenizer):
    model = _model(transformers.Gemma3nTextConfig(**SMALL, **ENDS, **PER_LAYER), rows=448)
    with pytest.raises(UserError, match=r"tokens_per_layer\.weight .*cannot be trimmed; trim the tokenizer alone"):
        check_model(model, tokenizer)
    model = _model(CONFIGS["tied"]())
    model.register_buffer("seen", torch.zeros(400))  # not one of the class, so its meaning is unknown
    with pytest.raises(UserError, match="seen of the model depends on the size"):
        check_model(model, tokenizer)
    model = _model(CONFIGS["tied"]())
    model.generation_config.eos_token_id = [398, 400]
    with pytest.raises(UserError, match=r"eos_token_id .*400.*; correct"):
        check_model(model, tokenizer)


def test_the_command_trims_a_tokenizer(place, tokenizer, capsys):
    words = [str(place / "old"), str(place / "text.txt"), "--to"]
    assert main.run(["trim", *words, str(place / "new")]) == 0
    printed = capsys.readouterr().out
    new = Tokenizer.load(place / "new")
    text = (place / "text.txt").read_text()
    counted = count_ids(tokenizer, [text])
    expected = trim(tokenizer, counted.counts)
    assert new == expected.tokenizer
    ids = np.loadtxt(place / "new" / "ids.csv", delimiter=",", skiprows=1, dtype=int)
    assert (place / "new" / "ids.csv").read_text().startswith("old,new\n0,0\n1,1\n")
    np.testing.assert_array_equal(ids, np.column_stack([expected.old_ids, np.arange(new.vocab_size)]))
    n_tokens = f"{int(counted.counts.sum()):,}"
    rows = [line.split() for line in printed.splitlines()]
    share = f"{100 * (1 - new.vocab_size / 400):.2f}"
    assert [
        "ids",
        "of",
        "the",
        "vocabulary",
        "400",
        f"{new.vocab_size}",
        f"−{400 - new.vocab_size}",
        f"−{share}",
        "%",
    ] in rows
    assert ["tokens", "of", "the", "text", n_tokens, n_tokens, "0", "0.00", "%"] in rows
    assert "next:  superbpe inspect" in printed
    assert main.run(["trim", *words, str(place / "fewer"), "--vocab-size", "300", "--threads", "1"]) == 0
    fewer = Tokenizer.load(place / "fewer")
    assert fewer == trim(tokenizer, counted.counts, vocab_size=300).tokenizer
    paid = fewer.count_tokens(text) - int(counted.counts.sum())
    assert paid > 0
    assert f" +{paid} " in capsys.readouterr().out
    assert main.run(["trim", *words, str(place / "rare"), "--least-count", "20"]) == 0
    assert Tokenizer.load(place / "rare") == trim(tokenizer, counted.counts, least_count=20).tokenizer


@pytest.mark.parametrize("tied", [True, False])
def test_the_command_trims_a_model_with_its_tokenizer(tied, place, tokenizer, capsys):
    folder, out = place / "model", place / "out"
    model = _model(CONFIGS["tied" if tied else "untied"](), rows=448, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    generation = {"eos_token_id": [399], "temperature": 0.5}  # `transformers` reads it, but does not write it
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "chat_template.jinja").write_text("{{ mine }}")
    (folder / "code.py").write_text("raise SystemExit")
    words = ["trim", folder, place / "text.txt", "--vocab-size", 310, "--model", folder, "--to", out]
    assert main.run([*map(str, words)]) == 0
    printed = capsys.readouterr().out
    assert "\nleft: code.py\n" in printed
    n_removed = 138 * 32 * (1 if tied else 2)
    assert f"−{n_removed:,} " in printed  # parameters
    assert f"−{2 * n_removed:,} " in printed  # bytes of bfloat16
    assert json.loads((out / "generation_config.json").read_text()) == {"eos_token_id": [309], "temperature": 0.5}
    assert (out / "chat_template.jinja").read_text() == "{{ mine }}"
    config = json.loads((out / "config.json").read_text())
    assert [config[key] for key in ("vocab_size", "eos_token_id", "pad_token_id")] == [310, [308, 309], 309]
    new = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    old_ids = np.loadtxt(out / "ids.csv", delimiter=",", skiprows=1, dtype=int)[:, 0]
    for tensor in ("get_input_embeddings", "get_output_embeddings"):
        before, after = (getattr(each, tensor)().weight for each in (model, new))
        assert after.dtype == torch.bfloat16
        assert torch.equal(before[old_ids], after)
    text = texts.english()[1][0][:300]
    opened = transformers.AutoTokenizer.from_pretrained(out)
    assert opened(text)["input_ids"] == Tokenizer.load(out).encode_ordinary(text)
    assert opened.eos_token_id == 308


def test_mistakes_are_reported_and_nothing_is_written(place, tokenizer, mistake):
    old, text, to = place / "old", place / "text.txt", place / "new"
    _model(transformers.LlamaConfig(**SMALL), rows=390).save_pretrained(place / "few")
    _model(CONFIGS["tied"]()).save_pretrained(place / "other")
    train_bpe(["another text"] * 3, 262, special_tokens=["<|endoftext|>"]).save(place / "other")
    (place / "empty").mkdir()
    (place / "empty.txt").touch()
    present = sorted(path.name for path in place.iterdir())
    for words, message in (
        (["--vocab-size", 300, "--least-count", 2], "--vocab-size and --least-count exclude each other"),
        (["--vocab-size", 257], "--vocab-size 257 must be from"),
        (["--vocab-size", 401], "to 400, the tokenizer's own size"),
        (["--model", place / "empty"], "has no config.json"),
        (["--model", place / "few"], "the model has 390 rows, but its tokenizer has 400 ids"),
        (["--model", place / "other"], "has another tokenizer: its token 256 is"),
        (["--pattern", "gpt2"], "takes no pattern"),
    ):
        assert message in mistake("trim", old, text, "--to", to, *words)
        assert sorted(path.name for path in place.iterdir()) == present
    assert "empty.txt" in mistake("trim", old, place / "empty.txt", "--to", to)
    assert f"--to {old} exists" in mistake("trim", old, text, "--to", old)

"""Our folders opened with `transformers`."""

import json

import numpy as np
import pytest

from tests import texts

transformers = pytest.importorskip("transformers")

# What a model folder says beside the tokenizer; AutoTokenizer reads it, and may guess a class from it.
MODELS = {
    "no model": None,
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
}


def write_model(folder, model):
    if MODELS[model] is not None:
        (folder / "config.json").write_text(json.dumps(MODELS[model] | {"vocab_size": 1200}))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["gpt2", "llama3", "superwords", "spans_superwords"])
def test_one_pass_folders_open_with_the_same_ids(name, model, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    write_model(tmp_path, model)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.is_fast
    held_out = [*texts.english()[1], *texts.SCRIPTS.values(), *texts.various()]
    ids, offsets = ours.encode_batch(held_out)
    for i, found in enumerate(theirs(held_out)["input_ids"]):
        np.testing.assert_array_equal(ids[offsets[i] : offsets[i + 1]], found, err_msg=repr(held_out[i][:80]))
    for text in texts.various():
        assert theirs.decode(ours.encode_ordinary(text)) == text
    assert (theirs.bos_token_id, theirs.eos_token_id) == (1199, 1199)
    assert len(theirs) == ours.vocab_size
    assert theirs("a<|endoftext|>b")["input_ids"] == ours.encode("a<|endoftext|>b", allowed_special="all")


@pytest.mark.parametrize("name", ["superwords", "gpt2"])
def test_a_folder_saved_by_transformers_still_gives_the_same_ids(name, trained, tmp_path):
    trained[name].save(tmp_path / "ours")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in [*texts.various(), *texts.english()[1][:10]]:
        assert again(text)["input_ids"] == trained[name].encode_ordinary(text)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["two_pass", "two_pass_unfenced"])
def test_two_pass_folders_fail_loudly(name, model, trained, tmp_path):
    trained[name].save(tmp_path)
    write_model(tmp_path, model)
    with pytest.raises(Exception, match=r"(?i)tokenizer") as error:
        transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(error.value, OSError | ValueError)
    with pytest.raises((OSError, ValueError)):
        transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)


def test_a_two_pass_folder_saved_over_a_one_pass_folder_fails_loudly(trained, tmp_path):
    trained["superwords"].save(tmp_path)
    trained["two_pass"].save(tmp_path)
    with pytest.raises((OSError, ValueError)):
        transformers.AutoTokenizer.from_pretrained(tmp_path)

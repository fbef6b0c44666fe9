"""tokenizer.json files whose pre-tokenizer cuts in several steps, beside HF `tokenizers`."""

import json

import pytest

from tests import texts
from tokenizer import Tokenizer, formats
from tokenizer.formats import hf_json

tokenizers = pytest.importorskip("tokenizers")


def steps(name):
    """As in the released files of StarCoder, SuperBPE's paper (both phases) and DeepSeek."""
    pre = tokenizers.pre_tokenizers
    triples = r"(?=(\d{3})+(?!\d))"
    words = triples + r"| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    latin = (
        r"[!\"#%&'()*+,\-./:;<=>?@]?[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )

    def split(regex):
        return pre.Split(tokenizers.Regex(regex), "isolated")

    cuts = {
        "starcoder": [pre.Digits(individual_digits=True)],
        "uw-paper": [pre.Digits(individual_digits=False), split(words)],
        "uw-paper-fence": [pre.Digits(individual_digits=False), split(triples)],
        "deepseek": [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(latin)],
    }[name]
    return pre.Sequence([*cuts, pre.ByteLevel(add_prefix_space=False, use_regex=name == "starcoder")])


@pytest.mark.parametrize("name", ["starcoder", "uw-paper", "uw-paper-fence", "deepseek"])
def test_sequences_give_hf_ids_and_round_trip(name, trained):
    model = tokenizers.Tokenizer.from_str(json.dumps(hf_json(trained["none"])))
    model.pre_tokenizer = steps(name)
    content = json.loads(model.to_str())
    ours = Tokenizer(*formats.hf_import.parse(content))
    held_out = [*texts.various(), *texts.english()[1][:40], "1234567 a12345b 12 1,000,000", "日本語123テスト abc"]
    for text in held_out:
        assert ours.encode_ordinary(text) == model.encode(text).ids
    assert hf_json(ours) == content
    ours.provenance = {}
    again = tokenizers.Tokenizer.from_str(json.dumps(hf_json(ours)))
    for text in held_out:
        assert again.encode(text).ids == ours.encode_ordinary(text)

"""Loading without a Python object for every number: the same tokenizers, checks and hashes as the long way."""

import hashlib
import json

import numpy as np
import pytest

from tests.tokenizer.formats.other_formats import edit
from tokenizer import Tokenizer, UserError, formats, patterns


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_the_identity_is_the_hash_of_the_content(name, trained):
    tokenizer = trained[name]
    content = json.dumps(formats.content(tokenizer.definition), sort_keys=True)
    assert tokenizer.sha256 == hashlib.sha256(content.encode()).hexdigest()


def test_a_name_that_looks_like_the_merges_does_not_change_the_identity(trained):
    for string in ('"merges": []', "merges", '"merges": [[1, 2, 3]]'):
        tokenizer = Tokenizer.from_ranks(
            trained["gpt2"].ranks(), pattern=patterns.resolve("gpt2"), special_tokens=[string]
        )
        content = json.dumps(formats.content(tokenizer.definition), sort_keys=True)
        assert tokenizer.sha256 == hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.parametrize("name", ["gpt2", "two_pass"])
@pytest.mark.parametrize("indent", [None, 1])
def test_files_load_however_they_are_written(name, indent, trained, tmp_path):
    tokenizer = trained[name]
    tokenizer.save(tmp_path)
    file = tmp_path / formats.FILE
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")), indent=indent), encoding="utf-8")
    again = Tokenizer.load(tmp_path)
    assert again.sha256 == tokenizer.sha256
    assert again.vocab == tokenizer.vocab
    np.testing.assert_array_equal(again.merge_ids, tokenizer.merge_ids)
    assert again.merge_ids.dtype == np.uint32


@pytest.mark.parametrize(
    "provenance", [{"merges": [[1, 2, 3]]}, {'x"merges': [[1, 2, 3]]}, {"content": {"merges": [[1, 2, 3]]}}]
)
@pytest.mark.parametrize("merges", [[], [(0, 1)]])
def test_merges_are_those_of_the_content(provenance, merges, tmp_path):
    tokenizer = Tokenizer.from_ranks(merges, pattern=patterns.resolve("none"), provenance=provenance)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.sha256 == tokenizer.sha256
    assert again.provenance == provenance
    np.testing.assert_array_equal(again.merge_ids, tokenizer.merge_ids)


@pytest.mark.parametrize("indent", [None, 1])
def test_changed_merges_are_rejected(indent, trained, tmp_path):
    trained["gpt2"].save(tmp_path)

    def swap(about):
        merges = about["content"]["merges"]
        merges[3], merges[4] = merges[4], merges[3]

    edit(tmp_path / formats.FILE, swap)
    file = tmp_path / formats.FILE
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")), indent=indent), encoding="utf-8")
    with pytest.raises(UserError, match="was changed after it was written"):
        Tokenizer.load(tmp_path)

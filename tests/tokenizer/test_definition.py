"""The definition of a tokenizer."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from tokenizer import Definition, UserError

KINDS = ("gpt2", "superwords", "two_pass")


@pytest.mark.parametrize("name", KINDS)
def test_a_tokenizer_shows_all_of_its_definition(name, trained):
    tokenizer = trained[name]
    for field in fields(Definition):
        assert getattr(tokenizer, field.name) is getattr(tokenizer.definition, field.name)
    assert tokenizer.vocab_size == tokenizer.definition.vocab_size == len(tokenizer.vocab)


def test_replace_checks_and_keeps_the_original(trained):
    definition = trained["gpt2"].definition
    with pytest.raises(FrozenInstanceError):
        definition.mode = "two-pass"
    with pytest.raises(UserError, match="a tokenizer with two passes or phase-2 merges needs a fence"):
        replace(definition, mode="two-pass")
    renamed = replace(definition, special_tokens={"<s>": definition.vocab_size - 1})
    assert renamed.vocab[-1] == b"<s>"
    assert trained["gpt2"].vocab[-1] == b"<|endoftext|>"

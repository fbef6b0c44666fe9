"""Other software beside ours."""

import json

import numpy as np

from tokenizer import Tokenizer, patterns
from tokenizer.definition import ALPHABET
from tokenizer.formats.tiktoken import export


def plain(value):
    if getattr(value, "dtype", None) == np.dtype(object):  # an array of arrays
        return [(row.dtype, row.tolist()) for row in value]
    return value.tolist() if hasattr(value, "tolist") else value


def same(theirs, ours):
    """Everything that a batch says, encodings included."""
    assert list(theirs) == list(ours)
    for name in theirs:
        assert type(theirs[name]) is type(ours[name])
        assert getattr(theirs[name], "dtype", None) == getattr(ours[name], "dtype", None)
        assert plain(theirs[name]) == plain(ours[name]), name
    assert len(theirs.encodings) == len(ours.encodings)
    assert theirs.n_sequences == ours.n_sequences
    for their, our in zip(theirs.encodings, ours.encodings, strict=True):
        for part in ("ids", "tokens", "offsets", "word_ids", "type_ids", "sequence_ids", "attention_mask"):
            assert getattr(their, part) == getattr(our, part), part
        assert [part.ids for part in their.overflowing] == [part.ids for part in our.overflowing]


def joining(pattern):
    """A tokenizer that shows its cuts: neighbors of ASCII and other characters are one token where nothing cuts."""
    rank = {byte: i for i, byte in enumerate(ALPHABET)}
    ascii_ = b"aA1! "
    pairs = [(rank[left], rank[right]) for left in ascii_ for right in range(0xC2, 0xF5)]
    pairs += [(rank[left], rank[right]) for left in range(0x80, 0xC0) for right in ascii_]
    return Tokenizer.from_ranks(pairs, pattern=patterns.resolve(pattern))


def around(character):
    """A text whose cuts show the classes of a character, given a tokenizer of `joining`."""
    return f"a{character}a A{character}A 1{character}1 !{character}! {character} "


def as_tiktoken(tokenizer):
    """A tiktoken encoding: its ranks are ours, since a byte's id is its value and a merge's 256 + its rank."""
    import tiktoken

    specials = tokenizer.special_tokens
    return tiktoken.Encoding(
        "ours",
        pat_str=(tokenizer.fence or tokenizer.pattern).regex or r"[\s\S]+",
        mergeable_ranks={token: i for i, token in enumerate(tokenizer.vocab) if i not in specials.values()},
        special_tokens=specials,
    )


def to_encoding(tokenizer):
    """The tiktoken encoding that a tokenizer is exported to."""
    import tiktoken

    return tiktoken.Encoding("exported", **export(tokenizer))


def hf_trained(documents, regex, n_merges):
    """The tokenizer of HF's trainer: all bytes and this many merges."""
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(regex), "isolated")
    model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level]) if regex else byte_level
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + n_merges, min_frequency=0, show_progress=False, initial_alphabet=byte_level.alphabet()
    )
    model.train_from_iterator(documents, trainer)
    return model


def hf_model(tokenizer):
    """The model of HF's tokenizer, as JSON."""
    return json.loads(tokenizer.to_str())["model"]


def hf_split(text, pattern):
    """The pieces that HF cuts: every line of the pattern is a `Split` of its `Sequence`."""
    import tokenizers

    cuts = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(line), "isolated") for line in pattern.split("\n") if line]
    return [piece for piece, _ in tokenizers.pre_tokenizers.Sequence(cuts).pre_tokenize_str(text)]

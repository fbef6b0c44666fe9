"""Merges equal to those of HF `tokenizers`, in order, on generated corpora."""

from __future__ import annotations

import io
import json
import random
from typing import TYPE_CHECKING

import pytest

from tokenizer import Batch, count_pretokens, patterns, train_bpe
from tokenizer.definition import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

tokenizers = pytest.importorskip("tokenizers", reason="HF tokenizers comes with the extra 'hf'")


def _trained_by_hf(documents: list[str], regex: str, n_merges: int, *, lines: bool) -> list[list[str]]:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(regex), "isolated")
    model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level]) if regex else byte_level
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + n_merges, min_frequency=0, show_progress=False, initial_alphabet=byte_level.alphabet()
    )
    # Its file reader feeds lines with their line feed.
    fed = [line for text in documents for line in io.StringIO(text, newline="\n")] if lines else documents
    model.train_from_iterator(fed, trainer)
    merges: list[list[str]] = json.loads(model.to_str())["model"]["merges"]
    return merges


def _corpora(n: int) -> Iterator[tuple[list[str], str, bool]]:
    """Small corpora of few letters, where ties, runs and pairs that vanish are the rule."""
    rng = random.Random(336)
    alphabets = ["ab", "abc ", "aab \n", "é中a ", "a1 2\n", "🦊🦊 a", "xyz'st ", "\x00\x7f a"]
    for _ in range(n):
        letters = rng.choice(alphabets)
        documents = [
            "".join(rng.choices(letters, k=rng.randrange(1, 30))) * rng.choice([1, 1, 2, 5])
            for _ in range(rng.randrange(1, 6))
        ]
        yield documents, rng.choice(["gpt2", "llama3", "none"]), rng.random() < 0.5


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("n", [400, pytest.param(2500, marks=pytest.mark.slow)])
def test_merges_of_generated_corpora_equal_hf(n):
    for number, (documents, name, lines) in enumerate(_corpora(n)):
        theirs = _trained_by_hf(documents, patterns.resolve(name).regex, 40, lines=lines)
        counts = count_pretokens([Batch.from_texts(documents)], name, unit="line" if lines else "document", threads=1)
        ours = train_bpe(counts, 256 + 40, special_tokens=())
        found = [[printable(left), printable(right)] for left, right in ours.merges]
        assert found == theirs, (number, documents, name, lines)

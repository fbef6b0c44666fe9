"""Small corpora for trainings."""

import warnings

import numpy as np
from hypothesis import strategies as st

from tokenizer import PretokenCounts, patterns, train_bpe


def counts_of(pretokens):
    """Counts given outright, whatever pattern may have cut them."""
    keys = sorted(pretokens)
    return PretokenCounts(
        data=np.frombuffer(b"".join(keys), np.uint8),
        offsets=np.cumsum([0, *map(len, keys)]).astype(np.int64),
        counts=np.array([pretokens[key] for key in keys], np.uint64),
        pattern=patterns.resolve("none"),
        unit="document",
        special_tokens=(),
        n_bytes=sum(len(key) * count for key, count in pretokens.items()),
        n_documents=1,
    )


def train_native(counts, n_merges, *, special_tokens=(), **options):
    """Merges of the Rust core with their counts, with the arguments of the reference."""
    found, vocab_size = [], 256 + n_merges + len(special_tokens)
    with warnings.catch_warnings(action="ignore"):
        tokenizer = train_bpe(
            counts_of(counts), vocab_size, special_tokens=special_tokens, on_counts=found.extend, **options
        )
    return [(*pair, int(count)) for pair, count in zip(tokenizer.merges, found, strict=True)]


def pairs(merges):
    return [(left, right) for left, right, _ in merges]


LETTERS = st.sampled_from(["ab", "a", "abc ", "é!", "\x00\xff a"])
WORDS = LETTERS.flatmap(lambda letters: st.text(alphabet=letters, min_size=1, max_size=14)).map(str.encode)
CORPORA = st.dictionaries(WORDS, st.sampled_from([1, 1, 1, 2, 3, 7, 2**33]), min_size=1, max_size=8)

"""The last rung: the Rust core with the arguments of the other rungs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenizer import _native
from tokenizer.alphabet import ALPHABET
from tokenizer.patterns import resolve
from tokenizer.reference import byte_alphabet
from tokenizer.spelling import longest_token
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tokenizer.reference import Merge, Pair


def train(
    counts: Mapping[bytes, int],
    n_merges: int,
    *,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    special_tokens: Sequence[str] = (),
) -> list[Merge]:
    """Phase 1 over counted pretokens, as `tokenizer.reference.train_naive`."""
    pretokens = sorted(counts)
    trained = _native.train_bpe(
        np.frombuffer(b"".join(pretokens), np.uint8),
        np.cumsum([0, *map(len, pretokens)], dtype=np.int64),
        np.array([counts[pretoken] for pretoken in pretokens], np.uint64),
        ALPHABET,
        n_merges,
        tie_break=tie_break,
        min_count=max(min_count, 1),
        max_token_bytes=longest_token(max_token_bytes),
        special_tokens=list(special_tokens),
        progress=None,
    )
    tokens = byte_alphabet()
    merges: list[Merge] = []
    for left, right, count in zip(
        trained["left"].tolist(), trained["right"].tolist(), trained["count"].tolist(), strict=True
    ):
        merges.append((tokens[left], tokens[right], count))
        tokens.append(tokens[left] + tokens[right])
    return merges


def as_tokenizer(merges: Iterable[Pair]) -> Tokenizer:
    """Return a tokenizer with these merges that does not split text.

    Every part of a merge must be a byte or the product of an earlier merge.
    """
    places = {token: place for place, token in enumerate(byte_alphabet())}
    ranks = []
    for left, right in merges:
        ranks.append((places[left], places[right]))
        places[left + right] = len(places)
    return Tokenizer.from_ranks(ranks, pattern=resolve("none"))


def encoder(merges: Iterable[Pair]) -> Callable[[str], list[bytes]]:
    """Return the encoder of `as_tokenizer` for pieces of text."""
    tokenizer = as_tokenizer(merges)
    return lambda piece: [tokenizer.vocab[token] for token in tokenizer.encode_ordinary(piece)]

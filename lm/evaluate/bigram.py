"""A bigram model of tokens: a cheap stand-in for a language model, to compare many tokenizers of one recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokenizer.interface import TokenizerLike

DISCOUNT = 0.75
"""Subtracted from the count of every pair that occurs."""


def bigram_bits(
    tokenizer: TokenizerLike, training: Sequence[str], heldout: Sequence[str], *, threads: int | None = None
) -> NDArray[np.float64]:
    """Loss of each held-out document in bits, float64[n_heldout], under a bigram model of the training documents.

    The probability of token w after v is interpolated with absolute discounting (Ney, Essen and Kneser, On structuring
    probabilistic dependences in stochastic language modelling, Computer Speech and Language 8, 1994):

        p(w | v) = (max(c(v w) - d, 0) + d n(v) p(w)) / c(v),    p(w) = (c(w) + 1) / (N + V)

    where c are counts, n(v) is the number of different tokens after v, N the number of tokens and V the size of the
    vocabulary; after a token that never occurs it is p(w). The end of text precedes each document. It is predicted in
    training, and not scored, as in `lm.evaluate`.

    Args:
        tokenizer: Its ids are modelled.
        training: Documents that the model is fitted to.
        heldout: Documents that are scored.
        threads: Threads that encode; None for all cores.
    """
    size = tokenizer.vocab_size
    stream, _ = _stream(tokenizer, training, threads)
    after = np.append(stream[1:], tokenizer.end_id)
    pairs, counts = np.unique(stream * size + after, return_counts=True)
    total = np.bincount(stream, minlength=size)
    followers = np.bincount(pairs // size, minlength=size)
    alone = (total + 1) / (len(stream) + size)

    stream, document = _stream(tokenizer, heldout, threads)
    scored = np.flatnonzero(document >= 0)
    before, after = stream[scored - 1], stream[scored]
    wanted = before * size + after
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    count = np.where(pairs[place] == wanted, counts[place] - DISCOUNT, 0.0)
    known = (count + DISCOUNT * followers[before] * alone[after]) / np.maximum(total[before], 1)
    probability = np.where(total[before] > 0, known, alone[after])
    return np.bincount(document[scored], -np.log2(probability), len(heldout)).astype(np.float64)


def _stream(
    tokenizer: TokenizerLike, documents: Sequence[str], threads: int | None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The ids of all documents, each after the end of text, and the document of each id, -1 for an end of text."""
    ids, offsets = tokenizer.encode_batch(list(documents), threads=threads)
    document = np.repeat(np.arange(len(documents)), np.diff(offsets))
    return np.insert(ids.astype(np.int64), offsets[:-1], tokenizer.end_id), np.insert(document, offsets[:-1], -1)

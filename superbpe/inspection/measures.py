"""Metrics of a tokenizer on a text: compression, fertility, utilisation, entropy, Rényi efficiency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from superbpe.inspection.tokens import Tokens
    from tokenizer import _native
    from tokenizer.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """A text and its ids.

    Attributes:
        ids: uint32 [n_tokens], concatenated ids of all documents.
        document_ends: int64 [n_documents]: end of each document in tokens.
        data: concatenated UTF-8 of the documents, uint8 [n_bytes].
        byte_ends: int64 [n_documents]: end of each document in bytes.
        n_words: number of whitespace-separated words.
        counts: int64 [vocab_size]: occurrences by id.
    """

    ids: npt.NDArray[np.uint32]
    document_ends: Ints
    data: npt.NDArray[np.uint8]
    byte_ends: Ints
    n_words: int
    counts: Ints


def encode(tokenizer: Tokenizer, batches: Iterable[_native.Batch]) -> Encoded:
    """Encode documents. Special strings are ordinary text."""
    ids, token_ends, data, byte_ends, n_words, tokens, n_bytes = [], [], [], [], 0, 0, 0
    for batch in batches:
        found, offsets = tokenizer.encode_batch(batch)
        ids.append(found)
        token_ends.append(offsets[1:] + tokens)
        tokens += len(found)
        data.append(batch.data)
        byte_ends.append(batch.offsets[1:] + n_bytes)
        n_bytes += batch.n_bytes
        n_words += sum(len(batch.text(i).split()) for i in range(len(batch)))
    if not n_bytes:
        raise UserError("the text is empty; name files that contain some")
    every = np.concatenate(ids)
    return Encoded(
        ids=every,
        document_ends=np.concatenate(token_ends),
        data=np.concatenate(data),
        byte_ends=np.concatenate(byte_ends),
        n_words=n_words,
        counts=np.bincount(every, minlength=tokenizer.vocab_size).astype(np.int64),
    )


@dataclass(frozen=True)
class Measures:
    """Metrics of an encoded text. Averages are micro-averages: totals over all documents, divided once.

    Attributes:
        documents, bytes, words, tokens: totals of the text; words are whitespace-separated.
        bytes_per_token: compression.
        fertility: tokens per word; not meaningful for scripts without spaces.
        vocabulary: |V|, the number of ordinary tokens, without special tokens and unused ids.
        used: number of ordinary tokens that occur.
        utilisation: used / vocabulary.
        entropy: Shannon entropy of the token distribution, bits per token.
        alpha: order of the Rényi entropy.
        renyi_entropy: log2(sum p^alpha) / (1 - alpha), bits per token.
        renyi_efficiency: renyi_entropy / log2(vocabulary).
        renyi_efficiency_observed: renyi_entropy / log2(used), as reported by tools that see only the text.
        superword_tokens, superword_bytes: fractions of the text's tokens and bytes that are superwords.
        crossing_tokens: fraction of the text's tokens that are other tokens across pretokens (`Tokens.crossing`).
        partial_tokens: fraction of the text's tokens that contain part of a character.
    """

    documents: int
    bytes: int
    words: int
    tokens: int
    bytes_per_token: float
    fertility: float
    vocabulary: int
    used: int
    utilisation: float
    entropy: float
    alpha: float
    renyi_entropy: float
    renyi_efficiency: float
    renyi_efficiency_observed: float
    superword_tokens: float
    superword_bytes: float
    crossing_tokens: float
    partial_tokens: float


def measure(encoded: Encoded, tokens: Tokens, *, alpha: float = 2.5) -> Measures:
    """Compute the metrics of an encoded text.

    Args:
        encoded: text encoded by the tokenizer of `tokens`.
        tokens: description of the tokenizer's tokens.
        alpha: order of the Rényi entropy; 1 is Shannon's. Zouhar et al. 2023 (https://aclanthology.org/2023.acl-long.284)
            find that 2.5 correlates best with translation quality.
    """
    counts = encoded.counts
    n_tokens, n_bytes = len(encoded.ids), len(encoded.data)
    vocabulary = int(tokens.ordinary.sum())
    used = int((counts[tokens.ordinary] > 0).sum())
    renyi = renyi_entropy(counts, alpha)
    return Measures(
        documents=len(encoded.byte_ends),
        bytes=n_bytes,
        words=encoded.n_words,
        tokens=n_tokens,
        bytes_per_token=n_bytes / n_tokens,
        fertility=n_tokens / max(encoded.n_words, 1),
        vocabulary=vocabulary,
        used=used,
        utilisation=used / vocabulary,
        entropy=renyi_entropy(counts, 1.0),
        alpha=alpha,
        renyi_entropy=renyi,
        renyi_efficiency=renyi / math.log2(vocabulary),
        renyi_efficiency_observed=renyi / math.log2(used) if used > 1 else 1.0,
        superword_tokens=float(counts[tokens.superword].sum()) / n_tokens,
        superword_bytes=float((counts * tokens.n_bytes)[tokens.superword].sum()) / n_bytes,
        crossing_tokens=float(counts[tokens.crossing].sum()) / n_tokens,
        partial_tokens=float(counts[tokens.partial].sum()) / n_tokens,
    )


def renyi_entropy(counts: npt.ArrayLike, alpha: float) -> float:
    """The Rényi entropy of a distribution given by counts, in bits.

    Args:
        counts: occurrences; not all 0.
        alpha: order, at least 0. 0 gives the logarithm of the number of distinct outcomes, 1 Shannon entropy, infinity
            min-entropy.

    Raises:
        UserError: alpha is negative or not a number.

    >>> [round(renyi_entropy([2, 1, 1], alpha), 3) for alpha in (0, 1, 2, float("inf"))]
    [1.585, 1.5, 1.415, 1.0]
    """
    if not alpha >= 0:
        raise UserError(f"alpha={alpha} must be at least 0, as an order of a Rényi entropy (usually 2.5)")
    found = np.asarray(counts, dtype=np.float64)
    p = found[found > 0] / found.sum()
    if alpha == 1:
        return float(-(p * np.log2(p)).sum())
    if np.isinf(alpha):
        return float(-np.log2(p.max()))
    # Normalize by the highest probability: p^alpha underflows for a high order.
    highest = p.max()
    return float((np.log2(((p / highest) ** alpha).sum()) + alpha * np.log2(highest)) / (1 - alpha))


def renyi_gradient(counts: npt.ArrayLike, alpha: float) -> npt.NDArray[np.float64]:
    """Derivative of `renyi_entropy` by the probability of each outcome, in bits; 0 for outcomes that do not occur.

    The derivatives hold up to a constant, since probabilities add up to 1.

    Args:
        counts: occurrences; not all 0.
        alpha: order, above 0.

    >>> renyi_gradient([1, 1, 0], 2).round(3).tolist()
    [-2.885, -2.885, 0.0]
    """
    found = np.asarray(counts, dtype=np.float64)
    highest = found.max()
    gradient = np.zeros(len(found))
    there = found > 0
    shares = found[there] / highest  # relative to the highest, as in `renyi_entropy`
    if alpha == 1:
        gradient[there] = -np.log2(shares)
    elif np.isinf(alpha):
        gradient[found.argmax()] = -found.sum() / (highest * math.log(2))
    else:
        scale = found.sum() / highest * alpha / ((1 - alpha) * math.log(2))
        gradient[there] = scale * shares ** (alpha - 1) / (shares**alpha).sum()
    return gradient

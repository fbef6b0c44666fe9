"""What a tokenizer does to a text, in numbers: compression, fertility, utilisation, entropy, Rényi efficiency."""

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
        ids: uint32 [n_tokens], of all documents in order.
        document_ends: int64 [n_documents]: tokens up to each document's end.
        data: the documents' UTF-8 one after the other, uint8 [n_bytes].
        byte_ends: int64 [n_documents]: bytes up to each document's end.
        n_words: non-empty parts between white space.
        counts: int64 [vocab_size]: occurrences by id.
    """

    ids: npt.NDArray[np.uint32]
    document_ends: Ints
    data: npt.NDArray[np.uint8]
    byte_ends: Ints
    n_words: int
    counts: Ints


def encode(tokenizer: Tokenizer, batches: Iterable[_native.Batch]) -> Encoded:
    """Encodes documents; special strings in them are ordinary text."""
    ids, token_ends, data, byte_ends, n_words, tokens, n_bytes = [], [], [], [], 0, 0, 0
    for batch in batches:
        found, offsets = tokenizer.encode_documents(batch)
        ids.append(found)
        token_ends.append(offsets[1:] + tokens)
        tokens += len(found)
        data.append(batch.data)
        byte_ends.append(batch.offsets[1:] + n_bytes)
        n_bytes += batch.n_bytes
        n_words += sum(len(batch.text(i).split()) for i in range(len(batch)))
    if not n_bytes:
        raise UserError("there is no text; give files that hold some")
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
    """How a text is encoded. Averages are micro-averages: totals over all documents, divided once.

    Attributes:
        documents, bytes, words, tokens: of the text; words are the non-empty parts between white space.
        bytes_per_token: compression.
        fertility: tokens per word; says little about scripts that write no spaces.
        vocabulary: ordinary tokens, |V|: without special tokens and unused ids.
        used: ordinary tokens that occur.
        utilisation: used / vocabulary.
        entropy: Shannon's, of the tokens' distribution, bits per token.
        alpha: of the Rényi entropy.
        renyi_entropy: log2(sum p^alpha) / (1 - alpha), bits per token.
        renyi_efficiency: renyi_entropy / log2(vocabulary).
        renyi_efficiency_observed: renyi_entropy / log2(used), as tools report it that see only the text.
        superword_tokens, superword_bytes: superwords' shares of the text's tokens and bytes.
        crossing_tokens: share of the text's tokens that are other tokens across pretokens (`Tokens.crossing`).
        partial_tokens: share of the text's tokens that are not whole characters.
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
    """Measures an encoded text.

    Args:
        encoded: by the tokenizer of `tokens`.
        tokens: what its tokens are.
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
        alpha: order, 0 or more: 0 is the logarithm of how many occur, 1 Shannon's, infinity the most frequent one's.

    Raises:
        UserError: alpha is negative or not a number.

    >>> [round(renyi_entropy([2, 1, 1], alpha), 3) for alpha in (0, 1, 2, float("inf"))]
    [1.585, 1.5, 1.415, 1.0]
    """
    if not alpha >= 0:
        raise UserError(f"alpha={alpha} is not an order of a Rényi entropy; use 0 or more (usually 2.5)")
    found = np.asarray(counts, dtype=np.float64)
    p = found[found > 0] / found.sum()
    if alpha == 1:
        return float(-(p * np.log2(p)).sum())
    if np.isinf(alpha):
        return float(-np.log2(p.max()))
    # By the most frequent one, since p^alpha underflows for a high order.
    highest = p.max()
    return float((np.log2(((p / highest) ** alpha).sum()) + alpha * np.log2(highest)) / (1 - alpha))

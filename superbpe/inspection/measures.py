"""Metrics of a tokenizer on a text: compression, fertility, utilisation, entropy, Rényi efficiency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from superbpe.inspection.boundaries import find_units
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from superbpe.inspection.boundaries import Units
    from superbpe.inspection.tokens import Tokens
    from tokenizer import _native
    from tokenizer.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodedText:
    """A text and its ids.

    Attributes:
        ids: uint32 [n_tokens], concatenated ids of all documents.
        data: concatenated UTF-8 of the documents as the tokenizer normalizes them, uint8.
        n_bytes: bytes of the documents themselves.
        byte_ends: int64 [n_documents]: end of each document in `data`.
        n_words: number of whitespace-separated words.
        counts: int64 [vocab_size]: occurrences by id.
        token_ends: int64 [n_tokens]: end of each token in `data`.
        units: words, numbers and characters of `data`.
    """

    ids: npt.NDArray[np.uint32]
    data: npt.NDArray[np.uint8]
    n_bytes: int
    byte_ends: Ints
    n_words: int
    counts: Ints
    token_ends: Ints
    units: Units

    @property
    def located(self) -> bool:
        """Whether tokens spell the text, so that their places in it are known."""
        return bool(self.token_ends[-1] == len(self.data))


def encode(tokenizer: Tokenizer, batches: Iterable[_native.Batch]) -> EncodedText:
    """Encode documents. Special strings are ordinary text."""
    batches = list(batches)
    if not sum(batch.n_bytes for batch in batches):
        raise UserError("the text is empty; name files that contain some")
    ids = np.concatenate([tokenizer.encode_batch(batch)[0] for batch in batches])
    read = [tokenizer.normalized(batch) for batch in batches]
    data = np.concatenate([batch.data for batch in read])
    byte_ends = np.cumsum(np.concatenate([np.diff(batch.offsets) for batch in read]))
    return EncodedText(
        ids=ids,
        data=data,
        n_bytes=sum(batch.n_bytes for batch in batches),
        byte_ends=byte_ends,
        n_words=sum(len(batch.text(i).split()) for batch in batches for i in range(len(batch))),
        counts=np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64),
        token_ends=np.cumsum(np.array(list(map(len, tokenizer.vocab)))[ids]),
        units=find_units(data, byte_ends),
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
        strr: single-token retention rate: fraction of the words (`boundaries`) that are in one token (Nayeem et al.
            2025, arXiv 2510.09947, here per occurrence); None without words.
        continued_words: proportion of continued words, 1 - strr (Rust et al. 2021).
        digit_boundaries: fraction of the numbers of four digits or more that are cut in groups of three from the right
            and nowhere else (Singh & Strouse 2024, arXiv 2402.14903); None without such numbers.
        cut_characters: characters whose bytes are in several tokens, per character. Like the three before it, None if
            the tokens do not spell the text.
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
    strr: float | None
    continued_words: float | None
    digit_boundaries: float | None
    cut_characters: float | None


def measure(encoded: EncodedText, tokens: Tokens, *, alpha: float = 2.5) -> Measures:
    """Compute the metrics of an encoded text.

    Args:
        encoded: text encoded by the tokenizer of `tokens`.
        tokens: description of the tokenizer's tokens.
        alpha: order of the Rényi entropy; 1 is Shannon's. Zouhar et al. 2023 (https://aclanthology.org/2023.acl-long.284)
            find that 2.5 correlates best with translation quality.
    """
    counts = encoded.counts
    n_tokens, n_bytes = len(encoded.ids), encoded.n_bytes
    vocabulary = int(tokens.ordinary.sum())
    used = int((counts[tokens.ordinary] > 0).sum())
    renyi = renyi_entropy(counts, alpha)
    strr = split = digit_boundaries = cut_characters = None
    if encoded.located:
        cut, of_text = encoded.units.cut(encoded.token_ends), encoded.units.counts
        split, digit_boundaries, cut_characters = (
            int(part.sum()) / int(whole.sum()) if whole.any() else None
            for part, whole in zip(cut, of_text, strict=True)
        )
        strr = None if split is None else 1 - split
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
        strr=strr,
        continued_words=split,
        digit_boundaries=digit_boundaries,
        cut_characters=cut_characters,
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
    values = np.asarray(counts, dtype=np.float64)
    p = values[values > 0] / values.sum()
    if alpha == 1:
        return float(-(p * np.log2(p)).sum())
    if np.isinf(alpha):
        return float(-np.log2(p.max()))
    # Normalize by the highest probability: p^alpha underflows for a high order.
    highest = p.max()
    return float((np.log2(((p / highest) ** alpha).sum()) + alpha * np.log2(highest)) / (1 - alpha))


@dataclass(frozen=True)
class Contexts:
    """Occurrences of tokens in excerpts of a text.

    Attributes:
        data: the concatenated excerpts, UTF-8, uint8.
        starts: int64: start of each excerpt in `data`; excerpts do not cross the ends of documents.
        tokens: int64 [n]: ids, sorted.
        places: int64 [n]: start of each occurrence in `data`.
        reach: bytes of context on either side of a token; less at the ends of documents.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    tokens: Ints
    places: Ints
    reach: int


def contexts(
    encoded: EncodedText, tokens: Tokens, *, per_token: int = 3, reach: int = 48, most_bytes: int = 6_000_000
) -> Contexts:
    """Select up to `per_token` occurrences of each token, spread over the text, with the surrounding text.

    If not all fit into `most_bytes`, the first occurrences of superwords have priority, then the first occurrences of
    other tokens, then the second ones, and so on.

    Args:
        encoded: a text and its ids.
        tokens: description of the tokens.
        per_token: maximum number of occurrences per token.
        reach: bytes of context on either side.
        most_bytes: maximum size of the excerpts, before overlapping ones are joined.
    """
    n = len(encoded.ids)
    ids = encoded.ids.astype(np.int64)
    order = np.argsort(ids, kind="stable")
    counts = encoded.counts
    first = np.cumsum(counts) - counts
    seen = np.flatnonzero(counts)
    seen = seen[np.argsort(~tokens.superword[seen], kind="stable")]
    chosen = []
    for turn in range(per_token):
        # Occurrences 0, n/3 and 2n/3 of n, for three per token.
        several = seen[counts[seen] > turn]
        chosen.append(order[first[several] + turn * counts[several] // per_token])
    places = np.concatenate(chosen) if n else np.empty(0, dtype=np.int64)
    widths = tokens.n_bytes[ids[places]] + 2 * reach
    places = np.sort(places[: int(np.searchsorted(np.cumsum(widths), most_bytes, side="right"))])

    token_ends = encoded.token_ends
    token_starts = token_ends - tokens.n_bytes[ids]
    document = np.searchsorted(encoded.byte_ends, token_starts[places], side="right")
    document_starts = np.concatenate([[0], encoded.byte_ends])
    low = np.maximum(token_starts[places] - reach, document_starts[document])
    high = np.minimum(token_ends[places] + reach, encoded.byte_ends[document])
    change = np.zeros(len(encoded.data) + 1, dtype=np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, high, -1)
    covered = np.cumsum(change[:-1]) > 0
    begins = covered & ~np.concatenate([[False], covered[:-1]])
    begins[encoded.byte_ends[encoded.byte_ends < len(covered)]] = True
    new_place: Ints = np.cumsum(covered) - covered
    result = np.lexsort((places, ids[places]))
    return Contexts(
        data=encoded.data[covered],
        starts=new_place[np.flatnonzero(begins & covered)],
        tokens=ids[places][result],
        places=new_place[token_starts[places]][result],
        reach=reach,
    )

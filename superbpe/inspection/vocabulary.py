"""Superwords of a vocabulary, their counts in a text, and segmented texts for display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenizer.interface import n_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenizer.interface import TokenizerLike
    from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Superword:
    """A superword of a vocabulary.

    Attributes:
        id: the token id.
        text: the token's bytes as text, with hex escapes for invalid UTF-8.
        n_bytes: length in bytes.
        n_words: number of whitespace-separated words.
        count: occurrences in the counted text.
    """

    id: int
    text: str
    n_bytes: int
    n_words: int
    count: int


@dataclass(frozen=True)
class Piece:
    """One token of a segmented text.

    Attributes:
        id: the token id.
        text: the token's bytes as text, with hex escapes for invalid UTF-8.
        superword: whether the token is a superword.
        partial: whether the token contains part of a UTF-8 character.
    """

    id: int
    text: str
    superword: bool
    partial: bool


def display(token: bytes) -> str:
    r"""Return the bytes of a token as text; bytes that are not UTF-8 become hex escapes.

    >>> display(b" of the"), display("é".encode()[:1])
    (' of the', '\\xc3')
    """
    return token.decode("utf-8", errors="backslashreplace")


def token_counts(tokenizer: TokenizerLike, texts: Sequence[str], *, threads: int | None = None) -> NDArray[np.int64]:
    """Return the count of each id in the encoded texts: int64 [vocab_size]."""
    ids, _ = tokenizer.encode_batch(texts, threads=threads)
    return np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)


def superwords(tokenizer: TokenizerLike, counts: NDArray[np.int64] | None = None) -> list[Superword]:
    """Return the superwords of a vocabulary in order of their ids.

    Args:
        tokenizer: any tokenizer; plain BPE has no superwords.
        counts: occurrences by id (`token_counts`); None sets all counts to 0.
    """
    vocab = tokenizer.vocab
    return [
        Superword(
            id=int(i),
            text=display(vocab[i]),
            n_bytes=len(vocab[i]),
            n_words=n_words(vocab[i]),
            count=0 if counts is None else int(counts[i]),
        )
        for i in tokenizer.superword_ids()
    ]


def longest(words: Iterable[Superword], n: int) -> list[Superword]:
    """Return the `n` longest superwords in bytes; ties are ordered by count, then id."""
    return sorted(words, key=lambda word: (-word.n_bytes, -word.count, word.id))[:n]


def most_frequent(words: Iterable[Superword], n: int) -> list[Superword]:
    """Return the `n` superwords with the highest counts; ties are ordered by id."""
    return sorted(words, key=lambda word: (-word.count, word.id))[:n]


def by_words(words: Iterable[Superword]) -> list[tuple[int, int, int]]:
    """Return (words per superword, number of superwords, their occurrences), sorted by words per superword."""
    table: dict[int, tuple[int, int]] = {}
    for word in words:
        number, count = table.get(word.n_words, (0, 0))
        table[word.n_words] = (number + 1, count + word.count)
    return [(n, *table[n]) for n in sorted(table)]


def segment(tokenizer: TokenizerLike, text: str) -> list[Piece]:
    """Return the tokens of a text for display, in order."""
    vocab, special = tokenizer.vocab, set(tokenizer.superword_ids().tolist())
    pieces = []
    for i in tokenizer.encode_ordinary(text):
        try:
            shown, partial = vocab[i].decode(), False
        except UnicodeDecodeError:
            shown, partial = display(vocab[i]), True
        pieces.append(Piece(id=i, text=shown, superword=i in special, partial=partial))
    return pieces


def curve_sizes(tokenizer: Tokenizer, points: int) -> list[int]:
    """Return vocabulary sizes for a compression curve: log-spaced, including the transition and the full size."""
    specials = len(tokenizer.special_tokens)
    end = tokenizer.vocab_size
    start = 512 if end > 1024 else 256 + specials
    sizes = {round(size) for size in np.geomspace(start, end, max(points, 2))}
    if len(tokenizer.merges) > tokenizer.n_phase1_merges:
        sizes.add(256 + tokenizer.n_phase1_merges + specials)
    return sorted(size for size in sizes if 256 + specials <= size <= end)

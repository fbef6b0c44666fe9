"""What is in a vocabulary, and what it does to a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenizer.tokenizer import n_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Superword:
    """A superword of a vocabulary.

    Attributes:
        id: The token id.
        text: Its bytes as text, undecodable ones as hex escapes.
        n_bytes: Length in bytes.
        n_words: Words: non-empty parts between white space.
        count: Occurrences in the text that was counted.
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
        id: The token id.
        text: Its bytes as text, undecodable ones as hex escapes.
        superword: Whether it is a superword.
        partial: Whether its bytes are not whole UTF-8 characters.
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


def token_counts(tokenizer: Tokenizer, texts: Sequence[str], *, threads: int | None = None) -> NDArray[np.int64]:
    """Return how often each id occurs in the encoded texts: int64[vocab_size]."""
    ids, _ = tokenizer.encode_batch(texts, threads=threads)
    return np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)


def superwords(tokenizer: Tokenizer, counts: NDArray[np.int64] | None = None) -> list[Superword]:
    """Return the superwords of a vocabulary in order of their ids.

    Args:
        tokenizer: Any tokenizer; plain BPE has none.
        counts: Occurrences by id (`token_counts`); None leaves all counts at 0.
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
    """Return the `n` longest superwords in bytes; equally long ones in order of frequency, then id."""
    return sorted(words, key=lambda word: (-word.n_bytes, -word.count, word.id))[:n]


def most_frequent(words: Iterable[Superword], n: int) -> list[Superword]:
    """Return the `n` superwords with the highest counts; equally frequent ones in order of id."""
    return sorted(words, key=lambda word: (-word.count, word.id))[:n]


def by_words(words: Iterable[Superword]) -> list[tuple[int, int, int]]:
    """Return (words in a superword, number of such superwords, their occurrences), in order of the first."""
    table: dict[int, tuple[int, int]] = {}
    for word in words:
        number, count = table.get(word.n_words, (0, 0))
        table[word.n_words] = (number + 1, count + word.count)
    return [(n, *table[n]) for n in sorted(table)]


def segment(tokenizer: Tokenizer, text: str) -> list[Piece]:
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
    """Return sizes for a compression curve: even on a log scale, with the transition and the end."""
    specials = len(tokenizer.special_tokens)
    end = tokenizer.vocab_size
    start = 512 if end > 1024 else 256 + specials
    sizes = {round(size) for size in np.geomspace(start, end, max(points, 2))}
    if len(tokenizer.merges) > tokenizer.n_phase1_merges:
        sizes.add(256 + tokenizer.n_phase1_merges + specials)
    return sorted(size for size in sizes if 256 + specials <= size <= end)

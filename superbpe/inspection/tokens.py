"""The tokens of a vocabulary: their properties, superwords and their kinds, near-duplicates, and segmented texts.

A *word* is a non-empty part of a token between white space (`n_words`). A *phase-2 token* is the product of a merge
after the transition. A *superword* is a phase-2 token of two words or more (`Tokenizer.superword_ids`). Other phase-2
tokens that phase 1's pattern would cut, such as `.` with a line feed, cross pretokens and are counted apart
(`Tokenizer.crossing_ids`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import regex

from tokenizer import patterns
from tokenizer.interface import is_text, n_words

if TYPE_CHECKING:
    from tokenizer.interface import TokenizerLike
    from tokenizer.patterns import Pattern
    from tokenizer.tokenizer import Tokenizer

KINDS = (
    "",
    "line breaks and wide spaces",
    "digits",
    "code",
    "punctuation",
    "function words only",
    "function and content words",
    "content words only",
)
"""Kinds of superwords; the first match counts. A token's `kind` is an index into this, 0 for other tokens."""

_ENGLISH = """
a an the this that these those some any no each every all both either neither such another other i you he she it
we they me him her us them my your his its our their mine yours hers ours theirs myself yourself himself herself
itself ourselves themselves who whom whose which what one and or but nor so yet for if then else than because
although though while whereas unless until since when where why how whether as of in on at by to from with
without within into onto upon over under above below between among through during before after about against
across along around behind beside beyond near off out up down toward towards per via am is are was were be been
being have has had having do does did doing will would shall should can could may might must not n't there here
also just only very too more most much many few less least own same again once ever never don't doesn't didn't
isn't aren't wasn't weren't can't couldn't won't wouldn't it's i'm you're we're they're that's
"""

FUNCTION_WORDS = frozenset(_ENGLISH.split())
"""English articles, pronouns, conjunctions, prepositions, auxiliaries and common adverbs. Superwords of other languages
count as content words."""

_LINES = regex.compile(r"[\n\r\t\v\f]|\s\s")
_DIGITS = regex.compile(r"\p{N}")
_CODE = regex.compile(r"[{}\[\]()<>=+*/\\|&^%$#@~_;`]|\p{Ll}\p{Lu}|\w[.:]{1,2}\w")
_PUNCTUATION = regex.compile(r"[^\s\p{L}\p{M}\p{N}'’]")


def kind(text: str) -> int:
    """The kind of a superword, an index into `KINDS`.

    >>> [KINDS[kind(text)] for text in (" of the", " in the world", " = {", ", and", " in 19")]
    ['function words only', 'function and content words', 'code', 'punctuation', 'digits']
    """
    for index, pattern in ((1, _LINES), (2, _DIGITS), (3, _CODE), (4, _PUNCTUATION)):
        if pattern.search(text):
            return index
    is_function = [word in FUNCTION_WORDS for word in text.lower().replace("’", "'").split()]
    if is_function and all(is_function):
        return 5
    return 6 if any(is_function) else 7


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LETTER = regex.compile(r"\p{L}")


@dataclass(frozen=True)
class Tokens:
    """Properties of the tokens of a vocabulary; all columns are [vocab_size], by id.

    Attributes:
        text: bytes as text, with hex escapes for invalid UTF-8; "" for unused ids.
        n_bytes: int64; 0 for unused ids.
        n_words: int64: number of whitespace-separated words.
        rank: int64: rank of the first merge that produces the token; -1 for bytes, special tokens, unused ids, and
            tokens that no merge produces.
        phase: int64: 1 or 2 for tokens that merges of that phase produce, 0 for all others.
        superword: tokens across pretokens with two or more words.
        crossing: other tokens across pretokens, such as `.` with a line feed. Pretokens are as in `pretokens`.
        kind: int64: index into `KINDS` for superwords; 0 for all others.
        partial: tokens that contain part of a UTF-8 character.
        special: special tokens.
        unused: ids without a token.
        unreachable: tokens that no text becomes, as far as that is known (`Tokenizer.unreachable_ids`).
        pretokens: the pattern that cuts pretokens.
    """

    text: list[str]
    n_bytes: Ints
    n_words: Ints
    rank: Ints
    phase: Ints
    superword: Mask
    crossing: Mask
    kind: Ints
    partial: Mask
    special: Mask
    unused: Mask
    unreachable: Mask
    pretokens: Pattern

    @property
    def ordinary(self) -> Mask:
        """Tokens of text: neither special nor unused."""
        return ~(self.special | self.unused)


def describe(tokenizer: Tokenizer, pretokens: Pattern | None = None) -> Tokens:
    """Describe every token.

    Args:
        tokenizer: any tokenizer.
        pretokens: the pattern that cuts pretokens; tokens that it would cut are superwords or `Tokens.crossing`. None
            for the tokenizer's (`Tokenizer.pretokens`).
    """
    vocab, size = tokenizer.vocab, tokenizer.vocab_size
    special = _mask(size, tokenizer.special_tokens.values())
    n_bytes = np.fromiter(map(len, vocab), dtype=np.int64, count=size)
    unused = n_bytes == 0
    partial = np.fromiter((not is_text(token) for token in vocab), dtype=np.bool_, count=size) & ~special
    products, first = np.unique(tokenizer.merge_ids[:, 2], return_index=True)
    rank = np.full(size, -1, dtype=np.int64)
    rank[products] = first
    phase = np.where(rank < 0, 0, np.where(rank < tokenizer.n_phase1_merges, 1, 2))
    words = np.fromiter(map(n_words, vocab), dtype=np.int64, count=size)
    if pretokens is None:
        superword, crossing = _mask(size, tokenizer.superword_ids()), _mask(size, tokenizer.crossing_ids())
    else:
        crossing = (rank >= 0) & patterns.is_cut(vocab, pretokens, errors="ignore")
        superword = crossing & (words > 1)
    text = [display(token) for token in vocab]
    return Tokens(
        text=text,
        n_bytes=n_bytes,
        n_words=words,
        rank=rank,
        phase=phase,
        superword=superword,
        crossing=crossing & ~superword,
        kind=np.fromiter(
            (kind(vocab[i].decode(errors="ignore")) if is_one else 0 for i, is_one in enumerate(superword.tolist())),
            np.int64,
            count=size,
        ),
        partial=partial,
        special=special,
        unused=unused,
        unreachable=_mask(size, tokenizer.unreachable_ids()),
        pretokens=pretokens or tokenizer.pretokens,
    )


def near_duplicates(tokens: Tokens) -> list[list[int]]:
    """Groups of two or more ids whose tokens differ only in case and a leading space; larger groups first.

    Tokens without a letter are skipped.
    """
    groups: dict[str, list[int]] = {}
    for i in np.flatnonzero(tokens.ordinary & ~tokens.partial).tolist():
        if _LETTER.search(tokens.text[i]):
            groups.setdefault(tokens.text[i].removeprefix(" ").casefold(), []).append(i)
    return sorted((group for group in groups.values() if len(group) > 1), key=lambda group: (-len(group), group))


def missing(tokenizer: Tokenizer, tokens: Tokens, other: Tokenizer) -> Mask:
    """Mask of the tokens of text without one of the same bytes in the other tokenizer."""
    theirs = {other.vocab[i] for i in other.text_ids().tolist()}
    lacks = np.fromiter((token not in theirs for token in tokenizer.vocab), np.bool_, count=tokenizer.vocab_size)
    return lacks & tokens.ordinary


def _mask(size: int, ids: object) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[np.fromiter(ids, dtype=np.int64)] = True  # type: ignore[call-overload]
    return mask


@dataclass(frozen=True)
class Superword:
    """A superword of a vocabulary.

    Attributes:
        text: the token's bytes as text, with hex escapes for invalid UTF-8.
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
        text: the token's bytes as text, with hex escapes for invalid UTF-8.
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


def superwords(tokenizer: TokenizerLike, counts: Ints | None = None) -> list[Superword]:
    """Return the superwords of a vocabulary in order of their ids.

    Args:
        tokenizer: any tokenizer; plain BPE has no superwords.
        counts: occurrences by id; None sets all counts to 0.
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


def segment(tokenizer: TokenizerLike, text: str) -> list[Piece]:
    """Return the tokens of a text for display, in order."""
    vocab = tokenizer.vocab
    special = set(tokenizer.superword_ids().tolist())
    return [
        Piece(id=i, text=display(vocab[i]), superword=i in special, partial=not is_text(vocab[i]))
        for i in tokenizer.encode_ordinary(text)
    ]

"""What may follow a text, as far as it matters to how the text itself is cut into pretokens.

Whether a token sequence is the beginning of some text's encoding depends on what follows: of "a   " the scanner makes
"a", "   " at the end of a text, and "a", "  ", " b" in front of a "b". A *witness* is a continuation with which the
encoder does make the sequence. There are infinitely many continuations, but only a few ways in which they make the
scanner cut the text before them. `Witnesses` finds the ways by trying representatives of all kinds of characters.

That a witness was found is a proof. That none was found is one as far as the representatives stand for everything:
for the named patterns, whose rules look ahead at most four characters, all of kinds that are here. Other regexes may
tell apart what is alike here; sequences that only a stranger continuation would prove are then missed.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from tokenizer import _native, patterns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer.bpe import Tokenizer

# Kinds of characters that patterns tell apart. Of letters and digits there are some that hardly any merge knows: a
# piece that goes on behind the text can then still have a token's end where the text ends.
_LETTERS = ["a", "Z", "ꙛ", "Ꙛ", "ꀀ", "ǅ", "ʰ"]
_DIGITS = ["0", "᠑", "½"]
_SPACES = [" ", "\n", "\r", "\t", "\u2005"]
_OTHERS = [".", "!", "'", "’", ",", "_", "%", "/", "-", "+", "#", '"', ")", ":", "⁂", "。", "」", "।", "\u0951"]
_EMOJI = ["🦀", "\ufe0f", "\u20e3", "\u200d", "🏽", "🇩", "\U000e0062", "\U000e007f"]
_SINGLE = [*_LETTERS, *_DIGITS, *_SPACES, *_OTHERS, *_EMOJI]
_PAIRED = ["a", "0", " ", "\n", "'", "."]
_CONTRACTED = ["s", "t", "m", "d", "ll", "re", "ve", "S", "T", "M", "D", "LL", "RE", "VE", "l", "r", "v"]
_WITNESSES = [
    "",
    *_SINGLE,
    *("".join(pair) for pair in itertools.product(_PAIRED, repeat=2)),
    *(digit * n for digit in _DIGITS for n in (3, 4, 5)),
    *(f"{digit * n}{end}" for digit in _DIGITS[:2] for n in (2, 3) for end in ("a", ".", "%", "⁂")),
    *_CONTRACTED,
]
_SEEN = 8
"""Characters at a text's end on which the named patterns' behaviour depends."""
_SCANNED = 48
"""Characters at its end that are scanned to learn it; more than _SEEN, so that the scanners' start has no influence."""
_MOST = 1 << 16
_NAMED = re.compile(r"['’][a-zA-Z]{1,2}|(?<=\d)[eE]")
_RUNS = re.compile(r"([aAꙛꙚꀀ])\1+")


class Witnesses:
    """Continuations to try, for one tokenizer.

    Args:
        tokenizer: Its scanners decide.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        scanners = [tokenizer.pattern, tokenizer.fence] if tokenizer.mode == "two-pass" else []
        scanners = scanners or [tokenizer.pattern if tokenizer.fence is None else tokenizer.fence]
        self._scanners = [scanner.regex for scanner in scanners if scanner is not None]
        self._known = all(patterns.equivalent(regex) is not None for regex in self._scanners)
        # Where whole pieces matter, a piece that goes on is another case than one that ends.
        self._local = not tokenizer.ignore_merges and tokenizer.eligible is None
        self._groups: dict[tuple[str, bytes], list[list[bytes]]] = {}

    def groups(self, text: str, partial: bytes) -> list[list[bytes]]:
        """Continuations of `text + partial`, in groups; within one the scanners cut the text alike.

        A token sequence that spells the text is canonical if and only if the encoder makes it with some of the
        continuations; those of one group can make no two different ones. The first of a group mostly decides.

        Args:
            text: Whole characters.
            partial: The beginning of a character, or none; the continuations complete it.
        """
        key = (_kinds(text[-_SEEN:]) if self._known else text, partial)
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) > _MOST:
                self._groups.clear()
            found = self._groups[key] = self._try(text, partial)
        return found

    def _try(self, text: str, partial: bytes) -> list[list[bytes]]:
        if not self._scanners[0] and len(self._scanners) == 1 and not partial:
            return [[b""], *([] if self._local else [[c.encode() for c in _SINGLE]])]  # nothing is ever cut
        text = text[-_SCANNED:] if self._known else text
        end = len(text)
        groups: dict[object, tuple[list[str], list[str]]] = {}
        for more in self._completions(partial) if partial else _WITNESSES:
            inside, ends = [], not partial
            for scanner in self._scanners:
                cuts, at = [], 0
                for piece in _native.split(text + more, scanner):
                    at += len(piece)
                    if at >= end:
                        break
                    cuts.append(at)
                if at == end and partial:
                    cuts.append(at)
                inside.append(tuple(cuts))
                ends = ends and at == end
            groups.setdefault(tuple(inside), ([], []))[not ends].append(more)
        result = []
        for ended, going in groups.values():
            # Where all pieces end with the text, what follows plays no further part.
            parts = [ended[:1]] if self._local and ended else [ended[:1], going]
            result += [[more.encode()[len(partial) :] for more in part] for part in parts if part]
        return result

    def _completions(self, partial: bytes) -> Iterator[str]:
        """Characters that begin with `partial`, those of many tokens first, alone and in front of others."""
        characters = sorted(_characters(partial), key=self._tokenizer.count_tokens, reverse=True)
        for character in characters:
            yield character
        by_kind = {_kind(character): character for character in reversed(characters)}
        for character in by_kind.values():
            for more in ("a", "ꙛ", "0", "00", "000", "᠑", " ", "\n", "⁂"):
                yield character + more


@cache
def _characters(partial: bytes) -> list[str]:
    """All characters that begin with the bytes if one byte misses; of more, some of each 64 in a row."""
    missing = (2 if partial[0] < 0xE0 else 3 if partial[0] < 0xF0 else 4) - len(partial)
    tails = [bytes([byte]) for byte in range(0x80, 0xC0)]
    few = [tails[i] for i in (0, 9, 35, 63)]
    found = []
    for tail in itertools.product(*([tails, few, few][:missing])):
        try:
            found.append((partial + b"".join(tail)).decode())
        except UnicodeDecodeError:  # overlong, a surrogate, beyond U+10FFFF
            continue
    return found


def _kind(character: str) -> str:
    """What a character is to a pattern, as far as Unicode's categories say it."""
    category = unicodedata.category(character)
    return category if category[0] in "LMN" else character if category[0] in "ZC" else category + character


@lru_cache(maxsize=1 << 18)
def _kinds(text: str) -> str:
    """The text with characters replaced by others of the same kind, but for those that a rule knows by name.

    Runs of letters are cut to two: no rule counts them.
    """
    kinds = "".join(map(_representative, text))
    # Contractions, and exponents: "'ll", "1e5".
    named = [m.span() for m in _NAMED.finditer(text)]
    for start, end in named:
        kinds = kinds[:start] + text[start:end] + kinds[end:]
    return kinds if named else _RUNS.sub(r"\1\1", kinds)


@lru_cache(maxsize=1 << 16)
def _representative(character: str) -> str:
    if character.isascii():
        if character.isalpha():
            return "A" if character.isupper() else "a"
        return "0" if character.isdigit() else ":" if character in "$&(;<=>@[\\^`{|}~" else character
    found = {"Lu": "Ꙛ", "Ll": "ꙛ", "Lo": "ꀀ", "Lt": "ǅ", "Lm": "ʰ", "Nd": "᠑", "Nl": "᠑", "No": "᠑"}
    return found.get(unicodedata.category(character), character)

"""What may follow a text, as far as it matters to how the text itself is cut into pretokens.

Whether a token sequence is the beginning of some text's encoding depends on what follows: of "a   " the scanner makes
"a", "   " at the end of a text, and "a", "  ", " b" in front of a "b". A *witness* is a continuation with which the
encoder does make the sequence. There are infinitely many continuations, but only a few ways in which they make the
scanner cut the text before them. `Continuations` finds the ways by trying representatives of all kinds of characters.

That a witness was found is a proof. That none was found is one as far as the representatives stand for everything:
for the named patterns, whose rules look ahead at a few characters, all of kinds that are here. Other regexes may tell
apart what is alike here, although the characters that they name are tried, too; sequences that only a stranger
continuation would prove are then missed.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from tokenizer import _native, patterns

if TYPE_CHECKING:
    from tokenizer.tokenizer import Tokenizer

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
"""Characters at a text's end on which the named patterns' behaviour depends, besides the run that they are in."""
_PERIOD = 12
"""Where the length of a long run matters, it is modulo a divisor of this (digits are cut in threes)."""
_FEW = 6
"""Characters of a kind that are tried to complete one that is cut."""
_BEHIND = {"N": ("0", "00", "000", "᠑"), "Z": ("a", "\n"), "M": ("a",)}
_MOST = 1 << 16
_NAMED = re.compile(r"['’][a-zA-Z]{1,2}|(?<=\d)[eE]")
_RUNS = re.compile(r"([aAꙛꙚꀀ])\1+")
_LONG = re.compile(rf"(.)\1{{{2 * _PERIOD},}}", re.DOTALL)


class Continuations:
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
        named = {c for regex in self._scanners for c in regex if c.isprintable()}
        self._tried = _WITNESSES if self._known else [*_WITNESSES, *sorted(named.difference(_WITNESSES))]
        self._completed: dict[bytes, list[str]] = {}
        self._groups: dict[tuple[str, bytes], list[list[bytes]]] = {}

    def groups(self, text: str, partial: bytes) -> list[list[bytes]]:
        """Continuations of `text + partial`, in groups; within one the scanners cut the text alike.

        A token sequence that spells the text is canonical if and only if the encoder makes it with some of the
        continuations; those of one group can make no two different ones. The first of a group mostly decides.

        Args:
            text: Whole characters.
            partial: The beginning of a character, or none; the continuations complete it.
        """
        # What stands for a text is what is tried, so that no other text with the same key can have other groups.
        key = (_kinds(_seen(text)) if self._known else text, partial)
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) > _MOST:
                self._groups.clear()
            found = self._groups[key] = self._try(*key)
        return found

    def _try(self, text: str, partial: bytes) -> list[list[bytes]]:
        if not self._scanners[0] and len(self._scanners) == 1 and not partial:
            return [[b""], *([] if self._local else [[c.encode() for c in _SINGLE]])]  # nothing is ever cut
        end = len(text)
        groups: dict[object, tuple[list[str], list[str]]] = {}
        for more in self._completions(partial) if partial else self._tried:
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

    def _completions(self, partial: bytes) -> list[str]:
        """Characters that begin with `partial`, a few of each kind, alone and in front of others."""
        found = self._completed.get(partial)
        if found is not None:
            return found
        kinds: dict[tuple[object, str], list[tuple[bool, int, str]]] = {}
        for character in _characters(partial):
            kind = tuple(
                tuple(map(len, _native.split(f"{side}{character}{side}", scanner)))
                for scanner in self._scanners
                for side in ("a", "!", "0", " ")
            )
            # First those of which a token ends with `partial`, and of them those that are the most tokens.
            lengths = [len(self._tokenizer.vocab[i]) for i in self._tokenizer.encode_ordinary(character)]
            joined = len(partial) not in itertools.accumulate(lengths)
            category = unicodedata.category(character)
            kinds.setdefault((kind, category), []).append((joined, -len(lengths), character))
        found = []
        for (_, category), ranked in kinds.items():
            few = [character for *_, character in sorted(ranked)[:_FEW]]
            found += few
            found += [few[0] + more for more in _BEHIND.get(category[0], "")]
        self._completed[partial] = found
        return found


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


def _seen(text: str) -> str:
    r"""The end of a text by which the named patterns cut before what follows.

    Runs are taken whole, with what stands before them: where digits are cut depends on where they begin, and whether a
    line's end takes spaces with it on the line before.

    >>> _seen("so it is\n         "), _seen("it is 1234567890")
    ('is\n         ', 's 1234567890')
    """
    start = len(text) - _SEEN
    if start <= 0:
        return text
    run = _run(text[start])
    while run and start and _run(text[start - 1]) == run:
        start -= 1
    return text[max(0, start - 2) :]


@lru_cache(maxsize=1 << 16)
def _run(character: str) -> str:
    """Digits, white space, and all that is no letter; empty for letters, of which no pattern counts more than two."""
    kind = unicodedata.category(character)[0]
    return "" if kind == "L" else "N" if kind == "N" else "Z" if character.isspace() else "P"


@lru_cache(maxsize=1 << 18)
def _kinds(text: str) -> str:
    """The text with characters replaced by others of the same kind, but for those that a rule knows by name.

    Runs of letters are cut to two: no rule counts them. Other runs lose periods.
    """
    kinds = "".join(map(_representative, text))
    # Contractions, and exponents: "'ll", "1e5".
    named = [m.span() for m in _NAMED.finditer(text)]
    for start, end in named:
        kinds = kinds[:start] + text[start:end] + kinds[end:]
    kinds = kinds if named else _RUNS.sub(r"\1\1", kinds)
    return _LONG.sub(lambda run: run[0][: _PERIOD + len(run[0]) % _PERIOD], kinds)


@lru_cache(maxsize=1 << 16)
def _representative(character: str) -> str:
    if character.isascii():
        if character.isalpha():
            return "A" if character.isupper() else "a"
        return "0" if character.isdigit() else ":" if character in "$&(;<=>@[\\^`{|}~" else character
    found = {"Lu": "Ꙛ", "Ll": "ꙛ", "Lo": "ꀀ", "Lt": "ǅ", "Lm": "ʰ", "Nd": "᠑", "Nl": "᠑", "No": "᠑"}
    return found.get(unicodedata.category(character), character)

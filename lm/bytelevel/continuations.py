"""Representative continuations of a text: one for each way in which what follows changes how the text is pretokenized.

Whether a token sequence is a prefix of some text's encoding depends on what follows: the scanner splits "a   " into
"a", "   " at the end of a text, but into "a", "  ", " b" before a "b". There are infinitely many continuations, but
only a few ways in which they affect the cuts before them. `Continuations` finds these by trying characters of all
classes.

A continuation with which the encoder produces the sequence proves that the sequence is canonical. Finding none proves
the opposite only if the representatives cover everything that the pattern distinguishes. They do for the named
patterns, which look ahead at a few characters of known classes. Other regexes may make finer distinctions; the
characters that they name are tried too, but sequences that need another continuation are missed.
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

# Character classes that patterns distinguish. Some letters and digits are so rare that hardly any merge contains them:
# a piece that continues past the text can then still have a token boundary where the text ends.
_LETTERS = ["a", "Z", "ꙛ", "Ꙛ", "ꀀ", "ǅ", "ʰ"]
_DIGITS = ["0", "᠑", "½"]
_SPACES = [" ", "\n", "\r", "\t", "\u2005"]
_OTHERS = [".", "!", "'", "’", ",", "_", "%", "/", "-", "+", "#", '"', ")", ":", "⁂", "。", "」", "।", "\u0951"]
_EMOJI = ["🦀", "\ufe0f", "\u20e3", "\u200d", "🏽", "🇩", "\U000e0062", "\U000e007f"]
_SINGLE = [*_LETTERS, *_DIGITS, *_SPACES, *_OTHERS, *_EMOJI]
_PAIRED = ["a", "0", " ", "\n", "'", "."]
_CONTRACTED = ["s", "t", "m", "d", "ll", "re", "ve", "S", "T", "M", "D", "LL", "RE", "VE", "l", "r", "v"]
_CONTINUATIONS = [
    "",
    *_SINGLE,
    *("".join(pair) for pair in itertools.product(_PAIRED, repeat=2)),
    *(digit * n for digit in _DIGITS for n in (3, 4, 5)),
    *(f"{digit * n}{end}" for digit in _DIGITS[:2] for n in (2, 3) for end in ("a", ".", "%", "⁂")),
    *_CONTRACTED,
]
_SEEN = 8
"""Characters at the end of a text that the named patterns depend on, besides the run that these are in."""
_FEW = 6
"""Number of characters of a class to try as completions of a cut character."""
_AFTER = {"N": ("0", "00", "000", "᠑"), "Z": ("a", "\n"), "M": ("a",)}
_MOST = 1 << 16


class Continuations:
    """Continuations to try for one tokenizer.

    Args:
        tokenizer: The tokenizer whose scanners cut the text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        scanners = [tokenizer.pattern, tokenizer.fence] if tokenizer.mode == "two-pass" else []
        scanners = scanners or [tokenizer.pattern if tokenizer.fence is None else tokenizer.fence]
        self._scanners = [scanner.regex for scanner in scanners if scanner is not None]
        self._known = all(patterns.equivalent(regex) is not None for regex in self._scanners)
        # If whole pieces matter, a piece that continues and one that ends are different cases.
        self._local = not tokenizer.ignore_merges and tokenizer.eligible is None
        named = {c for regex in self._scanners for c in regex if c.isprintable() and not self._known}
        self._tried = self._unchanged("", [*_CONTINUATIONS, *sorted(named.difference(_CONTINUATIONS))])
        added = tokenizer.preparation.added_tokens
        # Special strings stay text, and hide added tokens inside them.
        self._hiding = tuple(tokenizer.special_tokens) if added else ()
        self._longest = max(map(len, self._hiding), default=0)
        found = sorted([*added, *self._hiding], key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, found))) if added else None
        self._grouped = lru_cache(_MOST)(self._groups)
        self._completed = lru_cache(_MOST)(self._completions)

    def groups(self, text: str, partial: bytes) -> list[list[bytes]]:
        """Continuations of `text + partial`, grouped by how the scanners then cut the text.

        A token sequence that spells the text is canonical if and only if the encoder produces it with a continuation.
        All continuations of a group lead to the same sequence; usually the first one suffices.

        Args:
            text: Whole characters.
            partial: The start of a character, or nothing; the continuations complete it.
        """
        hidden, text = self._hidden(text, partial), self._after_added(text)
        # The key itself is tried, so all texts with the same key have the same groups.
        combining = _combining(text) if partial and self._tokenizer.changes_text else ""
        return self._grouped(_seen(text) if self._known else text, combining, partial) + hidden

    def _after_added(self, text: str) -> str:
        """The text after the last added token in it, which the scanner sees alone."""
        start = 0
        for match in self._found.finditer(text) if self._found else ():
            if match[0] in self._tokenizer.preparation.added_tokens:
                start = match.end()
        return text[start:]

    def _hidden(self, text: str, partial: bytes) -> list[list[bytes]]:
        """Continuations that complete a special string at the end of the text."""
        ends = (text[-size:] for size in range(1, min(len(text) + 1, self._longest)))
        rests = [s[len(end) :] for end in ends for s in self._hiding if s.startswith(end) and s != end]
        texts = [(rest + more).encode() for rest in rests for more in ("", *_PAIRED)]
        found = [data[len(partial) :] for data in texts if data.startswith(partial)]
        return [found] if found else []

    def _groups(self, text: str, combining: str, partial: bytes) -> list[list[bytes]]:
        if not self._scanners[0] and len(self._scanners) == 1 and not partial:
            return [[b""], *([] if self._local else [[c.encode() for c in _SINGLE]])]  # nothing is ever cut
        end = len(text)
        groups: dict[object, tuple[list[str], list[str]]] = {}
        for more in self._completed(combining, partial) if partial else self._tried:
            inside = []
            ends = not partial
            for scanner in self._scanners:
                cuts = list(itertools.accumulate(map(len, _native.split(text + more, scanner)), initial=0))
                inside.append(tuple(cut for cut in cuts if cut < end or (partial and cut == end)))
                ends = ends and end in cuts
            groups.setdefault(tuple(inside), ([], []))[not ends].append(more)
        result = []
        for ended, going in groups.values():
            if not (ended and ended[0] and self._found):  # otherwise the first one may complete an added token
                ended = ended[:1]
            # If all pieces end with the text, what follows does not matter.
            parts = [ended] if self._local and ended else [ended, going]
            result += [[more.encode()[len(partial) :] for more in part] for part in parts if part]
        return result

    def _unchanged(self, text: str, continuations: list[str]) -> list[str]:
        """The continuations that leave normalized text as it is, and that normalization leaves as they are."""
        normalized = self._tokenizer.normalized(_native.Batch.from_texts([text + more for more in continuations]))
        return [more for i, more in enumerate(continuations) if normalized.text(i) == text + more]

    def _completions(self, combining: str, partial: bytes) -> list[str]:
        """Characters that begin with `partial`: a few of each class, alone and followed by others."""
        kinds: dict[tuple[object, str], list[tuple[bool, int, str]]] = {}
        for character in self._unchanged(combining, _characters(partial)):
            kind = tuple(
                tuple(map(len, _native.split(f"{side}{character}{side}", scanner)))
                for scanner in self._scanners
                for side in ("a", "!", "0", " ")
            )
            # Prefer characters with a token boundary after `partial`, and among these the ones with the most tokens.
            lengths = [len(self._tokenizer.vocab[i]) for i in self._tokenizer.encode_ordinary(character)]
            joined = len(partial) not in itertools.accumulate(lengths)
            category = unicodedata.category(character)
            kinds.setdefault((kind, category), []).append((joined, -len(lengths), character))
        completions = []
        for (_, category), ranked in kinds.items():
            few = [character for *_, character in sorted(ranked)[:_FEW]]
            completions += few
            completions += [few[0] + more for more in _AFTER.get(category[0], "")]
        return completions


@cache
def _characters(partial: bytes) -> list[str]:
    """All characters that begin with the bytes if one byte is missing; otherwise samples from each block of 64."""
    missing = (2 if partial[0] < 0xE0 else 3 if partial[0] < 0xF0 else 4) - len(partial)
    tails = [bytes([byte]) for byte in range(0x80, 0xC0)]
    few = [tails[i] for i in (0, 9, 35, 63)]
    characters = []
    for tail in itertools.product(*([tails, few, few][:missing])):
        try:
            characters.append((partial + b"".join(tail)).decode())
        except UnicodeDecodeError:  # overlong, a surrogate, beyond U+10FFFF
            continue
    return characters


def _seen(text: str) -> str:
    r"""The end of a text that decides how the named patterns cut before what follows.

    Runs are kept whole, with the characters before them: digits are cut from where they begin, and whether a line break
    takes spaces with it depends on the line before.

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


def _combining(text: str) -> str:
    """The last character and combining marks after it, which normalization may change together with what follows."""
    start = len(text) - 1
    while start > 0 and unicodedata.combining(text[start]):
        start -= 1
    return text[max(0, start) :]


@lru_cache(maxsize=1 << 16)
def _run(character: str) -> str:
    """Class of a character in a run; empty for letters, of which no pattern counts more than two."""
    kind = unicodedata.category(character)[0]
    if kind in "LN":
        return "" if kind == "L" else "N"
    return "Z" if character.isspace() else "P"

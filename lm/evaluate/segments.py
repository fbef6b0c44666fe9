"""Text between the token boundaries that two tokenizers share, and its classes.

The loss of such a segment is a sum over whole tokens in both models. So the difference between the losses of a document
is exactly the sum of the differences of its segments.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = (
    "words",
    "superwords",
    "numbers",
    "punctuation",
    "line ends and indentation",
    "URLs and paths",
    "identifiers",
    "other scripts",
    "mixed",
    "untrained tokens",
)
"""Classes of segments; `classes` describes them."""
_WORDS, _SUPERWORDS, _NUMBERS, _PUNCTUATION, _LINES, _URLS, _IDENTIFIERS, _SCRIPTS, _MIXED, _UNTRAINED = range(
    len(CLASSES)
)
_MAJORITY = 2 / 3
"""Share of a segment's bytes that determines its class."""
_LETTER = r"[^\W\d_]"
_IN_URL, _IN_PART, _IN_NAME = (rf"[^\s\"'`<>()\[\]{{}},;|*\u2018\u2019\u201c\u201d{end}]" for end in ("", "/", "@"))
"""Characters of URLs and paths, of one part of a path, and of the name in an e-mail address."""
# Matches begin only where a word or an address does, and take linear time from there.
_NAMES = (
    r"\w{2,}+(?:\.[^\W\d]\w++)++",
    rf"(?=\w*_)(?=\w*{_LETTER})\w++",
    r"(?=\w*[a-z][A-Z]|[^\W\d]\w*\d)\w++",
    r"[^\W\d]\w*+(?=\()",
)
_ADDRESSES = (
    rf"(?={_IN_URL}*:(?://|\\))",
    rf"(?={_IN_PART}*+/++{_IN_PART}++/)",
    rf"(?={_IN_PART}*+/)(?={_IN_URL}*(?:_|\w\.\w))",
    rf"(?={_IN_NAME}*+(?<=\w)@{_IN_URL}*\w\.\w)",
)
_PATTERNS = {
    _WORDS: rf"(?<={_LETTER})['\u2019](?={_LETTER})",
    _NUMBERS: r"\b\d\w*+(?:[.,]\d\w*+)*+",
    _IDENTIFIERS: rf"\b(?:{'|'.join(_NAMES)})",
    _URLS: rf"(?<!{_IN_URL})(?={_IN_URL}*{_LETTER})(?:{'|'.join(_ADDRESSES)}){_IN_URL}*[\w/]",
}
"""Text whose class does not follow from each character alone, as described by `labels`; later patterns override."""


class Segments(NamedTuple):
    """Segments of a text, in order.

    Attributes:
        starts: int64[n_segments], position of the first byte.
        stops: int64[n_segments], position after the last byte.
        of_tokens: For each tokenizer, int64[n_tokens], the segment of each token.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    of_tokens: tuple[NDArray[np.int64], ...]


def shared_segments(
    text: NDArray[np.uint8], documents: NDArray[np.int64], ends: tuple[NDArray[np.int64], ...]
) -> Segments:
    """Cut documents at the boundaries of characters at which tokens of all tokenizers end.

    Args:
        text: uint8[n_bytes], UTF-8 bytes of documents that are not empty, with one byte between two of them.
        documents: int64[n_documents, 2], positions of the first byte of each document and after its last one.
        ends: For each tokenizer, int64[n_tokens], position after the last byte of each token, not decreasing. The last
            token of a document ends with it.
    """
    shared = np.append((text & 0xC0) != 0x80, True)
    shared[documents[:, 0]] = False  # tokens without bytes may end there
    for of_tokenizer in ends:
        marked = np.zeros(len(shared), bool)
        marked[of_tokenizer] = True
        shared &= marked
    stops = np.flatnonzero(shared)
    starts = np.append(0, stops[:-1])
    first = np.searchsorted(stops, documents[:, 1])[:-1] + 1
    starts[first] = documents[1:, 0]
    return Segments(starts, stops, tuple(np.searchsorted(stops, of_tokenizer) for of_tokenizer in ends))


def classes(
    labelled: NDArray[np.uint8], segments: Segments, superword: NDArray[np.bool_], untrained: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Class of each segment, int64[n_segments], an index into `CLASSES`.

    A segment with a token that its models never met in training belongs to the untrained tokens: it shows how small
    the budget is, and not how good the vocabulary. One with a superword belongs to the superwords. White space with a
    line end and punctuation belongs to the line ends. Any other segment has the class of at least two thirds of its
    bytes, or is mixed.

    Args:
        labelled: uint8[n_bytes], class of each byte (`labels`).
        segments: The segments.
        superword: bool[n_segments], whether a token of the segment is a superword.
        untrained: bool[n_segments], whether a token of the segment was never a target in training.
    """
    counts = np.array([np.add.reduceat(labelled == i, segments.starts, dtype=np.int32) for i in range(_MIXED)])
    sizes = segments.stops - segments.starts
    found = np.where(counts.max(0) >= _MAJORITY * sizes, counts.argmax(0), _MIXED)
    found[(counts[_LINES] > 0) & (counts[_LINES] + counts[_PUNCTUATION] == sizes)] = _LINES
    found[superword] = _SUPERWORDS
    found[untrained] = _UNTRAINED
    return found


def labels(text: str) -> NDArray[np.uint8]:
    """Class of each UTF-8 byte of a text, uint8[n_bytes], by its character and what surrounds it.

    - A space belongs to the text that directly follows it. All other white space is a line end or indentation.
    - Letters are words, or of another script than Latin. So are apostrophes inside words.
    - Names with an underscore, an inner capital, digits or a dot between letters, or before a parenthesis are
      identifiers. Letters after digits, as in `0x1F`, belong to the number.
    - URLs and paths have `://`, two slashes, or one slash with an inner dot or underscore; or they are e-mail
      addresses, or begin with a drive of Windows.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    present = np.flatnonzero(np.bincount(codes, minlength=1))
    table = np.zeros(int(present.max(initial=0)) + 1, np.uint8)
    table[present] = [_label(chr(code)) for code in present.tolist()]
    found = table[codes]
    space = found == _LINES
    for label, pattern in _PATTERNS.items():
        for match in re.finditer(pattern, text):
            found[match.start() : match.end()] = label
    before_text = np.flatnonzero((codes == ord(" ")) & ~np.append(space[1:], True))
    found[before_text] = found[before_text + 1]
    return np.repeat(found, 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000))


def _label(character: str) -> int:
    """Class of a character by itself."""
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    if character.isspace():
        return _LINES
    if category[0] in "LM":
        return _WORDS if "LATIN" in name or "COMBINING" in name or character in "ªº" else _SCRIPTS
    return _NUMBERS if category[0] == "N" else _PUNCTUATION

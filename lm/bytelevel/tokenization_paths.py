"""Canonical covers of a byte string: the token sequences by which a text that begins with it can begin.

A token sequence is *canonical* if it is the beginning of the tokenizer's encoding of some text. It *covers* a byte
string if it spells it, or more: all tokens but the last end inside the string, and the last one reaches its end or
goes on behind it. The probability that a text begins with the string is the sum over its canonical covers (Hayase,
Liu, Smith and Oh, "Sampling from Your Language Model One Byte at a Time", 2025, arXiv 2506.14123, section 3: the covers
form a tree that is narrow, because where a text is long enough the encoder has hardly a choice).

Here the encoder itself is asked, so that every rule of it holds: pretokens and what they look ahead at, the fence, one
pass or two, whole pieces. Each pair of a place and a token that reaches the string's end from there is put to the
encoder, with continuations that stand for all others (`lm.bytelevel.continuations`).
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.bytelevel.continuations import Continuations
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tokenizer.tokenizer import Tokenizer

Path = tuple[int, ...]
_REMEMBERED = 512  # texts whose covers are kept: prompts and their answers are asked for several times


class PathGroup(NamedTuple):
    """TokenizationPaths that differ in their last token only.

    Attributes:
        path: The tokens before the last.
        start: Where the last token starts in the string, in bytes.
        last: int64[n], ids of the last tokens; each begins with the rest of the string, and may be longer.
    """

    path: Path
    start: int
    last: NDArray[np.int64]


class TokenizationPaths:
    """Finds covers for one tokenizer.

    Args:
        tokenizer: Ours; special strings are ordinary text.

    Attributes:
        checked: How many candidates the encoder has judged so far.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.checked = 0
        ids = sorted(tokenizer.ordinary_ids().tolist(), key=lambda i: tokenizer.vocab[i])
        self._ids = np.array(ids, np.int64)
        self._tokens = [tokenizer.vocab[i] for i in ids]
        self._places = np.full(tokenizer.vocab_size, -1, np.int64)
        self._places[self._ids] = np.arange(len(ids))
        self._longest = max(map(len, self._tokens))
        self._lengths = tokenizer.token_byte_lengths().astype(np.int64)
        self._witnesses = Continuations(tokenizer)
        self._found: OrderedDict[tuple[bytes, int], list[PathGroup]] = OrderedDict()

    def settle(self, data: bytes) -> tuple[list[int], bytes]:
        """The ids that begin the encoding of every text that begins with `data`, and the bytes behind them.

        Covers of `data` are these ids followed by a cover of those bytes. There may be more ids that all covers share:
        these are those of which the tokenizer knows it beforehand.
        """
        text, partial = split_utf8(data)
        certain: list[int] = []
        over = False

        def parts() -> Iterator[str]:
            nonlocal over
            yield text
            over = True  # what comes now rests on the end of the text

        for ids in self.tokenizer.encode_iter(parts()):
            if over:
                break
            certain += ids.tolist()
        return certain, data[int(self._lengths[certain].sum()) :] if certain else text.encode() + partial

    def covering(self, data: bytes) -> list[PathGroup]:
        """All canonical covers of `data`; none have the empty string, which no token is needed for.

        Raises:
            UserError: `data` is no beginning of UTF-8, which the tokenizer could encode.
        """
        return self._search(data, max(0, len(data) - self._longest), len(data) - 1)

    def following(self, data: bytes, among: NDArray[np.int64] | None = None) -> list[PathGroup]:
        """All canonical sequences that spell `data` and then one more token, in the shape of `covering`.

        Args:
            data: Beginning of UTF-8.
            among: int64[n], ids of the tokens to try as the last one; all by default.
        """
        if among is None:
            return self._search(data, len(data), len(data))
        split_utf8(data)
        found = ((len(data), path, token) for path, token in self._judge(data, np.sort(self._places[among]).tolist()))
        return _grouped(found)

    def encoding(self, data: bytes) -> Path | None:
        """The tokens of `data` as a whole text, which may end there; None if it ends inside a character."""
        text, partial = split_utf8(data)
        return None if partial else tuple(self.tokenizer.encode_ordinary(text))

    def reaching(self, rest: bytes) -> NDArray[np.int64]:
        """Ids of the tokens that begin with `rest`, canonical or not."""
        return self._ids[self._range(rest)]

    def _search(self, data: bytes, first: int, last: int) -> list[PathGroup]:
        key = data, last
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        split_utf8(data)
        groups = _grouped(
            (start, path, token)
            for start in range(first, last + 1)
            for path, token in self._judge(data[:start], range(*self._range(data[start:]).indices(len(self._ids))))
        )
        self._found[key] = groups
        if len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)
        return groups

    def _range(self, rest: bytes) -> slice:
        """Where in the sorted tokens those are that begin with `rest`."""
        begin = bisect.bisect_left(self._tokens, rest)
        above = rest.rstrip(b"\xff")  # the least string above all that begin with `rest`
        if not above:
            return slice(begin, len(self._tokens))
        above = above[:-1] + bytes([above[-1] + 1])
        return slice(begin, bisect.bisect_left(self._tokens, above))

    def _judge(self, head: bytes, candidates: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        """The path (as uint32 bytes) that leads to each candidate behind `head`, where the encoder has such.

        Args:
            head: What stands before the token.
            candidates: Places among the sorted tokens.
        """
        # Of each group of continuations the first; the others only where it proved nothing.
        waiting: list[tuple[int, str, bytes, list[bytes]]] = []
        head_text = _text_or_none(head)
        for index in candidates:
            token = self._tokens[index]
            self.checked += 1
            whole = None if head_text is None else _text_or_none(token)
            if whole is not None:
                text, partial = f"{head_text}{whole}", b""
            else:
                try:
                    text, partial = split_utf8(head + token)
                except UserError:  # no text is spelled so
                    continue
            waiting += [(index, text, partial, group) for group in self._witnesses.groups(text, partial)]
        attempt = 0
        while waiting:
            texts = [
                text + group[attempt].decode() if not partial else text + (partial + group[attempt]).decode()
                for _, text, partial, group in waiting
            ]
            ids, offsets = self.tokenizer.encode_batch(texts, threads=1)
            ends = np.cumsum(self._lengths[ids])
            starts = ends - self._lengths[ids]
            # Where each text begins, in bytes of all; then whether the candidate stands at its place.
            origin = np.concatenate([[0], ends])[offsets[:-1]]
            places = np.minimum(np.searchsorted(starts, origin + len(head)), len(ids) - 1)
            wanted = self._ids[[index for index, *_ in waiting]]
            proved = (starts[places] == origin + len(head)) & (ids[places] == wanted)
            for i in np.flatnonzero(proved):
                yield ids[offsets[i] : places[i]].tobytes(), int(wanted[i])
            attempt += 1
            waiting = [job for job, found in zip(waiting, proved, strict=True) if not found and attempt < len(job[3])]


def _grouped(found: Iterable[tuple[int, bytes, int]]) -> list[PathGroup]:
    paths: dict[tuple[int, bytes], set[int]] = {}
    for start, path, token in found:
        paths.setdefault((start, path), set()).add(token)
    return [
        PathGroup(tuple(np.frombuffer(path, np.uint32).tolist()), start, np.array(sorted(tokens), np.int64))
        for (start, path), tokens in sorted(paths.items())
    ]


def split_utf8(data: bytes) -> tuple[str, bytes]:
    r"""Whole characters, and the beginning of one that is cut at the end.

    Raises:
        UserError: No text begins with these bytes.

    >>> split_utf8("né".encode()[:2])
    ('n', b'\xc3')
    """
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        # "unexpected end of data" is what Python says of a character that only lacks bytes.
        if error.reason != "unexpected end of data":
            raise UserError(
                f"no text begins with the bytes {data[max(0, error.start - 8) : error.end]!r}: they are not UTF-8"
            ) from None
        return data[: error.start].decode(), data[error.start :]


def _text_or_none(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None

"""Canonical tokenization paths of a byte string: how the encoding of a text that begins with the string can begin.

A token sequence is *canonical* if it is a prefix of the tokenizer's encoding of some text. It *covers* a byte string if
all tokens but the last end inside the string and the last one reaches its end or extends past it. The probability that
a text begins with the string is the sum over its canonical covering sequences (Hayase, Liu, Smith and Oh, "Sampling
from Your Language Model One Byte at a Time", 2025, arXiv 2506.14123, section 3). They form a narrow tree, because on
long texts the encoder has few choices.

The encoder itself decides what is canonical, so all its rules hold: pretokens and their look-ahead, the fence, one pass
or two, whole pieces. Every token that can reach the end of the string is tried at every position, followed by
representative continuations (`lm.bytelevel.continuations`).
"""

from __future__ import annotations

import bisect
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.bytelevel.continuations import Continuations
from tokenizer import Batch
from tokenizer.errors import UserError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tokenizer.tokenizer import Tokenizer

Path = tuple[int, ...]


class PathGroup(NamedTuple):
    """Paths that differ only in their last token.

    Attributes:
        prefix: The tokens before the last.
        start: Byte offset in the string at which the last token starts.
        last: int64[n], ids of the last tokens; each begins with the rest of the string and may be longer.
    """

    prefix: Path
    start: int
    last: NDArray[np.int64]


class TokenizationPaths:
    """Finds the canonical paths of one tokenizer.

    Args:
        tokenizer: The tokenizer; special strings are ordinary text. If it normalizes text, all byte strings below are
            of normalized text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = sorted(tokenizer.text_ids().tolist(), key=lambda i: tokenizer.vocab[i])
        self._ids = np.array(ids, np.int64)
        self._tokens = [tokenizer.vocab[i] for i in ids]
        self._places = np.full(tokenizer.vocab_size, -1, np.int64)
        self._places[self._ids] = np.arange(len(ids))
        self._longest = max(map(len, self._tokens))
        self.lengths = tokenizer.token_byte_lengths().astype(np.int64)
        self._continuations = Continuations(tokenizer)
        # Prompts and their answers are looked up several times.
        self.find = lru_cache(maxsize=512)(self._find)

    def normalized(self, data: bytes) -> bytes:
        """The bytes after the tokenizer's normalization; a character that is cut off at the end does not change.

        Raises:
            UserError: If `data` is not a prefix of valid UTF-8.
        """
        text, partial = split_utf8(data)
        return self.tokenizer.normalized(Batch.from_texts([text])).text(0).encode() + partial

    def stable_prefix(self, data: bytes) -> tuple[list[int], bytes]:
        """Ids with which every text that begins with `data` starts, and the bytes of `data` after them.

        The paths of `data` are these ids followed by the paths of those bytes. All paths may share more ids than the
        tokenizer knows in advance.
        """
        text, _ = split_utf8(data)
        certain: list[int] = []
        over = False

        def parts() -> Iterator[str]:
            nonlocal over
            yield text
            over = True  # the remaining ids depend on the end of the text

        for ids in self.tokenizer.encode_iter(parts()):
            if over:
                break
            certain += ids.tolist()
        return certain, data[int(self.lengths[certain].sum()) :]

    def _find(self, data: bytes) -> list[PathGroup]:
        """All canonical paths that cover `data`; for the empty string a single one, without a last token.

        Raises:
            UserError: If no text, or no normalized text, begins with `data`.
        """
        if not data:
            return [PathGroup((), 0, np.empty(0, np.int64))]
        split_utf8(data)
        groups = _group(
            (start, path, token)
            for start in range(max(0, len(data) - self._longest), len(data))
            for path, token in self._canonical(data[:start], self._range(data[start:]))
        )
        if not groups:
            raise UserError(f"no normalized text begins with {quoted(data)}; end it with a whole character")
        return groups

    def extend(self, data: bytes, among: NDArray[np.int64] | None = None) -> list[PathGroup]:
        """All canonical sequences that spell `data` followed by one more token, grouped as by `find`.

        Args:
            data: A prefix of valid UTF-8.
            among: int64[n], ids to try as the last token; None for all.
        """
        candidates = range(len(self._ids)) if among is None else np.sort(self._places[among]).tolist()
        return _group((len(data), path, token) for path, token in self._canonical(data, candidates))

    def encoding(self, data: bytes) -> Path | None:
        """The encoding of `data` as a complete text; None if it ends inside a character."""
        text, partial = split_utf8(data)
        return None if partial else tuple(self.tokenizer.encode_ordinary(text))

    def _range(self, rest: bytes) -> range:
        """Indices of the sorted tokens that begin with `rest`."""
        begin = bisect.bisect_left(self._tokens, rest)
        return range(begin, bisect.bisect_right(self._tokens, rest + b"\xff" * self._longest))

    def _canonical(self, head: bytes, candidates: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        """Ids before a candidate, as uint32 bytes, and its id, for each that is canonical after the bytes `head`.

        Candidates are indices into the sorted tokens.
        """
        # Try the first continuation of each group, and the others only if it proves nothing.
        waiting: list[tuple[int, str, bytes, list[bytes]]] = []
        for index in candidates:
            try:
                text, partial = split_utf8(head + self._tokens[index])
            except UserError:  # not valid UTF-8
                continue
            waiting += [(index, text, partial, group) for group in self._continuations.groups(text, partial)]
        attempt = 0
        while waiting:
            texts = [text + (partial + group[attempt]).decode() for _, text, partial, group in waiting]
            ids, offsets = self.tokenizer.encode_batch(texts, threads=1)
            ends = np.cumsum(self.lengths[ids])
            starts = ends - self.lengths[ids]
            # Byte offset of each text in the batch; then whether the candidate is the token at its offset.
            origin = np.concatenate([[0], ends])[offsets[:-1]]
            places = np.minimum(np.searchsorted(starts, origin + len(head)), len(ids) - 1)
            wanted = self._ids[[index for index, *_ in waiting]]
            proved = (starts[places] == origin + len(head)) & (ids[places] == wanted)
            if self.tokenizer.changes_text:
                # Normalization may have changed the head, or shortened the text so that the place is in the next one.
                proved &= places < offsets[1:]
                for i in np.flatnonzero(proved):
                    proved[i] = self.tokenizer.decode_bytes(ids[offsets[i] : places[i]]) == head
            for i in np.flatnonzero(proved):
                yield ids[offsets[i] : places[i]].tobytes(), int(wanted[i])
            attempt += 1
            waiting = [job for job, done in zip(waiting, proved, strict=True) if not done and attempt < len(job[3])]


def _group(triples: Iterable[tuple[int, bytes, int]]) -> list[PathGroup]:
    paths: dict[tuple[int, bytes], set[int]] = {}
    for start, path, token in triples:
        paths.setdefault((start, path), set()).add(token)
    return [
        PathGroup(tuple(np.frombuffer(path, np.uint32).tolist()), start, np.array(sorted(tokens), np.int64))
        for (start, path), tokens in sorted(paths.items())
    ]


def split_utf8(data: bytes) -> tuple[str, bytes]:
    r"""Split bytes into whole characters and the start of a character that is cut off at the end.

    Raises:
        UserError: If the bytes are not a prefix of valid UTF-8.

    >>> split_utf8("né".encode()[:2])
    ('n', b'\xc3')
    """
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        # Python's reason for a character that is cut off.
        if error.reason != "unexpected end of data":
            raise UserError(
                f"no text begins with the bytes {data[max(0, error.start - 8) : error.end]!r}: they are not UTF-8"
            ) from None
        return data[: error.start].decode(), data[error.start :]

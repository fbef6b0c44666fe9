"""A range of an uncompressed file: a piece of it that can be read apart from the rest.

The ranges of a file that touch each other contain each line, or each row group, exactly once. They are chosen without
reading the file: a task finds the first line feed, or the row groups, of its range itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokenizer.corpus.remote import BLOCK_BYTES, File, RemoteFile
from tokenizer.corpus.skipped import shifted
from tokenizer.durable import naming
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

_TAIL_BYTES = 1 << 16
_LINE_FEED = ord("\n")


@dataclass
class Range:
    """Lines or row groups of a file.

    Lines: the bytes from the first line feed at or after `start` (if `start` is 0: from the start of the file) up to
    the first line feed at or after `end`. So a range but the first begins with the line feed of the line before it.
    Row groups: those whose middle is in the range, when the file is divided in proportion to their sizes.

    Attributes:
        file: the file.
        start, end: bytes.
        size: size of the file.
        line_feeds: number of line feeds in the range, once it has been read.
    """

    file: File
    start: int
    end: int
    size: int
    line_feeds: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return str(self.file)

    def __hash__(self) -> int:
        return hash((self.file, self.start, self.end))

    def blocks(self) -> Generator[bytes]:
        """The bytes of the lines, in blocks; see `RemoteFile.blocks`."""
        self.line_feeds = 0
        begun = self.start == 0
        for block in self._between(self.start, self.end):
            found = 0 if begun else block.find(b"\n")
            if found < 0:
                continue
            begun = True
            self.line_feeds += int(np.count_nonzero(np.frombuffer(block, np.uint8, offset=found) == _LINE_FEED))
            yield block[found:] if found else block
        if not begun:
            return
        at, size = self.end, _TAIL_BYTES
        while at < self.size:
            tail = b"".join(self._between(at, min(at + size, self.size)))
            found = tail.find(b"\n")
            yield tail if found < 0 else tail[:found]
            if found >= 0:
                return
            at, size = at + len(tail), min(2 * size, BLOCK_BYTES)

    def _between(self, start: int, end: int) -> Iterator[bytes]:
        if isinstance(self.file, RemoteFile):
            yield from self.file.blocks(start, end)
            return
        with naming(self.file), self.file.open("rb") as file:
            file.seek(start)
            for at in range(start, end, BLOCK_BYTES):
                length = min(BLOCK_BYTES, end - at)
                if len(block := file.read(length)) < length:
                    raise UserError(f"the file ended at byte {at + len(block)} of {self.size}")
                yield block

    def row_groups(self, sizes: Sequence[int]) -> range:
        """The row groups of the range, given the sizes of all row groups of the file."""
        total, before = sum(sizes), 0
        chosen = []
        for i, each in enumerate(sizes):
            middle = (2 * before + each) * self.size // (2 * total) if total else 0
            if self.start <= min(middle, self.size - 1) < self.end:
                chosen.append(i)
            before += each
        return range(chosen[0], chosen[-1] + 1) if chosen else range(0)

    def explained(self, error: UserError) -> UserError:
        """An error of the reader, with the number of its line counted from the start of the file."""
        shift = self._line_feeds_before() if self.start else 0
        return UserError(f"{self}: {shifted(str(error).removeprefix(f'{self}: '), shift)}")

    def _line_feeds_before(self) -> int:
        before = Range(self.file, 0, self.start, self.size)
        for _ in before.blocks():
            pass
        return before.line_feeds


def ranges(file: File, size: int, target_bytes: int) -> list[Range]:
    """Equal ranges of about `target_bytes` that together are the file."""
    n = max(1, round(size / target_bytes))
    cuts = [size * i // n for i in range(n + 1)]
    return [Range(file, start, end, size) for start, end in pairwise(cuts)]

"""Counting pretokens in several processes: a file is cut where special tokens begin.

The parallel pretokenization of the CS336 trainer.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizer.reference import count_pretokens

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO


def chunk_boundaries(file: BinaryIO, n_chunks: int, special_token: bytes, *, window: int = 4096) -> list[int]:
    """Where to cut a file into about equal chunks that begin with a special token.

    Each of the evenly spaced places is moved on to the next special token, or to the end of the file; places
    that meet are one. Reads only what it searches, a window at a time. (The source's windows do not overlap,
    and so miss a special token that lies across two of them; its chunks are valid, but uneven.)

    Args:
        file: open for reading bytes.
        n_chunks: how many chunks at most.
        special_token: what chunks begin with.
        window: bytes to read at a time.

    Returns:
        0, the cuts, and the size of the file, in bytes, ascending.
    """
    size = file.seek(0, os.SEEK_END)
    cuts = {0, size}
    for number in range(1, n_chunks):
        place = size * number // n_chunks
        file.seek(place)
        seen = b""
        while read := file.read(window):
            seen += read
            found = seen.find(special_token)
            if found >= 0:
                cuts.add(place + found)
                break
            # What may be the beginning of the special token stays.
            kept = max(len(seen) - len(special_token) + 1, 0)
            place, seen = place + kept, seen[kept:]
    return sorted(cuts)


def cutting_token(special_tokens: Sequence[str]) -> str:
    """The special token to cut at: the first whose every occurrence is one, in whatever it may stand.

    Where another special token ends with the first's beginning, or holds it, the leftmost or longest match may
    swallow an occurrence, and a cut there would change what is counted. A token that repeats the first (as
    `<s><s>` repeats `<s>`) is harmless: all of it is removed either way.

    Raises:
        ValueError: there is none.
    """

    def hidden(token: str, other: str) -> bool:
        rests = [other[start:] for start in range(1, len(other))]
        overlaps = any(rest.startswith(token) or token.startswith(rest) for rest in rests)
        return overlaps and (token == other or other.replace(token, "") != "")

    for token in special_tokens:
        if not any(hidden(token, other) for other in special_tokens):
            return token
    msg = (
        f"special_tokens={list(special_tokens)!r} holds none at which a file can be cut into chunks: each may overlap "
        "another, or there is none; add a separator such as '<|endoftext|>', or count in one process"
    )
    raise ValueError(msg)


def _count_chunk(
    span: tuple[int, int], path: str, pattern: str | None, special_tokens: Sequence[str]
) -> Counter[bytes]:
    start, stop = span
    with Path(path).open("rb") as file:
        file.seek(start)
        text = file.read(stop - start).decode()
    return count_pretokens([text], pattern, special_tokens=special_tokens)


def count_file(
    path: str | Path, pattern: str | None, *, special_tokens: Sequence[str], workers: int = 4
) -> Counter[bytes]:
    """How often each pretoken of a text file occurs, counted by worker processes; equal to `count_pretokens`.

    Args:
        path: a UTF-8 text file in which special tokens stand between documents.
        pattern: the pretokenization pattern.
        special_tokens: strings that cut the text first and are not counted.
        workers: processes, and chunks. They are spawned, so a script needs `if __name__ == "__main__":`.

    Raises:
        ValueError: no special token can be cut at; see `cutting_token`.
    """
    with Path(path).open("rb") as file:
        spans = list(pairwise(chunk_boundaries(file, workers, cutting_token(special_tokens).encode())))
    job = partial(_count_chunk, path=str(path), pattern=pattern, special_tokens=tuple(special_tokens))
    total: Counter[bytes] = Counter()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for counts in pool.map(job, spans):
            total.update(counts)
    return total

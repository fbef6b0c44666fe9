"""The bytes of each token, and the limits of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.alphabet import NOT_IN_UTF8
from tokenizer.errors import UserError, quoted

NO_TOKEN = -1

LONGEST_TOKEN = 1 << 16
"""Most bytes of a token that merges make; merges of merges could otherwise ask for any amount of memory."""
_LONGEST_SPECIAL = 1 << 12  # finding strings in text is prepared in time that grows with the square of their length
MOST_BYTES = 1 << 26
"""Bytes of all tokens together. A merge takes few bytes of a file and may spell `LONGEST_TOKEN`, so that a small file
could otherwise ask for gigabytes; the largest vocabularies in use have less than 5 MB."""
MOST_IDS = 1 << 24  # ids may have gaps, so one id alone could ask for any amount of memory


def longest_token(max_bytes: int | None) -> int:
    """The most bytes of a new token: the limit that training is given, and never more than `LONGEST_TOKEN`."""
    return LONGEST_TOKEN if max_bytes is None else min(max_bytes, LONGEST_TOKEN)


def spell(
    byte_ids: Sequence[int],
    merge_ids: npt.NDArray[np.uint32],
    unmerged: Mapping[bytes, int],
    special_tokens: Mapping[str, int],
) -> list[bytes]:
    """Token bytes by id; b"" for ids that no token has.

    Raises:
        UserError: an id or the bytes of an ordinary token are taken, a merge joins what nothing makes, or tokens are
            too long.
    """
    if len(byte_ids) != 256:
        raise UserError(f"there are {len(byte_ids)} ids of bytes, not 256")
    largest = max(
        [*byte_ids, *unmerged.values(), *special_tokens.values(), int(merge_ids[:, 2].max(initial=0))], default=0
    )
    if largest >= MOST_IDS:
        raise UserError(f"id {largest} is out of range: ids are below {MOST_IDS}")
    vocab = [b""] * (largest + 1)
    left_over = (
        MOST_BYTES - 256 - sum(map(len, [*unmerged, *(string.encode(errors="replace") for string in special_tokens)]))
    )
    if left_over < 0:
        raise UserError(
            f"the tokens have more than {MOST_BYTES} bytes together, which is the most a vocabulary may have"
        )

    def put(token_id: int, spelling: bytes, what: str) -> None:  # into whichever list `vocab` is by then
        if token_id < 0 or vocab[token_id]:
            raise UserError(f"id {token_id} of {what} is out of range or taken (vocabulary of {len(vocab)} tokens)")
        vocab[token_id] = spelling

    for byte, token_id in enumerate(byte_ids):
        if token_id != NO_TOKEN or byte not in NOT_IN_UTF8:
            put(token_id, bytes([byte]), f"byte {byte}")
    for spelling, token_id in unmerged.items():
        if len(spelling) < 2:
            raise UserError(f"the token {quoted(spelling)} with id {token_id} is no merge, and has less than two bytes")
        put(token_id, spelling, f"token {quoted(spelling)}")
    spelled = _native.spell(vocab, np.ascontiguousarray(merge_ids).reshape(-1), LONGEST_TOKEN, left_over)
    if spelled is not None:
        vocab = spelled
    else:  # something is wrong with the merges: this says what
        _put_merges(merge_ids, vocab, put, left_over)
        _check_distinct(vocab)
    for string, token_id in special_tokens.items():
        if not string:
            raise UserError(f"the special token with id {token_id} is empty")
        try:
            spelling = string.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the special token {quoted(string)} holds half a surrogate pair, which no text does"
            ) from None
        if len(spelling) > _LONGEST_SPECIAL:
            raise UserError(
                f"the special token {quoted(string)} has more than {_LONGEST_SPECIAL} bytes; use a shorter string"
            )
        put(token_id, spelling, f"special token {quoted(string)}")
    return vocab


def _check_distinct(vocab: list[bytes]) -> None:
    # A file names a token by its bytes, so two ordinary tokens with the same ones could not be told apart.
    seen: set[bytes] = set()
    for token_id, spelling in enumerate(vocab):
        if spelling in seen:
            raise UserError(f"{quoted(spelling)} is spelled by two tokens, the second with id {token_id}")
        if spelling:
            seen.add(spelling)


def _put_merges(
    merge_ids: npt.NDArray[np.uint32], vocab: list[bytes], put: Callable[[int, bytes, str], None], left_over: int
) -> None:
    """Spells what merges make. Imported lists may use a token before the merge that makes it: those merges wait."""
    merges, size = merge_ids.tolist(), len(vocab)
    waiting: dict[int, list[int]] = {}
    for first in range(len(merges)):
        ready = [first]
        while ready:
            rank = ready.pop()
            left, right, new = merges[rank]
            missing = next((i for i in (left, right) if i >= size or not vocab[i]), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                continue
            token = vocab[left] + vocab[right]
            if len(token) > LONGEST_TOKEN:
                raise UserError(f"merge {rank} makes a token of more than {LONGEST_TOKEN} bytes")
            if vocab[new] != token:  # several merges may make the same token
                left_over -= len(token)
                if left_over < 0:
                    raise UserError(
                        f"the tokens up to merge {rank} of {len(merges)} have more than {MOST_BYTES} bytes together, "
                        "which is the most a vocabulary may have; train with fewer or shorter tokens (max_bytes)"
                    )
                put(new, token, f"merge {rank}")
                ready.extend(waiting.pop(new, ()))
    if waiting:
        rank = min(rank for ranks in waiting.values() for rank in ranks)
        left, right, _ = merges[rank]
        raise UserError(f"merge {rank} joins ids {left} and {right}, of which one does not exist yet")

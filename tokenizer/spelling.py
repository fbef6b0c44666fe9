"""The bytes of each token, and the limits of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenizer.alphabet import NOT_IN_UTF8
from tokenizer.errors import UserError, quoted

NO_TOKEN = -1

LONGEST_TOKEN = 1 << 16
"""Maximum length in bytes of a merged token. Without a limit, nested merges could require any amount of memory."""
_LONGEST_SPECIAL = 1 << 12  # preparing the search for strings takes time quadratic in their length
MOST_BYTES = 1 << 26
"""Maximum total size of all tokens in bytes. A merge takes few bytes in a file but may spell `LONGEST_TOKEN` bytes, so
a small file could otherwise require gigabytes. The largest vocabularies in use have less than 5 MB."""
MOST_IDS = 1 << 24  # ids may have gaps, so without a limit a single id could require any amount of memory


def longest_token(max_bytes: int | None) -> int:
    """Maximum length of a new token in bytes: the configured limit, capped at `LONGEST_TOKEN`."""
    return LONGEST_TOKEN if max_bytes is None else min(max_bytes, LONGEST_TOKEN)


def spell(
    byte_ids: Sequence[int],
    merge_ids: npt.NDArray[np.uint32],
    unmerged: Mapping[bytes, int],
    special_tokens: Mapping[str, int],
) -> list[bytes]:
    """Bytes of each token, by id; b"" for unused ids.

    Raises:
        UserError: two tokens have the same id, or two ordinary tokens the same bytes; a merge joins an id that does not
            exist; or tokens are too long.
    """
    if len(byte_ids) != 256:
        raise UserError(f"there are {len(byte_ids)} byte ids, not 256")
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
        raise UserError(f"the tokens have more than {MOST_BYTES} bytes in total, the maximum for a vocabulary")

    def put(token_id: int, spelling: bytes, what: str) -> None:
        if token_id < 0 or vocab[token_id]:
            raise UserError(f"id {token_id} of {what} is out of range or taken (vocabulary of {len(vocab)} tokens)")
        vocab[token_id] = spelling

    for byte, token_id in enumerate(byte_ids):
        if token_id != NO_TOKEN or byte not in NOT_IN_UTF8:
            put(token_id, bytes([byte]), f"byte {byte}")
    for spelling, token_id in unmerged.items():
        if len(spelling) < 2:
            raise UserError(f"the token {quoted(spelling)} with id {token_id} has no merge, and less than two bytes")
        put(token_id, spelling, f"token {quoted(spelling)}")
    _put_merges(merge_ids, vocab, put, left_over)
    _check_distinct(vocab)
    for string, token_id in special_tokens.items():
        if not string:
            raise UserError(f"the special token with id {token_id} is empty")
        try:
            spelling = string.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the special token {quoted(string)} contains a lone surrogate, which UTF-8 cannot encode"
            ) from None
        if len(spelling) > _LONGEST_SPECIAL:
            raise UserError(
                f"the special token {quoted(string)} has more than {_LONGEST_SPECIAL} bytes; use a shorter string"
            )
        put(token_id, spelling, f"special token {quoted(string)}")
    return vocab


def _check_distinct(vocab: list[bytes]) -> None:
    # Files name tokens by their bytes, so two ordinary tokens with the same bytes would be ambiguous.
    seen: set[bytes] = set()
    for token_id, spelling in enumerate(vocab):
        if spelling in seen:
            raise UserError(f"{quoted(spelling)} is spelled by two tokens, the second with id {token_id}")
        if spelling:
            seen.add(spelling)


def _put_merges(
    merge_ids: npt.NDArray[np.uint32], vocab: list[bytes], put: Callable[[int, bytes, str], None], left_over: int
) -> None:
    """Spell out merged tokens. Imported lists may use a token before the merge that produces it; such merges wait."""
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
                raise UserError(f"merge {rank} produces a token of more than {LONGEST_TOKEN} bytes")
            if vocab[new] != token:  # several merges may produce the same token
                left_over -= len(token)
                if left_over < 0:
                    raise UserError(
                        f"the tokens up to merge {rank} of {len(merges)} have more than {MOST_BYTES} bytes in total, "
                        "the maximum for a vocabulary; train with fewer or shorter tokens (max_bytes)"
                    )
                put(new, token, f"merge {rank}")
                ready.extend(waiting.pop(new, ()))
    if waiting:
        rank = min(rank for ranks in waiting.values() for rank in ranks)
        left, right, _ = merges[rank]
        raise UserError(f"merge {rank} joins the ids {left} and {right}, one of which does not exist yet")

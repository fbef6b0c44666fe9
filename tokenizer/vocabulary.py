"""What ids spell, how they are laid out, and how a vocabulary is cut and extended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.errors import UserError, check_whole, quoted

if TYPE_CHECKING:
    from tokenizer.tokenizer import Tokenizer

NOT_IN_UTF8 = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])
"""Bytes that no text has; imported tokenizers may have no token for them."""
NO_TOKEN = -1

LONGEST_TOKEN = 1 << 16
"""Most bytes of a token that merges make; merges of merges could otherwise ask for any amount of memory."""
_LONGEST_SPECIAL = 1 << 12  # finding strings in text is prepared in time that grows with the square of their length
MOST_BYTES = 1 << 26
"""Bytes of all tokens together. A merge takes few bytes of a file and may spell `LONGEST_TOKEN`, so that a small file
could otherwise ask for gigabytes; the largest vocabularies in use have less than 5 MB."""
MOST_IDS = 1 << 24  # ids may have gaps, so one id alone could ask for any amount of memory

SPECIAL_LAYOUTS = ("last", "first", "after-bytes")


def longest_token(max_bytes: int | None) -> int:
    """The most bytes of a new token: the limit that training is given, and never more than `LONGEST_TOKEN`."""
    return LONGEST_TOKEN if max_bytes is None else min(max_bytes, LONGEST_TOKEN)


def first_ids(layout: str, n_merges: int, n_specials: int) -> tuple[int, int, int]:
    """The first id of the bytes, of the merges and of the special tokens."""
    return {
        "last": (0, 256, 256 + n_merges),
        "first": (n_specials, 256 + n_specials, 0),
        "after-bytes": (0, 256 + n_specials, 256),
    }[layout]


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


def special_layout(tokenizer: Tokenizer) -> str:
    """Which of `SPECIAL_LAYOUTS` the ids follow; see `Tokenizer.special_layout`."""
    n, n_specials = len(tokenizer.merge_ids), len(tokenizer.special_tokens)
    for layout in SPECIAL_LAYOUTS:
        byte, merge, special = first_ids(layout, n, n_specials)
        if (
            not tokenizer.unmerged
            and tokenizer.byte_ids == tuple(range(byte, byte + 256))
            and np.array_equal(tokenizer.merge_ids[:, 2], np.arange(merge, merge + n))
            and sorted(tokenizer.special_tokens.values()) == list(range(special, special + n_specials))
        ):
            return layout
    raise UserError("the tokenizer's ids are not laid out as bytes, merges and special tokens in a row")


def has_own_layout(tokenizer: Tokenizer) -> bool:
    """Whether a list of merges and the place of special tokens say all of it, as of one of our own."""
    if tokenizer.ignore_merges or tokenizer.preparation:
        return False
    try:
        tokenizer.ranks()
        return bool(special_layout(tokenizer))
    except UserError:
        return False


def cut(tokenizer: Tokenizer, size: int) -> dict[str, Any]:
    """Arguments of `Tokenizer` for its first tokens; see `Tokenizer.cut`."""
    check_whole("vocab_size", size, 0)
    added, total = tokenizer.preparation.added_tokens, tokenizer.vocab_size
    specials = tokenizer.special_tokens | dict(added)
    bytes_ = [i for i in tokenizer.byte_ids if i != NO_TOKEN]
    ordinary = np.array([*bytes_, *tokenizer.merge_ids[:, 2].tolist(), *tokenizer.unmerged.values()])
    # Special tokens after all others move down; the rest of the ids stay.
    tail = {string: i for string, i in specials.items() if i > ordinary.max()}
    fixed = [*bytes_, *(i for string, i in specials.items() if string not in tail)]
    least = max(fixed) + 1 + len(tail)
    if not least <= size <= total:
        raise UserError(
            f"a vocabulary of {size} cannot be cut out of one of {total}: it has to have from {least} to {total} tokens"
        )
    if sorted(tail.values()) != list(range(total - len(tail), total)) or total - len(tail) != ordinary.max() + 1:
        raise UserError(
            "the tokenizer cannot be cut: there are unused ids around its last special tokens, so that their ids in a "
            "smaller vocabulary are unclear"
        )
    end = size - len(tail)
    if not tokenizer.vocab[end - 1]:
        raise UserError(
            f"the tokenizer cannot be cut to {size}: no token has the id {end - 1}, which would be the last"
        )
    made = tokenizer.merge_ids[:, 2].astype(np.int64)
    # Of several merges that make a token, the first gives its rank.
    products, ranks = np.unique(made, return_index=True)
    dropped = products >= end
    if ranks[~dropped].max(initial=-1) > ranks[dropped].min(initial=len(made)):
        raise UserError(
            f"the tokenizer cannot be cut to {size}: its ids do not follow the order of its merges, so that the first "
            f"{size} ids are not the first tokens"
        )
    keep = tokenizer.merge_ids.max(axis=1, initial=0) < end
    merges = tokenizer.merge_ids[keep]
    n_phase1 = int(keep[: tokenizer.n_phase1_merges].sum())
    superwords = n_phase1 < len(merges)
    # What is no longer made stays a token, with the bytes that it has.
    lost = set(products[~dropped].tolist()) - set(merges[:, 2].tolist())
    unmerged = {token: i for token, i in tokenizer.unmerged.items() if i < end}
    shift = total - size
    moved = {string: i - shift if string in tail else i for string, i in specials.items()}
    return {
        "byte_ids": tokenizer.byte_ids,
        "merge_ids": merges,
        "n_phase1_merges": n_phase1,
        "pattern": tokenizer.pattern,
        "fence": tokenizer.fence if superwords else None,
        "mode": tokenizer.mode if superwords else "one-pass",
        "eligible": tokenizer.eligible if superwords else None,
        "special_tokens": {string: moved[string] for string in tokenizer.special_tokens},
        "preparation": replace(tokenizer.preparation, added_tokens={string: moved[string] for string in added}),
        "ignore_merges": tokenizer.ignore_merges,
        "unmerged": unmerged | {tokenizer.vocab[i]: i for i in sorted(lost)},
        "provenance": tokenizer.provenance | {"cut_from": total},
    }


def rows(pairs: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    """Pairs as int64 [n, 2].

    Raises:
        UserError: they are something else.
    """
    try:
        found = np.asarray(pairs)
    except ValueError:
        found = np.empty(0, object)
    if not found.size and found.dtype != object:
        return np.empty((0, 2), np.int64)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise UserError(f"{what}, whole numbers [n, 2], not {pairs!r:.80}")
    return found.astype(np.int64)


def append(tokenizer: Tokenizer, pairs: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """The tokenizer's merges and then new ones of [k, 2] ids, whose tokens are numbered after the highest id."""
    new = rows(pairs, "new merges are pairs of ids")
    ids = tokenizer.vocab_size + np.arange(len(new))
    if len(new) and (new.min() < 0 or (new.max(axis=1) >= ids).any()):
        first = int(np.flatnonzero((new < 0).any(axis=1) | (new.max(axis=1) >= ids))[0])
        raise UserError(f"new merge {first} joins ids {new[first].tolist()}, of which one does not exist yet")
    specials = {*tokenizer.special_tokens.values(), *tokenizer.preparation.added_tokens.values()}
    for left, right in new.tolist():
        if specials & {left, right}:
            raise UserError(f"new merge of ids {left} and {right}: special tokens are not merged")
    return np.concatenate([tokenizer.merge_ids, np.column_stack([new, ids]).astype(np.uint32)])

"""Tokens that a vocabulary must have: the first merges of phase 1, whatever their counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tokenizer import _native, patterns
from tokenizer.definition import longest_token
from tokenizer.documents import check_text
from tokenizer.errors import UserError, check_strings, quoted
from tokenizer.patterns import Pattern

NOT_FORCED = "needs a transition: superwords that compete with phase-1 merges could push out forced tokens"


def forced_merges(strings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Merges that make each string one token, by rank, so strings with the same start share its merges.

    A string is encoded with the merges so far. While it is more than one token, the first two become a new merge.

    >>> forced_merges(["abc", "abd"])
    [(b'a', b'b'), (b'ab', b'c'), (b'ab', b'd')]
    """
    ranks: dict[tuple[bytes, bytes], int] = {}
    for string in strings:
        word = [bytes([byte]) for byte in string.encode()]
        while len(word) > 1:
            # The first pair of the string, if none of its pairs has a rank.
            best = min(pairwise(word), key=lambda pair: ranks.get(pair, len(ranks)))
            ranks.setdefault(best, len(ranks))
            place = list(pairwise(word)).index(best)
            word[place : place + 2] = [best[0] + best[1]]
    return list(ranks)


def check_forced(
    strings: Sequence[str],
    pattern: Pattern,
    *,
    n_merges: int,
    unit: str = "document",
    special_tokens: Sequence[str] = (),
    forbid: Sequence[str] = (),
    max_token_bytes: int | None = None,
) -> None:
    """Reject forced tokens that no text would contain as one token, or that other settings rule out.

    Args:
        strings: the forced tokens.
        pattern: pattern of phase 1; it must not cut a forced token.
        n_merges: maximum number of merges of phase 1.
        unit: unit of phase 1.
        special_tokens: strings that are cut out of the text first.
        forbid: regexes that no token may match, as in `train_bpe`.
        max_token_bytes: maximum token length, as in `train_bpe`.

    Raises:
        UserError: a string is empty, is cut, is too long, or needs a forbidden token; or there are too many.
    """
    check_strings("forced_tokens", strings)
    for string in strings:
        check_text(string, f"the forced token {quoted(string)}")
        if not string:
            raise UserError("forced_tokens contains an empty string; leave it out")
        inside = next((special for special in special_tokens if special in string), None)
        if inside is not None:
            raise UserError(f"the forced token {quoted(string)} contains the special token {quoted(inside)}; drop one")
        if patterns.split(string, pattern) != [string] or (unit == "line" and "\n" in string[:-1]):
            raise UserError(
                f"the forced token {quoted(string)} can never be one token: the pattern {pattern} cuts it, or it has "
                "several lines and the unit is a line; leave it out, or use another pattern or unit"
            )
    merges = forced_merges(strings)
    if len(merges) > n_merges:
        raise UserError(
            f"the forced tokens take {len(merges)} merges, but phase 1 has {n_merges}; use a larger vocabulary, a "
            "later transition or fewer forced tokens"
        )
    tokens = [left + right for left, right in merges]
    longest = longest_token(max_token_bytes)
    for token, is_forbidden in zip(tokens, _native.are_forbidden(tokens, list(forbid)), strict=True):
        if is_forbidden or len(token) > longest:
            string = next(string for string in strings if token in string.encode())
            why = "which forbid rules out" if is_forbidden else f"of more than {longest} bytes"
            raise UserError(
                f"the forced token {quoted(string)} needs the token {quoted(token)}, {why}; change one of them"
            )

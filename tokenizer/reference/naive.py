"""Naive BPE: the definition of training. Every other trainer must give the same merges.

    repeat: count all adjacent pairs of tokens
            merge the most frequent pair everywhere, from left to right

Tokens are byte strings and merges are pairs of byte strings, which keeps the code close to the rules. The corpus is a
set of words (pieces of text that no merge crosses) with their counts.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import regex

from tokenizer.definition import longest_token
from tokenizer.train.bpe import TIE_BREAKS

Pair = tuple[bytes, bytes]
Word = tuple[bytes, ...]
"""A piece of text as tokens."""
Merge = tuple[bytes, bytes, int]
"""Left token, right token, and the pair's count when it was merged."""
Accept = Callable[[bytes, bytes, int], bool]
"""Whether a pair (left token, right token, count) may be merged."""


def byte_alphabet() -> list[bytes]:
    """The 256 bytes in the order of HF's alphabet: by the code point of each byte's printable character.

    GPT-2's table maps printable Latin-1 characters to themselves and the other bytes, in order, to U+0100 and up. So
    `!` comes first, and the space follows the letters.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return [bytes([byte]) for byte in printable + moved]


def as_words(counts: Mapping[bytes, int]) -> dict[Word, int]:
    """Counted pretokens as words of single bytes."""
    return {tuple(bytes([byte]) for byte in pretoken): count for pretoken, count in counts.items()}


def count_pairs(words: Mapping[Word, int]) -> Counter[Pair]:
    """Count each pair at every position: (a, a, a) contains (a, a) twice."""
    counts: Counter[Pair] = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


def break_tie(pairs: Iterable[Pair], order: Mapping[bytes, int], tie_break: str) -> Pair:
    """The pair to merge among equally frequent ones.

    Args:
        pairs: the candidates.
        order: position of each token: bytes in the order of `byte_alphabet`, then merges by rank.
        tie_break: one of `TIE_BREAKS`. "lowest-ids" compares positions; the other two compare the tuples (left bytes,
            right bytes), not the concatenation.
    """
    if tie_break == "lowest-ids":
        return min(pairs, key=lambda pair: (order[pair[0]], order[pair[1]]))
    if tie_break == "lexicographic-smallest":
        return min(pairs)
    if tie_break == "lexicographic-greatest":
        return max(pairs)
    raise ValueError(f"tie_break={tie_break!r} is unknown; use one of {', '.join(TIE_BREAKS)}")


def replace_pair(word: Word, pair: Pair) -> Word:
    """The word with every occurrence of the pair merged, from left to right: (a, a, a) becomes (aa, a)."""
    merged: list[bytes] = []
    for token in word:
        # A merged token is longer than the left part of the pair, so it is never merged a second time.
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return tuple(merged)


def train_words(
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Accept,
    count: Callable[[Mapping[Word, int]], Counter[Pair]] = count_pairs,
) -> list[Merge]:
    """Learn up to `n_merges` merges; fewer if no pair is left.

    Args:
        words: words of any tokens, with their counts.
        n_merges: maximum number of merges.
        tokens: the initial tokens, in the order that "lowest-ids" compares.
        tie_break: see `break_tie`.
        min_count: pairs that occur less often are not merged.
        accept: decides about each pair. A rejected pair is dropped for good, as is one that spells an existing token.
        count: counts the pairs of words.
    """
    order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    dropped: set[Pair] = set()
    merges: list[Merge] = []
    while len(merges) < n_merges:
        counts = count(words)
        for pair in dropped:
            del counts[pair]  # a Counter has no error for a missing key
        most = max(counts.values(), default=0)
        if most < max(min_count, 1):
            break
        left, right = best = break_tie([pair for pair in counts if counts[pair] == most], order, tie_break)
        if left + right in order or not accept(left, right, most):
            dropped.add(best)
            continue
        order[left + right] = len(order)
        merges.append((left, right, most))
        merged: Counter[Word] = Counter()
        for word, times in words.items():
            merged[replace_pair(word, best)] += times
        words = merged
    return merges


def is_forbidden(token: bytes, forbid: Sequence[str]) -> bool:
    r"""Whether a regex matches in the whole characters of a token.

    >>> is_forbidden(b"\xa9: \xc3", ["^:"]), is_forbidden(b"\xa9: \xc3", ["\xe9"])
    (True, False)
    """
    complete = codecs.getincrementaldecoder("utf-8")("replace").decode(token.lstrip(bytes(range(0x80, 0xC0))))
    return any(regex.search(pattern, complete) for pattern in forbid)


def force(strings: Iterable[str], words: Mapping[Word, int]) -> tuple[list[Merge], dict[Word, int]]:
    """Merges that make each string one token, from left to right, and the words after them."""
    merges: list[Merge] = []
    for string in strings:
        word = tuple(bytes([byte]) for byte in string.encode())
        for left, right, _ in merges:
            word = replace_pair(word, (left, right))
        while len(word) > 1:
            pair = word[0], word[1]
            word = replace_pair(word, pair)
            merged = {old: replace_pair(old, pair) for old in words}
            times = sum(count * (len(old) - len(merged[old])) for old, count in words.items())
            words = {merged[old]: count for old, count in words.items()}
            merges.append((*pair, times))
    return merges, dict(words)


def train_naive(
    counts: Mapping[bytes, int],
    n_merges: int,
    *,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    forbid: Sequence[str] = (),
    forced_tokens: Sequence[str] = (),
    special_tokens: Sequence[str] = (),
    train: Callable[..., list[Merge]] = train_words,
) -> list[Merge]:
    """Phase 1 over counted pretokens; `train` is `train_words` or a faster equivalent.

    The merges of forced tokens come first, with the number of times that they apply.

    >>> train_naive({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
    [(b'e', b'r', 8), (b'w', b'er', 8)]
    """
    special = {token.encode() for token in special_tokens}
    longest = longest_token(max_token_bytes)

    def accept(left: bytes, right: bytes, _: int) -> bool:
        """Rules of phase 1: no token may be too long, spell a special token or match a regex."""
        token = left + right
        return token not in special and len(token) <= longest and not is_forbidden(token, forbid)

    forced, words = force(forced_tokens, as_words(counts))
    tokens = [*byte_alphabet(), *(left + right for left, right, _ in forced)]
    n_left = n_merges - len(forced)
    return forced + train(words, n_left, tokens=tokens, tie_break=tie_break, min_count=min_count, accept=accept)

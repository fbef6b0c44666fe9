"""The specification of byte-level BPE, in plain Python: what every fast implementation must equal.

Two trainers give the same merges: a naive one that recounts the corpus for every merge, and one that keeps
its counts up to date and sorted. Tokens are byte strings here and merges are pairs of byte strings, so that
the rules can be read off the code; ids and speed are other modules' business.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import regex
from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Pair = tuple[bytes, bytes]
Word = tuple[bytes, ...]
"""A piece of text as tokens; no merge crosses its ends."""
Merge = tuple[bytes, bytes, int]
"""Left token, right token, and the pair's count when it was merged."""

TIE_BREAKS = ("lowest-ids", "lexicographic-greatest", "lexicographic-smallest")

_UNMERGEABLE = float("inf")


# ---------------------------------------------------------------------------------------- cutting text


def cut_at_special(text: str, special_tokens: Sequence[str]) -> list[str]:
    """The ordinary text between special strings, which go first, before any unit or pattern.

    Where several special strings match at one place, the longest is taken.
    """
    if not special_tokens:
        return [text] if text else []
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return [part for part in regex.split("|".join(map(regex.escape, longest_first)), text) if part]


def cut_into_units(text: str, unit: str) -> list[str]:
    r"""The units of a text, which joined give the text again.

    Args:
        text: ordinary text.
        unit: "document" (uncut), "line" (cut after each `"\n"` and nothing else, as HF's file reader does),
            or "separator:STRING" (cut after each STRING).
    """
    if unit == "document":
        return [text] if text else []
    separator = "\n" if unit == "line" else unit.removeprefix("separator:")
    if unit == separator or not separator:
        msg = f"unit={unit!r} is unknown; use document, line or separator:STRING"
        raise ValueError(msg)
    *complete, last = text.split(separator)
    return [part + separator for part in complete] + ([last] if last else [])


def boundaries(text: str, pattern: str | None) -> list[int]:
    """Where a pattern cuts a text: positions (in characters) of each match's start and end, 0 and the length.

    The matches are "isolated": they are pieces, and so is what lies between them. An empty match is a cut
    too; after it the search goes on one character further, as in Rust's engines. `None` cuts nowhere.
    """
    cuts = {0, len(text)}
    position = 0
    while pattern is not None and position <= len(text):
        match = regex.search(pattern, text, pos=position)
        if match is None:
            break
        cuts.update(match.span())
        position = match.end() if match.end() > match.start() else match.end() + 1
    return sorted(cuts)


def split(text: str, pattern: str | None) -> list[str]:
    """The pieces of a text: the pattern's matches and the gaps between them, in order, none of them empty.

    >>> split("one two!", r" ?[a-z]+")
    ['one', ' two', '!']
    """
    return [text[start:stop] for start, stop in pairwise(boundaries(text, pattern))]


def count_pretokens(
    documents: Iterable[str],
    pattern: str | None,
    *,
    unit: str = "document",
    special_tokens: Sequence[str] = (),
) -> Counter[bytes]:
    """How often each pretoken (UTF-8) occurs: special strings cut first, then units, then the pattern."""
    counts: Counter[bytes] = Counter()
    for document in documents:
        for text in cut_at_special(document, special_tokens):
            for part in cut_into_units(text, unit):
                counts.update(piece.encode() for piece in split(part, pattern))
    return counts


# -------------------------------------------------------------------------------------------- training


def byte_alphabet() -> list[bytes]:
    """The 256 bytes in HF's alphabet order: by the codepoint of the printable character that stands for each.

    GPT-2's table writes the printable characters of Latin-1 as themselves and moves the other bytes, in
    order, to U+0100 and up; so `!` comes first, and the space after the letters.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return [bytes([byte]) for byte in printable + moved]


def break_tie(pairs: Iterable[Pair], order: Mapping[bytes, int], tie_break: str) -> Pair:
    """The pair to merge among equally frequent ones.

    Args:
        pairs: the candidates.
        order: each token's place: bytes in the order of `byte_alphabet`, then merges by rank.
        tie_break: one of `TIE_BREAKS`. "lowest-ids" compares places; the other two the tuples (left bytes,
            right bytes), never the concatenation.
    """
    if tie_break == "lowest-ids":
        return min(pairs, key=lambda pair: (order[pair[0]], order[pair[1]]))
    if tie_break == "lexicographic-smallest":
        return min(pairs)
    if tie_break == "lexicographic-greatest":
        return max(pairs)
    msg = f"tie_break={tie_break!r} is unknown; use one of {', '.join(TIE_BREAKS)}"
    raise ValueError(msg)


def replace_pair(word: Word, pair: Pair) -> Word:
    """The word with every occurrence of the pair merged, from left to right: (a, a, a) becomes (aa, a)."""
    merged: list[bytes] = []
    for token in word:
        # An appended result of a merge is longer than the left part, so it is never merged a second time.
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return tuple(merged)


def count_pairs(words: Mapping[Word, int]) -> Counter[Pair]:
    """How often each pair of neighbours occurs; at every position, so that (a, a, a) holds (a, a) twice."""
    counts: Counter[Pair] = Counter()
    for word, count in words.items():
        for pair in pairwise(word):
            counts[pair] += count
    return counts


class Trainer(Protocol):
    """Learns merges over words: `train_words_naive` and `train_words_sorted`, whose merges are equal."""

    def __call__(
        self,
        words: Mapping[Word, int],
        n_merges: int,
        *,
        tokens: Iterable[bytes],
        tie_break: str,
        min_count: int,
        accept: Callable[[bytes], bool],
    ) -> list[Merge]:
        """Learn up to `n_merges` merges; fewer if no pair is left.

        Args:
            words: the corpus, as tokens, with the number of times each word occurs.
            n_merges: how many merges at most.
            tokens: the tokens there are at the start, in the order that "lowest-ids" compares.
            tie_break: see `break_tie`.
            min_count: pairs that occur less often are not merged.
            accept: whether a new token with these bytes is allowed. A pair whose bytes are refused, or
                already are a token, is dropped for good.
        """


def train_words_naive(
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Callable[[bytes], bool],
) -> list[Merge]:
    """The definition: count all pairs, merge the most frequent one everywhere, repeat. See `Trainer`."""
    order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    dropped: set[Pair] = set()
    merges: list[Merge] = []
    while len(merges) < n_merges:
        counts = count_pairs(words)
        for pair in dropped:
            del counts[pair]
        most = max(counts.values(), default=0)
        if most < max(min_count, 1):
            break
        pair = break_tie([pair for pair, count in counts.items() if count == most], order, tie_break)
        token = pair[0] + pair[1]
        if token in order or not accept(token):
            dropped.add(pair)
            continue
        order[token] = len(order)
        merges.append((*pair, most))
        rewritten: Counter[Word] = Counter()
        for word, count in words.items():
            rewritten[replace_pair(word, pair)] += count
        words = rewritten
    return merges


class _PairCounts:
    """Counts of pairs, and the pairs of each count in a sorted dictionary: the most frequent are its last."""

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        self._counts = dict(counts)
        self._pairs: SortedDict = SortedDict()
        for pair, count in counts.items():
            self._pairs.setdefault(count, set()).add(pair)

    def most_frequent(self) -> tuple[int, set[Pair]]:
        return self._pairs.peekitem(-1) if self._pairs else (0, set())

    def _forget(self, pair: Pair, count: int) -> None:
        self._pairs[count].remove(pair)
        if not self._pairs[count]:  # an empty set would be a false maximum
            del self._pairs[count]

    def drop(self, pair: Pair) -> None:
        self._forget(pair, self._counts.pop(pair))

    def change(self, pair: Pair, delta: int) -> None:
        count = self._counts.get(pair, 0)
        if count:
            self._forget(pair, count)
        self._counts[pair] = count + delta
        if count + delta:
            self._pairs.setdefault(count + delta, set()).add(pair)
        else:
            del self._counts[pair]


def train_words_sorted(
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Callable[[bytes], bool],
) -> list[Merge]:
    """The same merges as the naive trainer ("fast max"): counts change only where a merge changes a word.

    An index tells which words hold a pair, so a merge visits only those; sorted counts make the maximum free.
    """
    order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    corpus, weights = list(words), list(words.values())
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(corpus):
        for pair in pairwise(word):
            places[pair].add(index)
    pairs = _PairCounts(count_pairs(words))
    dropped: set[Pair] = set()
    merges: list[Merge] = []
    while len(merges) < n_merges:
        most, tied = pairs.most_frequent()
        if most < max(min_count, 1):
            break
        best = break_tie(tied, order, tie_break)
        token = best[0] + best[1]
        if token in order or not accept(token):
            dropped.add(best)
            pairs.drop(best)
            continue
        order[token] = len(order)
        merges.append((*best, most))
        changes: Counter[Pair] = Counter()
        for index in places.pop(best):
            old, corpus[index] = corpus[index], replace_pair(corpus[index], best)
            for pair in pairwise(old):
                changes[pair] -= weights[index]
            for pair in pairwise(corpus[index]):
                changes[pair] += weights[index]
                # Pairs that left the word stay in the index; visiting a word in vain changes nothing.
                places[pair].add(index)
        for pair, delta in changes.items():
            if delta and pair not in dropped:
                pairs.change(pair, delta)
    return merges


def _train_bytes(
    trainer: Trainer,
    counts: Mapping[bytes, int],
    n_merges: int,
    tie_break: str,
    min_count: int,
    max_token_bytes: int | None,
    special_tokens: Sequence[str],
) -> list[Merge]:
    special = {token.encode() for token in special_tokens}
    return trainer(
        {tuple(bytes([byte]) for byte in pretoken): count for pretoken, count in counts.items()},
        n_merges,
        tokens=byte_alphabet(),
        tie_break=tie_break,
        min_count=min_count,
        accept=lambda token: token not in special and (max_token_bytes is None or len(token) <= max_token_bytes),
    )


def train_naive(
    counts: Mapping[bytes, int],
    n_merges: int,
    *,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    special_tokens: Sequence[str] = (),
) -> list[Merge]:
    """Phase 1 over counted pretokens, by definition.

    Args:
        counts: how often each pretoken occurs.
        n_merges: how many merges to learn; fewer come back if no pair is left.
        tie_break: one of `TIE_BREAKS`.
        min_count: the least count of a pair that is merged.
        max_token_bytes: the longest token allowed, in bytes.
        special_tokens: strings that no token may spell.

    >>> train_naive({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
    [(b'e', b'r', 8), (b'w', b'er', 8)]
    """
    return _train_bytes(train_words_naive, counts, n_merges, tie_break, min_count, max_token_bytes, special_tokens)


def train_sorted(
    counts: Mapping[bytes, int],
    n_merges: int,
    *,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    special_tokens: Sequence[str] = (),
) -> list[Merge]:
    """Phase 1 over counted pretokens; the merges of `train_naive`, sooner."""
    return _train_bytes(train_words_sorted, counts, n_merges, tie_break, min_count, max_token_bytes, special_tokens)


# -------------------------------------------------------------------------------------------- encoding


def merge_by_rank(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """Merge the neighbours with the lowest rank, the leftmost of several, one pair at a time to the end."""
    merged = list(tokens)
    pair_ranks = [ranks.get(pair, _UNMERGEABLE) for pair in pairwise(merged)]
    while pair_ranks and (lowest := min(pair_ranks)) != _UNMERGEABLE:
        place = pair_ranks.index(lowest)
        merged[place : place + 2] = [merged[place] + merged[place + 1]]
        del pair_ranks[place]
        for seam in (place - 1, place):
            if 0 <= seam < len(pair_ranks):
                pair_ranks[seam] = ranks.get((merged[seam], merged[seam + 1]), _UNMERGEABLE)
    return merged


def ranks_of(merges: Iterable[Pair]) -> dict[Pair, int]:
    """Each pair's rank; of a pair listed twice the last place counts, as in HF."""
    return {pair: rank for rank, pair in enumerate(merges)}


def as_bytes(text: str) -> list[bytes]:
    """The UTF-8 bytes of a text, each a token."""
    return [bytes([byte]) for byte in text.encode()]


def encode(text: str, merges: Iterable[Pair], pattern: str | None) -> list[bytes]:
    """One-pass encoding of ordinary text: the pattern cuts it, then merges apply by rank inside the pieces.

    Args:
        text: text whose special strings, if any, are ordinary text.
        merges: by rank; all of them, of both phases.
        pattern: the phase-1 pattern of a plain tokenizer, the fence of one with superwords.
    """
    ranks = ranks_of(merges)
    return [token for piece in split(text, pattern) for token in merge_by_rank(as_bytes(piece), ranks)]


def open_runs(tokens: Sequence[bytes], cuts: Iterable[int]) -> list[Word]:
    """Cut a sequence of tokens at its closed seams, into runs inside which phase 2 may merge.

    A seam between two tokens is closed if a cut lies at it or inside either of the two.

    Args:
        tokens: the phase-1 tokens of a text.
        cuts: positions in the text, in bytes.
    """
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    cuts = set(cuts)
    runs: list[list[bytes]] = []
    for index, token in enumerate(tokens):
        if index and cuts.isdisjoint(range(starts[index - 1] + 1, starts[index + 1])):
            runs[-1].append(token)
        else:
            runs.append([token])
    return [tuple(run) for run in runs]


def byte_positions(text: str, positions: Iterable[int]) -> list[int]:
    """Positions in characters as positions in UTF-8 bytes."""
    return [len(text[:position].encode()) for position in positions]


def encode_two_pass(
    text: str, phase1: Iterable[Pair], phase2: Iterable[Pair], pattern: str | None, fence: str | None
) -> list[bytes]:
    """Two-pass encoding of ordinary text.

    The phase-1 pattern cuts the whole text and phase-1 merges apply inside its pretokens. Then phase-2 merges
    apply to the phase-1 tokens, across the seams that the fence leaves open.

    Args:
        text: text whose special strings, if any, are ordinary text.
        phase1: merges by rank.
        phase2: merges by rank, all of which follow phase 1's.
        pattern: the phase-1 pattern.
        fence: the pattern that cuts phase 2.
    """
    runs = open_runs(encode(text, phase1, pattern), byte_positions(text, boundaries(text, fence)))
    ranks = ranks_of(phase2)
    return [token for run in runs for token in merge_by_rank(run, ranks)]

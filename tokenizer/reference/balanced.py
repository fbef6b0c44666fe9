"""Parity-aware BPE: the source that is compressed worst chooses the next merge, which applies to all sources.

    repeat: take the source whose parallel text has the most tokens; without such text, the source with the lowest
            bytes per token, divided by its ratio
            merge its most frequent pair in all sources

Variant `base` of Foroutan et al., "Parity-Aware Byte-Pair Encoding: Improving Cross-lingual Fairness in Tokenization"
(2025, arXiv 2508.04796). A source without a pair that may be merged chooses no more.

>>> train_balanced([{b"ab": 9}, {b"cd": 2, b"cde": 2}], 2, ratios=[1, 2])
[(1, b'c', b'd', 4), (1, b'cd', b'e', 2)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tokenizer.reference.naive import Pair, Word, as_words, break_tie, byte_alphabet, count_pairs, replace_pair


def train_balanced(
    sources: Sequence[Mapping[bytes, int]],
    n_merges: int,
    *,
    parallel: Sequence[Mapping[bytes, int]] | None = None,
    ratios: Sequence[float] = (),
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    special_tokens: Sequence[str] = (),
) -> list[tuple[int, bytes, bytes, int]]:
    """Learn up to `n_merges` merges, each with the index of the source that chose it and the pair's count there.

    Args:
        sources: counted pretokens of each source.
        n_merges: maximum number of merges.
        parallel: counted pretokens of a translation of one text, for each source.
        ratios: without `parallel`, the ratio of each source.
        tie_break: see `tokenizer.reference.naive.break_tie`. Of sources that are compressed equally, the first chooses.
        min_count: pairs that occur less often in the source are not merged.
        special_tokens: strings that no merge may spell.
    """
    counted = [as_words(source) for source in sources]
    tested = counted if parallel is None else [as_words(text) for text in parallel]
    sizes = [sum(len(word) * times for word, times in words.items()) for words in counted]
    order = {token: place for place, token in enumerate(byte_alphabet())}
    taken = {token.encode() for token in special_tokens}
    left = [*range(len(sources))]
    merges: list[tuple[int, bytes, bytes, int]] = []
    while len(merges) < n_merges and left:
        tokens = [sum(len(word) * times for word, times in words.items()) for words in tested]
        if parallel is None:
            worst = min(left, key=lambda i: sizes[i] / tokens[i] / ratios[i])
        else:
            worst = max(left, key=tokens.__getitem__)
        counts = count_pairs(counted[worst])
        allowed = {pair: n for pair, n in counts.items() if pair[0] + pair[1] not in {*order, *taken}}
        most = max(allowed.values(), default=0)
        if most < max(min_count, 1):
            left.remove(worst)
            continue
        best = break_tie([pair for pair in allowed if allowed[pair] == most], order, tie_break)
        order[best[0] + best[1]] = len(order)
        merges.append((worst, *best, most))
        merged = [_merged(words, best) for words in counted]
        tested = merged if tested is counted else [_merged(words, best) for words in tested]
        counted = merged
    return merges


def _merged(words: Mapping[Word, int], pair: Pair) -> dict[Word, int]:
    merged: Counter[Word] = Counter()
    for word, times in words.items():
        merged[replace_pair(word, pair)] += times
    return merged

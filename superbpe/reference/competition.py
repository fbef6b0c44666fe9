"""Competition of superwords with phase-1 merges for the vocabulary: the definition, and the shortcut used in training.

`boundless` learns merges one by one, as BoundlessBPE was first defined. `times_applied` and `interleave` compare two
complete lists instead, which is faster and gives the same result.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import regex

from superbpe.reference.phase2 import pairs_of
from tokenizer import reference as bpe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from superbpe.rules import Rules


def times_applied(pieces: Mapping[bpe.Word, int], merges: Sequence[bpe.Pair], phase1_fence: str) -> list[int]:
    """Number of times each phase-1 merge applies when all merges are replayed over phase 2's text, in order.

    The released trainer drops merges that never apply.

    Args:
        pieces: result of `training_pieces`.
        merges: phase-1 merges, by rank.
        phase1_fence: "lifted": merges apply to whole pieces; "kept": they stay inside the phase-1 tokens.
    """
    words: Counter[bpe.Word] = Counter()
    for piece, count in pieces.items():
        for part in [piece] if phase1_fence == "lifted" else [(token,) for token in piece]:
            words[tuple(bytes([byte]) for byte in b"".join(part))] += count
    applied = []
    for pair in merges:
        merged: Counter[bpe.Word] = Counter()
        times = 0
        for word, count in words.items():
            shorter = bpe.replace_pair(word, pair)
            merged[shorter] += count
            times += count * (len(word) - len(shorter))
        words = merged
        applied.append(times)
    return applied


def interleave(
    phase1: Sequence[bpe.Pair], counts: Sequence[int], superwords: Sequence[bpe.Merge], n_merges: int
) -> tuple[int, int]:
    """Number of phase-1 merges and superwords in a vocabulary for which they compete.

    The next superword is taken if its count is higher than the next phase-1 merge's and both its parts exist;
    otherwise the next phase-1 merge is taken.

    Args:
        phase1: merges by rank.
        counts: number of times each merge applies (`times_applied`).
        superwords: all superwords that training over whole pretokens finds.
        n_merges: number of merges that fit into the vocabulary.
    """
    tokens = set(bpe.byte_alphabet())
    regular, waiting = deque(zip(phase1, counts, strict=True)), deque(superwords)
    n_regular = n_superwords = 0
    while n_regular + n_superwords < n_merges and (regular or waiting):
        if waiting and {*waiting[0][:2]} <= tokens and (not regular or waiting[0][2] > regular[0][1]):
            left, right, _ = waiting.popleft()
            n_superwords += 1
        else:
            (left, right), _ = regular.popleft()
            n_regular += 1
        tokens.add(left + right)
    return n_regular, n_superwords


def boundless(
    documents: Iterable[str],
    phase1: Sequence[bpe.Pair],
    pattern: str | None,
    n_merges: int,
    rules: Rules,
) -> tuple[list[bpe.Pair], list[bpe.Pair]]:
    """BoundlessBPE as first defined: phase-1 merges and superwords are learned one by one, on the documents themselves.

    Superwords are counted over the pretokens that are one token at that step. The shortcut counts them over the
    pretokens that are one token at the end. The results are equal if phase-1 merges are sorted by how often they apply.

    Returns:
        The phase-1 merges and the superword merges.
    """
    corpus = [[tuple(bpe.as_bytes(pretoken)) for pretoken in bpe.split(document, pattern)] for document in documents]
    words = {pretoken: pretoken for document in corpus for pretoken in document}
    order = {token: place for place, token in enumerate(bpe.byte_alphabet())}
    regular: list[bpe.Pair] = []
    superwords: list[bpe.Pair] = []
    while len(regular) + len(superwords) < n_merges:
        counts: Counter[bpe.Pair] = Counter()
        for document in corpus:
            for run in _runs([words[pretoken] for pretoken in document], rules.eligible):
                for pair in superwords:
                    run = bpe.replace_pair(run, pair)
                counts.update(pairs_of(run, rules.counting))
        rival = 0
        if len(regular) < len(phase1):
            pair = phase1[len(regular)]
            shorter = {pretoken: bpe.replace_pair(word, pair) for pretoken, word in words.items()}
            rival = sum(len(words[p]) - len(shorter[p]) for document in corpus for p in document)
        most = max(counts.values(), default=0)
        if most > rival and most >= rules.min_count:
            best = bpe.break_tie(
                [p for p, count in counts.items() if count == most], order, rules.tie_break or "lowest-ids"
            )
            superwords.append(best)
        elif len(regular) < len(phase1):
            best = pair
            regular.append(best)
            words = shorter
        else:
            break
        order[best[0] + best[1]] = len(order)
    return regular, superwords


def runs(documents: Iterable[str], phase1: Sequence[bpe.Pair], pattern: str | None, eligible: str) -> Counter[bpe.Word]:
    """The runs of "Faster Superword Tokenization" by the paper's definition; `training_pieces` uses closed seams."""
    ranks = bpe.ranks_of(phase1)
    counts: Counter[bpe.Word] = Counter()
    for document in documents:
        words = [tuple(bpe.merge_by_rank(bpe.as_bytes(pretoken), ranks)) for pretoken in bpe.split(document, pattern)]
        counts.update(_runs(words, eligible))
    return counts


def _runs(pretokens: Sequence[bpe.Word], eligible: str) -> list[bpe.Word]:
    """Maximal runs of two or more pretokens that are one token each and eligible."""
    runs: list[list[bytes]] = [[]]
    for pretoken in pretokens:
        if len(pretoken) == 1 and regex.search(eligible, pretoken[0].decode(errors="replace")):
            runs[-1].append(pretoken[0])
        elif runs[-1]:
            runs.append([])
    return [tuple(run) for run in runs if len(run) > 1]

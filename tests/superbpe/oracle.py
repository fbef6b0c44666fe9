"""Merges and pieces by the readable reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superbpe import Rules, reference
from tokenizer import Batch, Tokenizer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence

    from tokenizer.reference import Merge, Pair, Word


def batches(documents: Sequence[str], size: int | None = None) -> Callable[[], Iterator[Batch]]:
    """The corpus as `train_superbpe` reads it, with N documents per batch."""
    size = size or len(documents)
    parts = [Batch.from_texts(documents[i : i + size]) for i in range(0, len(documents), size)]
    return lambda: iter(parts)


def pieces_of(documents: Sequence[str], phase1: Tokenizer, rules: Rules, n_kept: int) -> Counter[Word]:
    """The reference's pieces."""
    return reference.training_pieces(
        documents,
        phase1.merges[:n_kept],
        phase1.pattern.regex or None,
        rules,
        special_tokens=list(phase1.special_tokens),
    )


def expected(
    documents: Sequence[str],
    phase1: Tokenizer,
    rules: Rules,
    n_kept: int,
    n_new: int,
    tie_break: str = "lowest-ids",
    veto: Callable[[bytes, bytes, int], bool] | None = None,
) -> tuple[Counter[Word], list[Merge]]:
    """The reference's pieces and merges."""
    kept, specials = phase1.merges[:n_kept], list(phase1.special_tokens)
    pieces = pieces_of(documents, phase1, rules, n_kept)
    existing = [left + right for left, right in kept]
    return pieces, reference.train(pieces, n_new, rules, tie_break, existing, special_tokens=specials, veto=veto)


def expected_lists(
    documents: Sequence[str],
    phase1: Tokenizer,
    rules: Rules,
    n_kept: int,
    n_merges: int,
    tie_break: str = "lowest-ids",
) -> tuple[list[Pair], list[Merge]]:
    """Phase-1 and superword merges of a vocabulary of a given size, also where they compete."""
    specials = list(phase1.special_tokens)
    kept = phase1.merges[: n_merges if rules.interleave else n_kept]
    pieces = pieces_of(documents, phase1, rules, len(kept))
    counts = reference.times_applied(pieces, kept, rules.phase1_fence)
    existing = [left + right for left, right in kept]
    n_new = n_merges if rules.interleave else n_merges - len(kept)
    learned = reference.train(pieces, n_new, rules, tie_break, existing, special_tokens=specials)
    if rules.interleave:
        n_phase1, n_superwords = reference.interleave(kept, counts, learned, n_merges)
        return kept[:n_phase1], learned[:n_superwords]
    return kept, learned


def pairs(merges: Sequence[Merge]) -> list[Pair]:
    """Merges without their counts."""
    return [(left, right) for left, right, _ in merges]

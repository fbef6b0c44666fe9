"""What a training run was like: speed, the longest tokens, the last merge's count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizer.tokenizer import Tokenizer


def summary(tokenizer: Tokenizer, *, longest: int = 10) -> dict[str, Any]:
    """What phase 1's provenance and vocabulary say of the training.

    Args:
        tokenizer: a trained one. What its provenance does not say is None below; an imported tokenizer's says
            nothing of training, and a cut one's is about the run that it was cut from.
        longest: how many of the longest tokens to name.

    Returns:
        merges: phase-1 merges of that run.
        seconds: of learning them.
        merges_per_second: their quotient.
        microseconds_per_merge: the same the other way round.
        selecting_share: share of the seconds that went into finding the most frequent pair.
        last_count: how often the pair of the last merge occurred.
        too_long: pairs that were not merged, since their tokens would have been longer than tokens may be.
        longest_tokens: the longest phase-1 tokens as text, the earlier learned of equally long ones first; bytes
            that are no text show as U+FFFD.
        longest_bytes: length of the longest of them.
    """
    about = tokenizer.provenance.get("phase1", {})
    made = tokenizer.merge_ids[: tokenizer.n_phase1_merges, 2].tolist()
    merges = about.get("merges", len(made) if about else None)
    seconds = about.get("seconds")
    selecting = about.get("selecting_seconds")
    tokens = sorted((tokenizer.vocab[token] for token in made), key=len, reverse=True)
    return {
        "merges": merges,
        "seconds": seconds,
        "merges_per_second": merges / seconds if merges and seconds else None,
        "microseconds_per_merge": 1e6 * seconds / merges if merges and seconds else None,
        "selecting_share": selecting / seconds if seconds and selecting is not None else None,
        "last_count": about.get("last_count"),
        "too_long": about.get("too_long"),
        "longest_tokens": [token.decode(errors="replace") for token in tokens[:longest]],
        "longest_bytes": len(tokens[0]) if tokens else None,
    }

"""Summary of a training run: speed, longest tokens, count of the last merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizer.tokenizer import Tokenizer


def summary(tokenizer: Tokenizer, *, longest: int = 10) -> dict[str, Any]:
    """Summarize phase-1 training from a tokenizer's provenance and vocabulary.

    Args:
        tokenizer: a trained tokenizer. Values missing from its provenance are None. Imported tokenizers have no
            training provenance; that of a cut tokenizer describes the run before the cut.
        longest: number of longest tokens to list.

    Returns:
        merges: number of phase-1 merges of the run.
        seconds: training time.
        merges_per_second: `merges` / `seconds`.
        microseconds_per_merge: `seconds` / `merges`, in microseconds.
        selecting_share: fraction of the time spent finding the most frequent pair.
        last_count: count of the last merged pair.
        too_long: number of pairs not merged because the token would exceed the length limit.
        longest_tokens: the longest phase-1 tokens as text, ties in training order; bytes that are not valid UTF-8
            show as U+FFFD.
        longest_bytes: length of the longest token.
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

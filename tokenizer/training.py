"""Counts to a byte-level BPE tokenizer (phase 1)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import numpy as np

from tokenizer import _native
from tokenizer.bpe import ALPHABET, Tokenizer
from tokenizer.counting import PretokenCounts
from tokenizer.errors import UserError
from tokenizer.progress import Progress, Throttle

DEFAULT_SPECIAL_TOKENS = ("<|endoftext|>",)


def train_bpe(
    counts: PretokenCounts,
    vocab_size: int,
    *,
    special_tokens: Sequence[str] = DEFAULT_SPECIAL_TOKENS,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Trains byte-level BPE: the most frequent adjacent pair is merged until the vocabulary is full.

    Counts are 64-bit and over all adjacent positions, overlapping ones included. Stops early, with a warning
    and a note in the provenance, when no pair is left.

    Args:
        counts: what `count_pretokens` gave.
        vocab_size: 256 bytes + merges + special tokens.
        special_tokens: take the last ids; no merge may spell one.
        tie_break: which of the most frequent pairs is merged: "lowest-ids" (HF's order: bytes in HF's alphabet
            order, then merges by rank), "lexicographic-greatest" or "lexicographic-smallest" (of left bytes,
            right bytes).
        min_count: pairs that occur less often are not merged.
        max_token_bytes: longer tokens are not made.
        progress: called with merges done.

    Raises:
        UserError: the vocabulary is too small, or an argument is not possible.
    """
    n_merges = merges_that_fit(vocab_size, special_tokens)
    for name, value in (("min_count", min_count), ("max_token_bytes", max_token_bytes)):
        if value is not None and value < 0:
            raise UserError(f"{name}={value} is not possible; use 0 or more")
    tick = Throttle(progress, "merges", n_merges)
    started = time.perf_counter()
    trained = _native.train_bpe(
        counts.data,
        counts.offsets,
        counts.counts,
        ALPHABET,
        n_merges,
        tie_break=tie_break,
        min_count=min_count,
        max_token_bytes=max_token_bytes,
        special_tokens=list(special_tokens),
        progress=lambda merges, _: tick(merges),
    )
    made = len(trained["left"])
    tick.finish(made)
    if made < n_merges:
        warnings.warn(
            f"the corpus ran out of pairs after {made} of {n_merges} merges; the vocabulary has "
            f"{256 + made + len(special_tokens)} tokens, not {vocab_size}. Use more text or a smaller vocabulary",
            stacklevel=2,
        )
    return Tokenizer.from_ranks(
        np.stack([trained["left"], trained["right"]], axis=1),
        pattern=counts.pattern,
        special_tokens=special_tokens,
        provenance={
            "phase1": {
                "corpus_bytes": counts.n_bytes,
                "corpus_documents": counts.n_documents,
                "distinct_pretokens": counts.n_distinct,
                "unit": counts.unit,
                "vocab_size_asked": vocab_size,
                "tie_break": tie_break,
                "min_count": min_count,
                "max_token_bytes": max_token_bytes,
                "ran_out_of_pairs": made < n_merges,
                "last_count": int(trained["count"][-1]) if made else None,
                "already_tokens": trained["already_tokens"],
                "seconds": round(time.perf_counter() - started, 3),
            }
        },
    )


def merges_that_fit(vocab_size: int, special_tokens: Sequence[str]) -> int:
    """Merges of a vocabulary of this size; refuses one that bytes and special tokens alone overfill."""
    specials = list(special_tokens)
    if len(set(specials)) < len(specials) or "" in specials:
        raise UserError(f"special_tokens={specials!r} repeats a string or holds an empty one")
    if vocab_size < 256 + len(specials):
        raise UserError(
            f"vocab_size={vocab_size} is below 256 bytes + {len(specials)} special token(s); "
            f"use at least {256 + len(specials)}"
        )
    return vocab_size - 256 - len(specials)

"""Text on a comparison page: a segmented held-out document, and superwords."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.stages.shards import open_shards
from lm.bits import bytes_per_token
from superbpe.inspection import tokens as inspection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.findings.compared import Findings, ScoredArm


_SUPERWORDS = 60
"""Length of the list of superwords."""
_SEGMENTED_BYTES = 1_600
"""Length of the segmented part of a document."""


def heldout(result: Findings, n_bytes: int) -> list[str]:
    """The first held-out documents, about `n_bytes` in total, decoded from the shards that were scored.

    They are the original documents, unless the tokenizers of all arms change text.
    """
    arm = next((arm for arm in result.arms if not arm.tokenizer.changes_text), result.arms[0])
    shards, taken, total = open_shards(arm.heldout, arm), list[str](), 0
    for i in range(shards.n_documents):
        taken.append(arm.tokenizer.decode(shards.document(i)))
        total += len(taken[-1].encode())
        if total >= n_bytes:
            break
    return taken


def superwords(arm: ScoredArm, texts: Sequence[str], threads: int | None) -> dict[str, Any]:
    """Superwords of an arm, by their frequency in held-out texts."""
    tokenizer = arm.tokenizer
    counts = np.bincount(tokenizer.encode_batch(texts, threads=threads)[0], minlength=tokenizer.vocab_size)
    words = inspection.superwords(tokenizer, counts)
    frequent = sorted(words, key=lambda word: -word.count)
    n_bytes = int(counts @ tokenizer.token_byte_lengths().astype("int64"))
    return {
        "label": arm.label,
        "n": len(words),
        "vocab_size": tokenizer.vocab_size,
        "share_of_tokens": sum(word.count for word in words) / max(int(counts.sum()), 1),
        "share_of_bytes": sum(word.count * word.n_bytes for word in words) / max(n_bytes, 1),
        "unused": sum(word.count == 0 for word in words),
        "most_frequent": [dataclasses.asdict(word) for word in frequent[:_SUPERWORDS]],
    }


def segmented(result: Findings, texts: Sequence[str]) -> dict[str, Any]:
    """The first of the held-out documents that fills the sample, or the first one, segmented by every tokenizer."""
    number = next((i for i, text in enumerate(texts) if len(text.encode()) >= _SEGMENTED_BYTES), 0)
    document = texts[number]
    shown = document.encode()[:_SEGMENTED_BYTES].decode("utf-8", errors="ignore")
    whole = len(shown) == len(document)
    if not whole and " " in shown:
        shown = shown[: shown.rindex(" ")]
    sides = []
    for arm in result.arms:
        pieces = inspection.segment(arm.tokenizer, shown)
        sides.append(
            {
                "label": arm.label,
                "n_tokens": len(pieces),
                "bytes_per_token": bytes_per_token(len(shown.encode()), len(pieces)),
                "pieces": [dataclasses.asdict(piece) for piece in pieces],
            }
        )
    return {"document": number, "whole": whole, "sides": sides}

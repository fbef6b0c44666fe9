"""Losses by kind of token, and training curves.

Tokens of one length are not the same text for two tokenizers. These tables explain a difference in loss per byte; they
do not show which tokenizer is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.bits import bits_per_byte

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from lm.data.shards import Shards
    from tokenizer.interface import TokenizerLike

PHASES = ("byte", "subword", "superword", "special", "unknown")
"""Single bytes; tokens of at most one word, of either phase; phase-2 tokens of several words; special tokens; the token
for text that the vocabulary cannot spell."""
_CHUNK = 1 << 22


@dataclass(frozen=True)
class TokenFacts:
    """Length and phase of every token of a vocabulary.

    Attributes:
        n_bytes: float64[vocab_size], bytes of text that each token stands for, on average; 0 for special tokens.
        phase: int64[vocab_size], index into `PHASES`.
    """

    n_bytes: NDArray[np.float64]
    phase: NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: TokenizerLike, shards: Shards | None = None) -> TokenFacts:
        """Facts about the tokens of a tokenizer.

        Args:
            tokenizer: The tokenizer.
            shards: The text that is analysed. It is needed if the bytes of a token depend on the text
                (`Shards.covered_bytes`).
        """
        special = list(tokenizer.special_tokens.values())
        phase = np.full(tokenizer.vocab_size, PHASES.index("subword"))
        phase[[i for i in tokenizer.byte_ids if i >= 0]] = PHASES.index("byte")
        phase[tokenizer.superword_ids()] = PHASES.index("superword")
        phase[special] = PHASES.index("special")
        if tokenizer.unknown_id is not None:
            phase[tokenizer.unknown_id] = PHASES.index("unknown")
        n_bytes = tokenizer.token_byte_lengths().astype(np.float64)
        if shards is not None and shards.covered_bytes is not None:
            covered = _mean_covered_bytes(shards)
            n_bytes = np.where(np.isnan(covered), n_bytes, covered)
        return cls(n_bytes, phase)


def loss_by_phase(nats: NDArray[np.float64], counts: NDArray[np.int64], facts: TokenFacts) -> list[dict[str, Any]]:
    """Loss by phase, for each of `PHASES` that occurs.

    Args:
        nats: float64[vocab_size], summed loss of each id as a target.
        counts: int64[vocab_size], number of times each id was a target.
        facts: Facts about the tokens.

    Returns:
        Rows of `_table`, with `phase`.
    """
    rows = _table(nats, counts, facts.n_bytes, facts.phase)
    return [{"phase": PHASES[group], **row} for group, row in rows]


def loss_by_bytes(
    nats: NDArray[np.float64], counts: NDArray[np.int64], facts: TokenFacts, longest: int = 24
) -> list[dict[str, Any]]:
    """Loss by length of the target in bytes, rounded, without special tokens; arguments as for `loss_by_phase`.

    Returns:
        Rows of `_table`, with `n_bytes`; `longest` includes all longer tokens.
    """
    groups = np.minimum(np.rint(facts.n_bytes).astype(np.int64), longest)
    groups[facts.phase == PHASES.index("special")] = -1
    return [{"n_bytes": group, **row} for group, row in _table(nats, counts, facts.n_bytes, groups)]


def _table(
    nats: NDArray[np.float64], counts: NDArray[np.int64], n_bytes: NDArray[np.float64], groups: NDArray[np.int64]
) -> list[tuple[int, dict[str, Any]]]:
    """For each group of ids that occurs, in order: `tokens`, `share_of_tokens`, `bytes`, `share_of_bytes`,
    `share_of_nats`, `nats_per_token`, `bits_per_byte` (None for groups without bytes). Negative groups are left out.
    """
    if not len(nats) == len(counts) == len(n_bytes) == len(groups):
        raise ValueError(f"{len(nats)} sums of nats, {len(counts)} counts, facts about {len(n_bytes)} tokens")
    size = int(groups.max(initial=0)) + 1
    inside = groups >= 0

    def total(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(groups[inside], weights=values[inside], minlength=size).astype(np.float64)

    tokens, text, loss = total(counts), total(counts * n_bytes), total(nats)
    return [
        (
            group,
            {
                "tokens": int(tokens[group]),
                "share_of_tokens": tokens[group] / tokens.sum(),
                "bytes": round(text[group]),
                "share_of_bytes": text[group] / max(text.sum(), 1.0),
                "share_of_nats": loss[group] / max(loss.sum(), 1e-300),
                "nats_per_token": loss[group] / tokens[group],
                "bits_per_byte": bits_per_byte(loss[group], text[group]) if text[group] else None,
            },
        )
        for group in np.flatnonzero(tokens).tolist()
    ]


def _mean_covered_bytes(shards: Shards) -> NDArray[np.float64]:
    """Mean bytes of text that the occurrences of each id stand for, float64[vocab_size]; NaN if there are none."""
    assert shards.covered_bytes is not None
    total, counts = np.zeros(shards.vocab_size), np.zeros(shards.vocab_size)
    for start in range(0, shards.n_tokens, _CHUNK):
        stop = min(start + _CHUNK, shards.n_tokens)
        ids = shards.tokens(start, stop)
        total += np.bincount(ids, shards.covered_bytes[start:stop], shards.vocab_size)
        counts += np.bincount(ids, minlength=shards.vocab_size)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / counts, np.float64)


def curves(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Diagnostics of a run for charts: one row per quantity and step with diagnostics.

    Args:
        rows: Rows of the training log (`metrics.jsonl` of a model), in any order; if a step was logged twice, the last
            row counts.

    Returns:
        Rows with `step`, `bytes_seen`, `name` and `value`. `grad_norm` is the mean over the logged steps since the
        previous row.
    """
    steps = {row["step"]: row for row in rows}
    found: list[dict[str, Any]] = []
    since: list[float] = []
    for step in sorted(steps):
        row = steps[step]
        since.append(row["grad_norm"])
        if "residual_rms" not in row:
            continue
        values = {"grad_norm": sum(since) / len(since)}
        values |= {name: value for name, value in row.items() if name.startswith("gate_rms/")}
        at = {"step": step, "bytes_seen": row["bytes_seen"]}
        found += [{**at, "name": name, "value": value} for name, value in values.items()]
        since = []
    return found

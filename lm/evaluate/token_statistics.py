"""Losses by kind of token, token frequencies, and training curves.

Tokens of one length are not the same text for two tokenizers. These tables explain a difference in loss per byte; they
do not show which tokenizer is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.stream import DocumentStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from lm.data.shards import Shards
    from tokenizer.interface import TokenizerLike

PHASES = ("byte", "subword", "superword", "special", "unknown")
"""Single bytes; tokens of at most one word, of either phase; phase-2 tokens of several words; special tokens; the token
for text that the vocabulary cannot spell."""
_CHUNK = 1 << 22
_EVERY_STEP = ("grad_norm", "tokens_per_second")
_DIAGNOSTICS = ("residual_rms/", "gate_rms/", "weight_norm/", "weight_rms/", "mfu")


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
            counts, covered = token_counts(shards), _covered_bytes(shards)
            n_bytes = np.where(counts > 0, covered / np.maximum(counts, 1), n_bytes)
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
                "bits_per_byte": loss[group] / math.log(2) / text[group] if text[group] else None,
            },
        )
        for group in np.flatnonzero(tokens).tolist()
    ]


def token_counts(shards: Shards) -> NDArray[np.int64]:
    """Occurrences of each id in the shards, int64[vocab_size]; <|endoftext|> counts once per document."""
    return _count(shards.tokens, 0, shards.n_tokens, shards.vocab_size)


def _covered_bytes(shards: Shards) -> NDArray[np.float64]:
    """Bytes of text that all occurrences of each id stand for, float64[vocab_size]."""
    assert shards.covered_bytes is not None
    total = np.zeros(shards.vocab_size)
    for start in range(0, shards.n_tokens, _CHUNK):
        stop = min(start + _CHUNK, shards.n_tokens)
        total += np.bincount(shards.tokens(start, stop), shards.covered_bytes[start:stop], shards.vocab_size)
    return total


def trained_counts(shards: Shards, n_tokens: int, *, seed: int, shuffle: bool) -> NDArray[np.int64]:
    """Occurrences of each id in the text that a run read, int64[vocab_size].

    Args:
        shards: The training text.
        n_tokens: Number of tokens that the run read.
        seed: `TrainConfig.seed` of the run.
        shuffle: `TrainConfig.shuffle` of the run.
    """
    epochs, rest = divmod(n_tokens, shards.n_tokens)
    counts = epochs * token_counts(shards) if epochs else np.zeros(shards.vocab_size, np.int64)
    read = DocumentStream(shards, seed=seed, shuffle=shuffle).read
    return counts + _count(read, n_tokens - rest, n_tokens, shards.vocab_size)


def _count(read: Callable[[int, int], NDArray[np.int64]], start: int, stop: int, size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, np.int64)
    for first in range(start, stop, _CHUNK):
        counts += np.bincount(read(first, min(first + _CHUNK, stop)), minlength=size)
    return counts


def rank_frequency(counts: NDArray[np.int64], points: int = 200) -> list[dict[str, float]]:
    """Count by rank, most frequent token first, at up to `points` ranks spaced evenly on a log scale.

    Args:
        counts: int64[vocab_size], from `token_counts` or an evaluation.
        points: Maximum number of rows, each with `rank` (from 1), `count` and `share` of all tokens. Ids that do not
            occur have no rank.
    """
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return []
    ranks = np.unique(np.geomspace(1, len(ordered), points).round().astype(np.int64))
    total = int(counts.sum())
    return [
        {"rank": r, "count": c, "share": c / total}
        for r, c in zip(ranks.tolist(), ordered[ranks - 1].tolist(), strict=True)
    ]


def frequency_summary(counts: NDArray[np.int64], rare: int = 100) -> dict[str, float]:
    """Statistics of a token distribution.

    Args:
        counts: int64[vocab_size].
        rare: Tokens that occur fewer times than this are rare.

    Returns:
        `vocab_size`; `used` and `unused`, numbers of ids that occur and do not; `rare`, number of ids that occur fewer
        than `rare_below` times, unused ones included; `top_10_share` and `top_100_share` of all tokens; `entropy_bits`
        per token.
    """
    ordered, total = np.sort(counts)[::-1], max(int(counts.sum()), 1)
    shares = ordered[ordered > 0] / total
    return {
        "vocab_size": len(counts),
        "used": len(shares),
        "unused": len(counts) - len(shares),
        "rare": int((counts < rare).sum()),
        "rare_below": rare,
        "top_10_share": float(shares[:10].sum()),
        "top_100_share": float(shares[:100].sum()),
        "entropy_bits": float(-(shares * np.log2(shares)).sum()),
    }


def curves(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Diagnostics of a run for charts: one row per quantity and step with diagnostics.

    Args:
        rows: Rows of the training log (`metrics.jsonl` of a model), in any order; if a step was logged twice, the last
            row counts.

    Returns:
        Rows with `step`, `bytes_seen`, `name` and `value`. `grad_norm` and `tokens_per_second` are means over the
        logged steps since the previous row.
    """
    steps = {row["step"]: row for row in rows}
    found: list[dict[str, Any]] = []
    since: list[dict[str, Any]] = []
    for step in sorted(steps):
        row = steps[step]
        since.append(row)
        if "mfu" not in row:
            continue
        values = {name: sum(each[name] for each in since) / len(since) for name in _EVERY_STEP}
        values |= {name: value for name, value in row.items() if name.startswith(_DIAGNOSTICS)}
        at = {"step": step, "bytes_seen": row["bytes_seen"]}
        found += [{**at, "name": name, "value": value} for name, value in values.items()]
        since = []
    return found

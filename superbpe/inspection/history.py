"""History of training: each merge and the number of tokens that it saves.

Every occurrence of a token results from the merges of its derivation, each of which joins two tokens into one. So the
token counts of an encoded text give the number of applications of each merge (`times_applied`), and the number of
tokens after the first k merges, for all k at once: bytes minus the applications so far. Encoding with the tokenizer cut
to k merges would give the same number, but this needs only one encoding per phase.

Counts in training are counts of pairs. They equal the applications, except for pairs of equal tokens: "aaa" contains
two pairs (a, a), of which one is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from superbpe.inspection.tokens import display
from superbpe.transition import times_applied
from tokenizer import _native
from tokenizer.errors import UserError
from tokenizer.interface import n_words
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class History:
    """Effect of a tokenizer's merges on a text.

    Attributes:
        n_bytes: UTF-8 bytes of the text; no token crosses the ends of its documents.
        applied: int64 [n_merges], by rank: number of applications of each merge when the text is encoded. Phase-1
            merges are applied by phase 1's own tokenizer, inside its pretokens.
        lifted: int64 [n_phase1_merges]: number of applications of phase-1 merges if only phase 2's fence cuts the
            text. Equal to `applied` for plain BPE and for two-pass tokenizers, which keep phase 1's fence.
        first_size: vocabulary size without merges: 256 bytes and the special tokens.
    """

    n_bytes: int
    applied: Ints
    lifted: Ints
    first_size: int

    @property
    def transition(self) -> int:
        """Vocabulary size at which phase 2 starts; the full size for plain BPE."""
        return self.first_size + len(self.lifted)

    def tokens(self) -> Ints:
        """Number of tokens of the text by vocabulary size, from `first_size` on: int64 [n_merges + 1]."""
        n_phase1 = len(self.lifted)
        phase1 = self.n_bytes - np.cumsum(self.applied[:n_phase1])
        phase2 = self.n_bytes - int(self.lifted.sum()) - np.cumsum(self.applied[n_phase1:])
        return np.concatenate([[self.n_bytes], phase1, phase2]).astype(np.int64)

    def bytes_per_token(self) -> npt.NDArray[np.float64]:
        """Bytes per token by vocabulary size, as `tokens`."""
        return self.n_bytes / np.maximum(self.tokens(), 1)

    def curve(self, points: int) -> list[tuple[int, float]]:
        """Some vocabulary sizes and their bytes per token: log-spaced from 512, the transition, and the full size."""
        first, last = self.first_size, self.first_size + len(self.applied)
        start = 512 if last > 1024 else first
        chosen = {round(size) for size in np.geomspace(start, last, max(points, 2))} | {self.transition}
        values = self.bytes_per_token()
        return [(size, float(values[size - first])) for size in sorted(chosen) if first <= size <= last]


def measure(tokenizer: Tokenizer, batches: Iterable[_native.Batch], *, threads: int | None = None) -> History:
    """Encode a text with a tokenizer and with its phase 1 alone, and count the applications of each merge.

    Args:
        tokenizer: each token must have a single derivation, as in tokenizers trained here.
        batches: the text; read once.
        threads: see `Tokenizer.encode_batch`.

    Raises:
        UserError: a token has several derivations, so tokens do not determine which merges were applied.
    """
    if tokenizer.ignore_merges:
        raise UserError(
            "the tokenizer ignores merges (ignore_merges), so its tokens do not determine which merges were applied; "
            "encode with `Tokenizer.cut` to each size instead"
        )
    ranks = tokenizer.ranks()
    n_phase1 = tokenizer.n_phase1_merges
    plain = n_phase1 == len(ranks)
    encoders = [tokenizer] if plain else [tokenizer, Tokenizer.from_ranks(ranks[:n_phase1], pattern=tokenizer.pattern)]
    counts = [np.zeros(encoder.vocab_size, dtype=np.int64) for encoder in encoders]
    n_bytes = 0
    for batch in batches:
        n_bytes += batch.n_bytes
        for encoder, count in zip(encoders, counts, strict=True):
            ids, _ = encoder.encode_batch(batch, threads=threads)
            count += np.bincount(ids, minlength=encoder.vocab_size)
    counts = [count[encoder.ordinary_ids()] for encoder, count in zip(encoders, counts, strict=True)]
    every = times_applied(ranks, counts[0])
    inside = every[:n_phase1] if plain else times_applied(ranks[:n_phase1], counts[1])
    return History(
        n_bytes=n_bytes,
        applied=np.concatenate([inside, every[n_phase1:]]),
        lifted=every[:n_phase1],
        first_size=256 + len(tokenizer.special_tokens),
    )


def merge_log(
    tokenizer: Tokenizer, *, counts: Sequence[npt.ArrayLike] = (), history: History | None = None
) -> pa.Table:
    """Table with one row per merge, by rank, to be written as Parquet or JSON lines.

    Columns: `rank`, `phase` (1 or 2), `vocab_size` (including this merge), `text` (with hex escapes for invalid UTF-8),
    `left` and `right` in the same format, `bytes`, `words` (whitespace-separated), `superword` (a phase-2 token of two
    or more words); with `counts`, `count` (null if unknown); with `history`, `applied`, `tokens` and `bytes_per_token`
    of its text.

    Args:
        tokenizer: a tokenizer with one derivation per token.
        counts: counts of the pairs when they were merged, per phase, as training reports them. Counts of phase-1 merges
            after the transition are ignored.
        history: history of this tokenizer.

    Raises:
        UserError: counts or history belong to another tokenizer.
    """
    import pyarrow as pa

    tokenizer.ranks()  # rejects a tokenizer without an order of merges
    n, n_phase1 = len(tokenizer.merge_ids), tokenizer.n_phase1_merges
    parts = tokenizer.merges
    tokens = [left + right for left, right in parts]
    superwords = set(tokenizer.superword_ids().tolist())
    first_size = 256 + len(tokenizer.special_tokens)
    columns: dict[str, Any] = {
        "rank": pa.array(range(n), pa.int32()),
        "phase": pa.array([1] * n_phase1 + [2] * (n - n_phase1), pa.int8()),
        "vocab_size": pa.array(range(first_size + 1, first_size + n + 1), pa.int32()),
        "text": pa.array([display(token) for token in tokens], pa.string()),
        "left": pa.array([display(left) for left, _ in parts], pa.string()),
        "right": pa.array([display(right) for _, right in parts], pa.string()),
        "bytes": pa.array([len(token) for token in tokens], pa.int32()),
        "words": pa.array([n_words(token) for token in tokens], pa.int32()),
        "superword": pa.array([token in superwords for token in tokenizer.merge_ids[:, 2].tolist()], pa.bool_()),
    }
    if counts:
        columns["count"] = pa.array(_by_rank(counts, n_phase1, n), pa.uint64())
    if history is not None:
        if len(history.applied) != n or len(history.lifted) != n_phase1:
            raise UserError(f"the history has {len(history.applied)} merges, the tokenizer {n}; measure it again")
        columns["applied"] = pa.array(history.applied)
        columns["tokens"] = pa.array(history.tokens()[1:])
        columns["bytes_per_token"] = pa.array(history.bytes_per_token()[1:])
    return pa.table(columns)


def _by_rank(counts: Sequence[npt.ArrayLike], n_phase1: int, n: int) -> list[int | None]:
    """Counts of both phases by rank; None for merges without a count."""
    phases: Sequence[npt.ArrayLike] = (*counts, [], [])
    by_rank: list[int | None] = []
    for phase, wanted, exact in zip(phases, (n_phase1, n - n_phase1), (False, True), strict=False):
        part = np.asarray(phase, dtype=np.uint64).tolist()
        if part and (len(part) < wanted or (exact and len(part) > wanted)):
            raise UserError(
                f"there are counts of {len(part)} merges for a phase of {wanted}; they belong to another training"
            )
        by_rank += part[:wanted] or [None] * wanted
    return by_rank

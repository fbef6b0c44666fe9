"""Measures of a tokenizer on groups of documents, with confidence intervals over documents."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.fertility.documents import ALL
from lm.evaluate.deployment import serving_cost
from lm.evaluate.significance import effective_number, t_quantile
from superbpe.inspection.measures import renyi_entropy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.fertility.counting import Tally
    from experiments.fertility.documents import Documents, Group
    from lm.evaluate.deployment import Deployment

CONFIDENCE = 0.95
LEAST_DOCUMENTS = 10
"""Fewer documents get no interval."""


class Measured(NamedTuple):
    """A measure and its interval; None if there are fewer than `LEAST_DOCUMENTS` documents."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """Measures of a tokenizer on a group of documents: totals over the documents, divided once.

    Attributes:
        tokenizer: Name of the tokenizer.
        by, group: The group, see `experiments.fertility.documents.Group`.
        documents, bytes, words, tokens: Totals; words are separated by white space.
        bytes_per_token: Compression; None if there is no token.
        tokens_per_word: Fertility; None if there is no word.
        parity: Tokens divided by the reference's tokens of the same documents.
        vocabulary: Ordinary tokens of the vocabulary, without special tokens and unused ids.
        used: Those of them that occur; for all text only.
        renyi_efficiency: Rényi entropy of the token distribution over log2(vocabulary) (Zouhar et al. 2023); for all
            text only.
        changed_documents: Documents that decode to another text.
        lost_bytes: Bytes that no token stands for, or only the unknown token.
        in_training_bytes: Bytes of documents that also are in the tokenizer's training text; None if that is unknown.
    """

    tokenizer: str
    by: str
    group: str
    documents: int
    bytes: int
    words: int
    tokens: int
    bytes_per_token: Measured | None
    tokens_per_word: Measured | None
    parity: Measured | None
    vocabulary: int
    used: int | None
    renyi_efficiency: float | None
    changed_documents: int
    lost_bytes: int
    in_training_bytes: int | None

    def flat(self) -> dict[str, Any]:
        """The row as JSON-able columns: a measure has its value, `_low` and `_high`."""
        row: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name in ("bytes_per_token", "tokens_per_word", "parity"):
                row |= dict(zip((name, f"{name}_low", f"{name}_high"), value or (None, None, None), strict=True))
            else:
                row[name] = value
        return row


def rows(
    name: str,
    tally: Tally,
    documents: Documents,
    reference_tokens: NDArray[np.int64],
    alpha: float,
    in_training: NDArray[np.bool_] | None,
) -> list[Row]:
    """Measure a tokenizer on every group.

    Args:
        name: Name of the tokenizer.
        tally: Its counts.
        documents: The documents.
        reference_tokens: int64[n_documents], tokens of each document by the reference.
        alpha: Order of the Rényi entropy.
        in_training: bool[n_documents], whether a document is in its training text; None if that is unknown.
    """
    ordinary = tally.tokenizer.ordinary_ids()
    efficiency = renyi_entropy(tally.counts, alpha) / math.log2(max(len(ordinary), 2)) if tally.counts.any() else 0.0

    def row(group: Group) -> Row:
        chosen, whole = group.documents, group.by == ALL
        sizes, words, tokens = documents.n_bytes[chosen], documents.n_words[chosen], tally.tokens[chosen]
        return Row(
            tokenizer=name,
            by=group.by,
            group=group.name,
            documents=len(chosen),
            bytes=int(sizes.sum()),
            words=int(words.sum()),
            tokens=int(tokens.sum()),
            bytes_per_token=ratio(sizes, tokens),
            tokens_per_word=ratio(tokens, words),
            parity=ratio(tokens, reference_tokens[chosen]),
            vocabulary=len(ordinary),
            used=int(np.count_nonzero(tally.counts[ordinary])) if whole else None,
            renyi_efficiency=efficiency if whole else None,
            changed_documents=int(np.count_nonzero(tally.changed[chosen])),
            lost_bytes=int(tally.lost[chosen].sum()),
            in_training_bytes=None if in_training is None else int(sizes[in_training[chosen]].sum()),
        )

    return [row(group) for group in documents.groups]


def ratio(numerators: NDArray[np.int64], denominators: NDArray[np.int64]) -> Measured | None:
    """Ratio of totals over documents, with its interval by the jackknife; None if it is undefined.

    If both are counts of tokens, the interval is paired, since they are of the same documents.

    Student's t has as many degrees of freedom as the effective number of documents, less one. With documents of very
    different sizes, the usual linearized variance and n - 1 degrees give intervals that are too narrow: 95 % intervals
    over 30 documents with log-normal sizes (sigma 1.8) cover 78 %, these 95 %.
    """
    n, total = len(numerators), int(denominators.sum())
    if not total:
        return None
    value = int(numerators.sum()) / total
    others = total - denominators
    if n < LEAST_DOCUMENTS or not others.all():
        return Measured(value, None, None)
    changes = (numerators - value * denominators) / others  # by leaving out one document
    effective = float(effective_number(denominators.astype(np.float64)))
    variance = (n - 1) / n * float(changes @ changes)
    half = t_quantile(CONFIDENCE, max(effective - 1, 1)) * math.sqrt(variance)
    return Measured(value, value - half, value + half)


def costs(deployed: Deployment, vocab_size: int, row: Row) -> dict[str, float | None]:
    """Cost of serving text that needs as many tokens per byte as a group of documents.

    Args:
        deployed: The model that is served.
        vocab_size: Size of the tokenizer's vocabulary.
        row: Measures of the tokenizer on the group.

    Returns:
        FLOPs and seconds per byte of text that is read (`prefill_…`) and decoded (`decode_…`), and bytes of the KV
        cache per byte of text; None if the tokenizer gives no tokens.
    """
    cost = serving_cost(deployed, vocab_size=vocab_size, tokens_per_byte=max(row.tokens, 1) / row.bytes)
    found = {
        "prefill_flops_per_byte": cost.prefill.flops_per_byte,
        "prefill_seconds_per_byte": cost.prefill.seconds_per_byte,
        "decode_flops_per_byte": cost.decode.flops_per_byte,
        "decode_seconds_per_byte": cost.decode.seconds_per_byte,
        "cache_bytes_per_byte": cost.cache_bytes_per_byte,
    }
    return {name: value if row.tokens else None for name, value in found.items()}

"""The numbers of a vocabulary report: a tokenizer's tokens, a comparison with others, and measurements on text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.store.manifest import command_line
from superbpe.inspection import measures, tokens
from superbpe.inspection.tokens import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenizer import _native
    from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """Contents of the report.

    Attributes:
        alpha: Order of the Rényi entropy.
        listed: Rows of every list on the page.
        contexts: Occurrences to show per token.
        context_bytes: Bytes of text on either side of an occurrence.
        most_context_bytes: Maximum size of all contexts on the page, in bytes.
        sample_bytes: Length of the initial text in the segmentation field, in bytes.
    """

    alpha: float = 2.5
    listed: int = 300
    contexts: int = 3
    context_bytes: int = 48
    most_context_bytes: int = 6_000_000
    sample_bytes: int = 700


@dataclass(frozen=True)
class Side:
    """A tokenizer in the report.

    Attributes:
        label: Label of the tokenizer.
        source: Path that it was loaded from.
        tokenizer: The tokenizer.
        tokens: Descriptions of its tokens.
        trained: Counts in training by id, -1 for unknown; None if there are none.
        encoded: The encoded text; None without text.
        measured: Measurements on the text; None without text.
    """

    label: str
    source: str
    tokenizer: Tokenizer
    tokens: tokens.Tokens
    trained: npt.NDArray[np.int64] | None
    encoded: measures.Encoded | None
    measured: measures.Measures | None

    @cached_property
    def near_duplicates(self) -> list[list[int]]:
        """Groups of ids of near-duplicate tokens."""
        return tokens.near_duplicates(self.tokens)

    @property
    def unreachable(self) -> npt.NDArray[np.bool_]:
        """Tokens that encoding their own text does not produce, and that do not occur in the text."""
        return self.tokens.unreachable if self.encoded is None else self.tokens.unreachable & (self.encoded.counts == 0)


def side(
    label: str,
    source: str,
    tokenizer: Tokenizer,
    batches: Sequence[_native.Batch],
    *,
    alpha: float,
    trained: npt.NDArray[np.int64] | None = None,
    described: tokens.Tokens | None = None,
) -> Side:
    """Measure a tokenizer; empty `batches` means no text."""
    about = described or tokens.describe(tokenizer)
    encoded = measures.encode(tokenizer, batches) if batches else None
    measured = None if encoded is None else measures.measure(encoded, about, alpha=alpha)
    return Side(label, source, tokenizer, about, trained, encoded, measured)


def gather(sides: Sequence[Side], settings: Settings, text: str | None) -> dict[str, Any]:
    """Return the numbers of the report, JSON-able.

    Args:
        sides: The tokenizer, and others to compare it with on the same text.
        settings: Contents of the report.
        text: Description of the text; None without text.
    """
    first, *others = sides
    against = ", ".join(other.label for other in others)
    return {
        "title": f"Vocabulary of {first.label}" + (f", against {against}" if others else ""),
        "text": text,
        "settings": dataclasses.asdict(settings),
        "tokenizers": [_summary(one) for one in sides],
        "superwords": _superwords(first, settings.listed),
        "wasted": _wasted(first, settings.listed),
        "only": [[_only(first, other, settings), _only(other, first, settings)] for other in others],
        "sample": _sample(first, settings),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
    }


def table(one: Side, others: Sequence[Side]) -> dict[str, Any]:
    """Return all facts about each token as columns by id, to be written as Parquet.

    Args:
        one: The tokenizer.
        others: The other tokenizers of the report; the column `in LABEL` says whether they have the token.
    """
    about = one.tokens
    columns: dict[str, Any] = {
        "id": range(one.tokenizer.vocab_size),
        "text": about.text,
        "token": one.tokenizer.vocab,
        "bytes": about.n_bytes,
        "words": about.n_words,
        "rank": [None if rank < 0 else rank for rank in about.rank.tolist()],
        "phase": [phase or None for phase in about.phase.tolist()],
        "superword": about.superword,
        "crossing": about.crossing,
        "kind": [KINDS[kind] or None for kind in about.kind.tolist()],
        "partial": about.partial,
        "special": about.special,
        "unreachable": one.unreachable,
    }
    if one.trained is not None:
        columns["training_count"] = [None if count < 0 else count for count in one.trained.tolist()]
    if one.encoded is not None:
        columns["count"] = one.encoded.counts
    for other in others:
        columns[f"in {other.label}"] = about.ordinary & ~tokens.missing(one.tokenizer, about, other.tokenizer)
    return columns


def _summary(one: Side) -> dict[str, Any]:
    tokenizer, about = one.tokenizer, one.tokens
    counts = None if one.encoded is None else one.encoded.counts
    groups = one.near_duplicates
    return {
        "label": one.label,
        "source": one.source,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "ordinary": int(about.ordinary.sum()),
        "special": int(about.special.sum()),
        "unused_ids": int(about.unused.sum()),
        "merges": len(tokenizer.merge_ids),
        "phase2_merges": len(tokenizer.merge_ids) - tokenizer.n_phase1_merges,
        "mode": tokenizer.mode,
        "pattern": {"name": tokenizer.pattern.name, "regex": tokenizer.pattern.regex},
        "fence": None if tokenizer.fence is None else dataclasses.asdict(tokenizer.fence),
        "pretokens_by": about.pretokens.name,
        "superwords": int(about.superword.sum()),
        "crossing": int(about.crossing.sum()),
        "partial": int(about.partial.sum()),
        "unreachable": int(one.unreachable.sum()),
        "never_produced": None if counts is None else int((about.ordinary & (counts == 0)).sum()),
        "near_duplicates": {"groups": len(groups), "tokens": sum(map(len, groups))},
        "on_text": None if one.measured is None else dataclasses.asdict(one.measured),
    }


def _rows(one: Side, ids: Sequence[int]) -> list[dict[str, Any]]:
    about = one.tokens
    return [
        {
            "id": i,
            "text": about.text[i],
            "bytes": int(about.n_bytes[i]),
            "words": int(about.n_words[i]),
            "superword": bool(about.superword[i]),
            "count": None if one.encoded is None else int(one.encoded.counts[i]),
        }
        for i in ids
    ]


def _weight(one: Side) -> npt.NDArray[np.int64]:
    """Importance of each token: its frequency, or its rank if there is no text."""
    return -one.tokens.rank if one.encoded is None else one.encoded.counts


def _superwords(one: Side, listed: int) -> dict[str, Any]:
    about, weight = one.tokens, _weight(one)
    ids = np.flatnonzero(about.superword)
    counts = np.zeros(len(ids), dtype=np.int64) if one.encoded is None else one.encoded.counts[ids]
    kinds = []
    for kind in range(1, len(KINDS)):
        members = ids[about.kind[ids] == kind]
        best = members[np.argsort(-weight[members], kind="stable")][:12]
        kinds.append(
            {
                "kind": KINDS[kind],
                "superwords": len(members),
                "count": None if one.encoded is None else int(one.encoded.counts[members].sum()),
                "examples": [about.text[i] for i in best.tolist()],
            }
        )
    return {
        "n": len(ids),
        "never_produced": None if one.encoded is None else int((counts == 0).sum()),
        "kinds": kinds,
        "most_frequent": _rows(one, ids[np.argsort(-weight[ids], kind="stable")][:listed].tolist()),
        "longest": _rows(one, ids[np.lexsort((-weight[ids], -about.n_bytes[ids]))][:listed].tolist()),
    }


def _wasted(one: Side, listed: int) -> dict[str, Any]:
    about = one.tokens
    unreachable = np.flatnonzero(one.unreachable)
    groups = one.near_duplicates
    partial = np.flatnonzero(about.partial)
    never = np.empty(0, dtype=np.int64)
    if one.encoded is not None:
        never = np.flatnonzero(about.ordinary & (one.encoded.counts == 0))
    return {
        "unreachable": _rows(one, unreachable[:listed].tolist()),
        "never_produced": _rows(one, never[np.argsort(about.rank[never], kind="stable")][:listed].tolist()),
        "partial": _rows(one, partial[np.argsort(-_weight(one)[partial], kind="stable")][:listed].tolist()),
        "near_duplicates": [_rows(one, group) for group in groups[:listed]],
    }


def _only(one: Side, other: Side, settings: Settings) -> dict[str, Any]:
    lacking = np.flatnonzero(tokens.missing(one.tokenizer, one.tokens, other.tokenizer))
    best = lacking[np.argsort(-_weight(one)[lacking], kind="stable")][: settings.listed]
    return {
        "label": one.label,
        "tokens": len(lacking),
        "superwords": int(one.tokens.superword[lacking].sum()),
        "share_of_tokens": None
        if one.encoded is None
        else float(one.encoded.counts[lacking].sum()) / len(one.encoded.ids),
        "most_frequent": _rows(one, best.tolist()),
    }


_PANGRAM = "Of course, in the end it is one of the things that we do not know: 1,234 tokens, or 5.67 per word?"


def _sample(one: Side, settings: Settings) -> str:
    """The beginning of the first document that is long enough, up to the last space."""
    if one.encoded is None:
        return _PANGRAM
    ends = one.encoded.byte_ends
    starts = np.concatenate([[0], ends[:-1]])
    fits = np.flatnonzero(ends - starts >= settings.sample_bytes)
    which = int(fits[0]) if len(fits) else 0
    shown = one.encoded.data[starts[which] : min(ends[which], starts[which] + settings.sample_bytes)]
    text = shown.tobytes().decode("utf-8", errors="ignore")
    return text.rsplit(" ", 1)[0] if " " in text and len(fits) else text

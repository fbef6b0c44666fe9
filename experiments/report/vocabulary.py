"""The numbers of a vocabulary report: a tokenizer's tokens, a comparison with others, and measurements on text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.progress import Table
from experiments.store.manifest import command_line
from superbpe.inspection import boundaries, measures, residues, tokens
from superbpe.inspection.tokens import KINDS
from tokenizer.formats.readers import opens_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokenizer import _native
    from tokenizer.tokenizer import Tokenizer


LISTED, SPLIT_WORDS = 300, 1000
"""Rows of every list on the page, and of the list of split words."""
CONTEXT_BYTES = 48
"""Text shown on either side of a word or token."""
SAMPLE_BYTES = 700
"""Length of the initial text in the segmentation field."""
_PANGRAM = "Of course, in the end it is one of the things that we do not know: 1,234 tokens, or 5.67 per word?"


@dataclass(frozen=True)
class Side:
    """A tokenizer in the report.

    Attributes:
        source: Path that it was loaded from.
        encoded: The encoded text; None without text.
        measured: Measurements on the text; None without text.
        occurrences: Occurrences of its tokens inside other tokens of the text; None without text.
    """

    label: str
    source: str
    tokenizer: Tokenizer
    tokens: tokens.Tokens
    encoded: measures.EncodedText | None
    measured: measures.Measures | None
    occurrences: residues.Occurrences | None

    @cached_property
    def near_duplicates(self) -> list[list[int]]:
        """Groups of ids of near-duplicate tokens."""
        return tokens.near_duplicates(self.tokens)

    @property
    def unreachable(self) -> npt.NDArray[np.bool_]:
        """Tokens that encoding their own text does not produce, and that do not occur in the text."""
        return self.tokens.unreachable if self.encoded is None else self.tokens.unreachable & (self.encoded.counts == 0)


def side(label: str, source: str, tokenizer: Tokenizer, batches: Sequence[_native.Batch], *, alpha: float) -> Side:
    """Measure a tokenizer; empty `batches` means no text."""
    about = tokens.describe(tokenizer)
    encoded = measures.encode(tokenizer, batches) if batches else None
    measured = None if encoded is None else measures.measure(encoded, about, alpha=alpha)
    occurrences = None if encoded is None else residues.occurrences(tokenizer, encoded.counts)
    return Side(
        label=label,
        source=source,
        tokenizer=tokenizer,
        tokens=about,
        encoded=encoded,
        measured=measured,
        occurrences=occurrences,
    )


def gather(sides: Sequence[Side], text: str | None) -> dict[str, Any]:
    """Return the numbers of the report, JSON-able.

    Args:
        sides: The tokenizer, and others to compare it with on the same text.
        text: Description of the text; None without text.
    """
    first, *others = sides
    against = ", ".join(other.label for other in others)
    return {
        "title": f"Vocabulary of {first.label}" + (f", against {against}" if others else ""),
        "text": text,
        "tokenizers": [_summary(one) for one in sides],
        "superwords": _superwords(first),
        "split": _split(first),
        "residues": _residues(first),
        "wasted": _wasted(first),
        "only": [[_only(first, other), _only(other, first)] for other in others],
        "sample": _sample(first),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
    }


def numbers(report: Mapping[str, Any]) -> Table:
    """The numbers of all tokenizers, for the page and the terminal."""
    rows = report["tokenizers"]

    def line(title: str, key: str, form: str = ",", of: str = "") -> list[str]:
        values = [(row[of] if of else row)[key] for row in rows]
        return [title, *("not measured" if value is None else format(value, form) for value in values)]

    lines = [
        line("size, including special tokens and unused ids", "vocab_size"),
        line("ordinary tokens", "ordinary"),
        line("special tokens", "special"),
        line("unused ids", "unused_ids"),
        line("merges", "merges"),
        line("merges of phase 2", "phase2_merges"),
        line("superwords", "superwords"),
        line("other tokens across pretokens", "crossing"),
        line("parts of characters", "partial"),
        line("unreachable", "unreachable"),
        line("never produced in the text", "never_produced"),
        line("near-duplicates", "tokens", of="near_duplicates"),
    ]
    if report["text"]:
        alpha = rows[0]["on_text"]["alpha"]
        for title, key, form in (
            ("tokens of the text", "tokens", ","),
            ("bytes per token", "bytes_per_token", ".4f"),
            ("tokens per word", "fertility", ".4f"),
            ("utilisation: share of the ordinary tokens that occur", "utilisation", ".4f"),
            ("entropy (Shannon), bits per token", "entropy", ".4f"),
            (f"Rényi entropy (α={alpha:g}), bits per token", "renyi_entropy", ".4f"),
            (f"Rényi efficiency (α={alpha:g}), over log₂ of the ordinary tokens", "renyi_efficiency", ".4f"),
            ("Rényi efficiency over log₂ of the tokens that occur", "renyi_efficiency_observed", ".4f"),
            ("share of superwords among the tokens", "superword_tokens", ".4f"),
            ("share of bytes in superwords", "superword_bytes", ".4f"),
            ("share of other tokens across pretokens", "crossing_tokens", ".4f"),
            ("share of parts of characters among the tokens", "partial_tokens", ".2e"),
            ("STRR: share of words in one token", "strr", ".4f"),
            ("proportion of continued words", "continued_words", ".4f"),
            ("digit boundaries: share of numbers cut in groups of three", "digit_boundaries", ".4f"),
            ("characters cut inside UTF-8, per character", "cut_characters", ".2e"),
        ):
            lines.append(line(title, key, form, "on_text"))
        lines.append(line("residues: share of the measured tokens", "residues", ".4f"))
    measured = f", measured on {report['text']}" if report["text"] else ""
    return Table(report["title"] + measured, ["", *(row["label"] for row in rows)], lines)


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
    if one.encoded is not None:
        columns["count"] = one.encoded.counts
    if one.occurrences is not None:
        columns |= {"inside": one.occurrences.inside, "residue": one.occurrences.residue}
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
        "opens_in": {answer.reader: answer.text for answer in opens_in(tokenizer)},
        "near_duplicates": {"groups": len(groups), "tokens": sum(map(len, groups))},
        "residues": None if one.occurrences is None else one.occurrences.share,
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


def _best(one: Side, ids: npt.NDArray[np.int64], n: int = LISTED) -> list[int]:
    """The most important of these tokens, by `_weight`."""
    best: list[int] = ids[np.argsort(-_weight(one)[ids], kind="stable")][:n].tolist()
    return best


def _superwords(one: Side) -> dict[str, Any]:
    about, weight = one.tokens, _weight(one)
    ids = np.flatnonzero(about.superword)
    counts = np.zeros(len(ids), dtype=np.int64) if one.encoded is None else one.encoded.counts[ids]
    kinds = []
    for kind in range(1, len(KINDS)):
        members = ids[about.kind[ids] == kind]
        kinds.append(
            {
                "kind": KINDS[kind],
                "superwords": len(members),
                "count": None if one.encoded is None else int(one.encoded.counts[members].sum()),
                "examples": [about.text[i] for i in _best(one, members, 12)],
            }
        )
    return {
        "n": len(ids),
        "never_produced": None if one.encoded is None else int((counts == 0).sum()),
        "kinds": kinds,
        "most_frequent": _rows(one, _best(one, ids)),
        "longest": _rows(one, ids[np.lexsort((-weight[ids], -about.n_bytes[ids]))][:LISTED].tolist()),
    }


def _split(one: Side) -> dict[str, Any] | None:
    """The words whose splits cost most tokens, with their tokens; None if they are not known."""
    if one.encoded is None or not one.encoded.located:
        return None
    words = boundaries.worst_split(one.encoded.data, one.encoded.units, one.encoded.ids, one.encoded.token_ends)
    rows = [
        {
            "word": word.text,
            "count": word.n,
            "cuts": word.cuts,
            "tokens": [
                {"id": i, "text": one.tokens.text[i], "superword": bool(one.tokens.superword[i])} for i in word.ids
            ],
            "around": _around(one.encoded, word.place, len(word.text.encode())),
        }
        for word in words[:SPLIT_WORDS]
    ]
    return {"words": len(words), "cuts": sum(word.cuts for word in words), "rows": rows}


def _residues(one: Side) -> dict[str, Any] | None:
    """The residues, those that occur most inside other tokens first; None without text."""
    found, encoded = one.occurrences, one.encoded
    if found is None or encoded is None:
        return None
    ids = np.flatnonzero(found.residue)
    first = np.zeros(len(found.host), dtype=np.int64)
    first[encoded.ids[::-1]] = encoded.token_ends[::-1]  # the first occurrence is assigned last
    rows = []
    for row in _rows(one, ids[np.argsort(-found.inside[ids], kind="stable")][:LISTED].tolist()):
        i, host = row["id"], int(found.host[row["id"]])
        place = int(first[host] - one.tokens.n_bytes[host] + found.place[i])
        around = _around(encoded, place, row["bytes"])
        rows.append({**row, "inside": int(found.inside[i]), "host": _rows(one, [host])[0], "around": around})
    least, most = residues.LEAST_COUNT, residues.MOST_ALONE
    return {"n": len(ids), "measured": int(found.measured.sum()), "least": least, "most_alone": most, "rows": rows}


def _around(encoded: measures.EncodedText, place: int, n_bytes: int) -> list[str]:
    """The text before and after some bytes, in their document."""
    ends, end = encoded.byte_ends, place + n_bytes
    document = int(np.searchsorted(ends, place, side="right"))
    low = max(place - CONTEXT_BYTES, int(ends[document - 1]) if document else 0)
    high = min(end + CONTEXT_BYTES, int(ends[document]))
    return [
        encoded.data[low:place].tobytes().decode(errors="ignore"),
        encoded.data[end:high].tobytes().decode(errors="ignore"),
    ]


def _wasted(one: Side) -> dict[str, Any]:
    about = one.tokens
    unreachable = np.flatnonzero(one.unreachable)
    groups = one.near_duplicates
    partial = np.flatnonzero(about.partial)
    never = np.empty(0, dtype=np.int64)
    if one.encoded is not None:
        never = np.flatnonzero(about.ordinary & (one.encoded.counts == 0))
    return {
        "unreachable": _rows(one, unreachable[:LISTED].tolist()),
        "never_produced": _rows(one, never[np.argsort(about.rank[never], kind="stable")][:LISTED].tolist()),
        "partial": _rows(one, _best(one, partial)),
        "near_duplicates": [_rows(one, group) for group in groups[:LISTED]],
    }


def _only(one: Side, other: Side) -> dict[str, Any]:
    lacking = np.flatnonzero(tokens.missing(one.tokenizer, one.tokens, other.tokenizer))
    return {
        "label": one.label,
        "tokens": len(lacking),
        "superwords": int(one.tokens.superword[lacking].sum()),
        "share_of_tokens": None
        if one.encoded is None
        else float(one.encoded.counts[lacking].sum()) / len(one.encoded.ids),
        "most_frequent": _rows(one, _best(one, lacking)),
    }


def _sample(one: Side) -> str:
    """The beginning of the text, up to the last space."""
    if one.encoded is None:
        return _PANGRAM
    text = one.encoded.data[: min(SAMPLE_BYTES, one.encoded.byte_ends[0])].tobytes().decode(errors="ignore")
    return text.rsplit(" ", 1)[0] if len(one.encoded.data) > SAMPLE_BYTES and " " in text else text

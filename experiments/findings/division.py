"""Divides the gap between two arms among segments of held-out text, exactly, to show where it comes from.

Segments end where tokens of both arms end. Contributions of classes of text sum to the difference of the comparison.
They are shown with uncorrected intervals, and decide nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.numbers import percent, signed
from experiments.progress import Table
from experiments.stages.shards import open_shards
from lm.bits import bits
from lm.evaluate.bits_per_byte import SOURCE
from lm.evaluate.comparison import enough
from lm.evaluate.segments import CLASSES, classes, labels, shared_segments
from lm.evaluate.significance import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.findings.compared import Findings, ScoredArm
    from lm.data.shards import Shards
    from lm.evaluate.bits_per_byte import Evaluation

TITLE = "Where the gap comes from"
_CHUNK = 1 << 21
"""Bytes of documents that are divided at a time. Memory is about 50 times that, or 50 times the largest document."""
_SHOWN = 8
"""Documents and segments that are shown on each side of the gap."""
_CONTEXT, _LONGEST = 80, 200
"""Bytes that are shown before and after a segment, and of the segment."""


class Division(NamedTuple):
    """The gap between an arm and the reference, by class of segment and by document.

    Attributes:
        changes: float64[n_classes, n_seeds, n_documents], nats of the arm minus those of the reference.
        sizes: float64[n_classes, n_documents], bytes.
        segments: The segments with the largest differences, as in `divide`.
    """

    changes: NDArray[np.float64]
    sizes: NDArray[np.float64]
    segments: Sequence[dict[str, Any]]


class _Side(NamedTuple):
    """An arm with its held-out text.

    Attributes:
        shards: Its held-out text.
        superword: bool[vocab_size], tokens that are superwords.
        untrained: bool[vocab_size], as `ScoredArm.untrained`.
    """

    arm: ScoredArm
    shards: Shards
    superword: NDArray[np.bool_]
    untrained: NDArray[np.bool_]


class _Chunk(NamedTuple):
    """Documents that are divided together.

    Attributes:
        documents: Their numbers.
        places: int64[n_documents, 2], positions of the first byte of each in the text and after its last one.
        text: uint8[n_bytes], their text, with a line feed between two.
        labels: uint8[n_bytes], class of each byte; that of line feeds between documents is none.
    """

    documents: list[int]
    places: NDArray[np.int64]
    text: NDArray[np.uint8]
    labels: NDArray[np.uint8]


class _Tokens(NamedTuple):
    """Tokens of a chunk: position after each, whether it is a superword, or untrained, and float64[n_seeds, n_tokens],
    its loss.
    """

    ends: NDArray[np.int64]
    superword: NDArray[np.bool_]
    untrained: NDArray[np.bool_]
    nats: NDArray[np.float64]


def divide(result: Findings) -> dict[str, Any] | None:
    """Divide the gaps of all arms that take part in verdicts; return numbers for the report, JSON-able.

    `missing` says why nothing was divided, or is empty. `rows` has the contribution of each class of segment in percent
    of the reference's bits per byte, with an interval, or None with too few documents or sources; the class "all" is
    their sum. `documents` and `segments` are those with the largest differences in bits, of both signs. All numbers are
    means over seeds. `left_out` is the number of documents without text, or whose text a tokenizer changes.

    Returns:
        The numbers; None with a single arm.
    """
    chosen = [arm for arm in result.arms if not arm.barred]
    if len(result.arms) < 2:
        return None
    numbers: dict[str, Any] = {"missing": "", "left_out": 0, "rows": [], "documents": [], "segments": []}
    if len(chosen) < 2 or result.arms[0].barred:
        return numbers | {"missing": "no other arm can be compared with the reference"}
    if old := [arm.label for arm in chosen if any(run.token_nats is None for run in arm.evaluations)]:
        return numbers | {"missing": f"the losses of single tokens were not kept for {', '.join(old)}; evaluate again"}
    sides = [_side(arm) for arm in chosen]
    kept: NDArray[np.bool_] = np.logical_and.reduce([_spelled(side.shards) for side in sides])
    if result.documents is not None:
        kept &= result.documents
    if not kept.any():
        return numbers | {"missing": "no document is spelled by the tokens of all arms"}
    numbers["left_out"] = int((~kept).sum())
    documents, reference = np.flatnonzero(kept).tolist(), [run.only(kept) for run in chosen[0].evaluations]
    parts: list[list[Division]] = [[] for _ in sides[1:]]
    for chunk in _chunks(sides[0], documents):
        tokens = _tokens(sides[0], chunk.documents)
        for side, of_side in zip(sides[1:], parts, strict=True):
            of_side.append(_divided(chunk, tokens, _tokens(side, chunk.documents)))
    for arm, of_arm in zip(chosen[1:], parts, strict=True):
        changes, sizes = (np.concatenate(arrays, -1) for arrays in list(zip(*of_arm, strict=True))[:2])
        segments = [row for part in of_arm for row in part.segments]
        texts = [row["text"] for row in segments]
        largest = _extremes(np.array([row["change"] for row in segments]), texts.__getitem__)
        division = Division(changes, sizes, [segments[i] for i in largest])
        named = {"tokenizer": arm.label, "reference": chosen[0].label}
        numbers["rows"] += [named | row for row in contributions(reference, division)]
        numbers["documents"] += [named | row for row in _documents(sides[0], documents, reference, division)]
        numbers["segments"] += [named | row for row in division.segments]
    return numbers


def contributions(reference: Sequence[Evaluation], division: Division) -> list[dict[str, Any]]:
    """The rows of `divide` for one arm: the whole first, then each class that occurs.

    Args:
        reference: Evaluations of the reference on the documents that are divided, one per seed.
        division: The gap on these documents.
    """
    base = reference[0]
    units = base.units()
    inside = units.scale > 0

    def scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return (base.clustered(values) * units.scale)[inside]

    sizes, losses = (units.sizes * units.scale)[inside], [scaled(bits(run.text_nats)) for run in reference]
    rows: list[dict[str, Any]] = []
    for name, changes, n_bytes in zip(CLASSES, division.changes, division.sizes, strict=True):
        if not n_bytes.any():
            continue
        numerators = np.array([[scaled(bits(change)) for change in changes], losses])
        ratio = Ratio.of_function(lambda ratios: 100 * ratios[0] / ratios[1], numerators, sizes, units.strata[inside])
        known = enough(ratio.effective_units, base.cluster()[0])
        low, high = (ratio.known_interval(base.config.confidence) if known else None) or (None, None)
        share = float(scaled(n_bytes).sum() / sizes.sum())
        rows.append({"class": name, "share": share, "percent": float(ratio.value), "low": low, "high": high})
    total = sum(row["percent"] for row in rows)
    return [{"class": "all", "share": 1.0, "percent": total, "low": None, "high": None}, *rows]


def table(numbers: Mapping[str, Any], label: str) -> Table:
    """The contributions of one arm as a table of the terminal."""
    rows = [row for row in numbers["rows"] if row["tokenizer"] == label]
    intervals = ["" if row["low"] is None else f"{signed(row['low'], 2)} to {signed(row['high'], 2)}" for row in rows]
    cells = [
        [row["class"], percent(row["share"]), f"{signed(row['percent'], 2)} %", interval]
        for row, interval in zip(rows, intervals, strict=True)
    ]
    return Table(f"{TITLE}: {label}", ["", "share of bytes", f"part of the gap to {rows[0]['reference']}", ""], cells)


def _side(arm: ScoredArm) -> _Side:
    superword = np.zeros(arm.tokenizer.vocab_size, bool)
    superword[arm.tokenizer.superword_ids()] = True
    return _Side(arm, open_shards(arm.heldout, arm), superword, arm.untrained())


def _spelled(shards: Shards) -> NDArray[np.bool_]:
    """Whether each document has text, and the bytes of its tokens are those of the text."""
    spelled: NDArray[np.bool_] = (shards.normalized_bytes == 0) & (np.asarray(shards.document_bytes) > 0)
    if shards.covered_bytes is not None:
        starts = np.append(0, shards.document_ends[:-1])
        spelled &= np.add.reduceat(shards.covered_bytes, starts, dtype=np.int64) == shards.document_bytes
    return spelled


def _chunks(side: _Side, documents: Sequence[int]) -> Iterator[_Chunk]:
    """Consecutive documents with about _CHUNK bytes, with the text that the tokens of a side spell."""
    number = np.cumsum(side.shards.document_bytes[documents]) // _CHUNK
    for part in np.split(np.asarray(documents), np.flatnonzero(np.diff(number)) + 1):
        text = "\n".join(side.arm.tokenizer.decode(side.shards.document(i)) for i in part.tolist())
        stops = np.cumsum(side.shards.document_bytes[part] + 1) - 1
        labelled = labels(text)
        labelled[stops[:-1]] = len(CLASSES)
        places = np.stack([np.append(0, stops[:-1] + 1), stops], 1)
        yield _Chunk(part.tolist(), places, np.frombuffer(text.encode(), np.uint8), labelled)


def _tokens(side: _Side, documents: Sequence[int]) -> _Tokens:
    sizes = [side.shards.document_token_bytes(i) for i in documents]
    between = np.repeat(np.arange(len(documents)), list(map(len, sizes)))
    ids = np.concatenate([side.shards.document(i) for i in documents])
    spans = [slice(span.start - i, span.stop - i - 1) for i in documents for span in [side.shards.span(i)]]
    kept = [run.token_nats for run in side.arm.evaluations if run.token_nats is not None]
    nats = [np.concatenate([losses[span] for span in spans], dtype=np.float64) for losses in kept]
    ends = np.cumsum(np.concatenate(sizes)) + between
    return _Tokens(ends, side.superword[ids], side.untrained[ids], np.array(nats))


def _divided(chunk: _Chunk, reference: _Tokens, other: _Tokens) -> Division:
    """Divide the gap on the documents of a chunk."""
    segments = shared_segments(chunk.text, chunk.places, (reference.ends, other.ends))
    superword, untrained = np.zeros((2, len(segments.starts)), bool)
    losses = []
    for tokens, index in zip((reference, other), segments.of_tokens, strict=True):
        superword[index[tokens.superword]] = True
        untrained[index[tokens.untrained]] = True
        losses.append(np.array([np.bincount(index, nats, len(superword)) for nats in tokens.nats]))
    kinds = classes(chunk.labels, segments, superword, untrained)
    shape = len(CLASSES), len(chunk.documents)
    place = np.searchsorted(chunk.places[:, 1], segments.stops)
    cell = kinds * shape[1] + place

    def summed(values: NDArray[Any]) -> NDArray[Any]:
        sums: NDArray[Any] = np.bincount(cell, values, shape[0] * shape[1]).reshape(shape)
        return sums

    def shown(start: int, stop: int) -> str:
        return chunk.text[start:stop].tobytes().decode(errors="ignore")

    before, after = (bits(loss.mean(0)) for loss in losses)
    ends = np.stack([segments.starts, np.minimum(segments.stops, segments.starts + _LONGEST)], 1)
    rows = []
    for i in _extremes(after - before, lambda i: shown(*ends[i])):
        start, stop, (first, last) = int(segments.starts[i]), int(segments.stops[i]), chunk.places[place[i]].tolist()
        rows.append(
            {
                "text": shown(*ends[i]),
                "before": shown(max(first, start - _CONTEXT), start),
                "after": shown(stop, min(last, stop + _CONTEXT)),
                "class": CLASSES[kinds[i]],
                "document": chunk.documents[place[i]],
                "reference_bits": float(before[i]),
                "bits": float(after[i]),
                "change": float(after[i] - before[i]),
            }
        )
    changes = np.stack([summed(change) for change in losses[1] - losses[0]], 1)
    return Division(changes, summed(segments.stops - segments.starts), rows)


def _documents(
    side: _Side, documents: Sequence[int], reference: Sequence[Evaluation], division: Division
) -> list[dict[str, Any]]:
    """The documents with the largest differences."""
    changes, sources = bits(division.changes.sum(0).mean(0)), reference[0].groups.get(SOURCE)
    losses = bits(np.mean([run.text_nats for run in reference], 0))
    rows = []
    for i in _extremes(changes, int):
        n_bytes = int(reference[0].document_bytes[i])
        rows.append(
            {
                "document": documents[i],
                "source": sources.names[sources.index[i]] if sources else "",
                "n_bytes": n_bytes,
                "reference_bits_per_byte": losses[i] / n_bytes,
                "bits_per_byte": (losses[i] + changes[i]) / n_bytes,
                "change": changes[i],
                "text": side.arm.tokenizer.decode(side.shards.document(documents[i]))[:_LONGEST],
            }
        )
    return rows


def _extremes(changes: NDArray[np.float64], name: Callable[[int], object]) -> list[int]:
    """Indices of the `_SHOWN` largest increases, and of the largest decreases, in descending order.

    Of those with the same name, the largest one of each sign is chosen.
    """

    def largest(values: NDArray[np.float64]) -> list[int]:
        found: dict[object, int] = {}
        for i in map(int, np.argsort(-values, kind="stable")):
            if values[i] <= 0 or len(found) == _SHOWN:
                break
            found.setdefault(name(i), i)
        return list(found.values())

    return [*largest(changes), *reversed(largest(-changes))]

"""Differences from the reference on all held-out text, on its clean part, and by source and script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.results import GROUPS
from lm.evaluate.comparison import compare_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.stages.comparison import Result
    from lm.evaluate.comparison import Comparison

ALL, CLEAN = "all", "clean"
_MOST_GROUPS = 100


def differences(result: Result) -> list[dict[str, Any]]:
    """Return one row per arm and group of documents; the first arm is the reference.

    p-values and intervals are corrected (Holm) for the comparisons of all pairs of arms on all text, and for all rows
    with the same `by` on parts of it.
    """
    others = range(1, len(result.arms))
    barred = [result.arms[0].barred or result.arms[i].barred for i in others]
    everything = [result.comparisons[0, i] for i in others]
    rows = [_row(result, ALL, "", i, found) for i, found in zip(others, everything, strict=True)]
    for by, groups in _groups(result).items():
        cells, pairs = [], []
        for name, chosen in groups:
            parts = [[each.only(chosen) for each in arm.compared] for arm in result.arms]
            cells += [(name, i) for i in others]
            pairs += [(parts[0], parts[i]) for i in others]
        found = compare_pairs(pairs, barred * len(groups))
        rows += [_row(result, by, name, i, each) for (name, i), each in zip(cells, found, strict=True)]
    return rows


def _groups(result: Result) -> dict[str, list[tuple[str, NDArray[np.bool_]]]]:
    """Names and documents of the parts of the held-out text, the largest first."""
    scores = result.arms[0].compared[0]
    groups: dict[str, list[tuple[str, NDArray[np.bool_]]]] = {}
    clean = result.clean
    if clean is not None and not clean.all() and scores.document_bytes[clean].any():
        groups[CLEAN] = [("", clean)]
    for by in GROUPS:
        grouping = scores.groups.get(by)
        if grouping is not None and len(grouping.names) > 1:
            sizes = grouping.sums(scores.document_bytes)
            largest = np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]
            groups[by] = [(grouping.names[i], grouping.index == i) for i in largest if sizes[i]]
    return groups


def _row(result: Result, by: str, group: str, place: int, found: Comparison) -> dict[str, Any]:
    labels = {"A better": result.labels[0], "B better": result.labels[place]}
    return {
        "by": by,
        "group": group,
        "tokenizer": result.labels[place],
        "reference": result.labels[0],
        "documents": found.n_documents,
        "bits_per_byte": found.bits_per_byte_b,
        "reference_bits_per_byte": found.bits_per_byte_a,
        "difference": found.difference,
        **_ends("", found.interval_uncorrected),
        **_ends("corrected_", found.interval),
        "corrected_level": found.level,
        "p": found.p_value,
        "p_adjusted": found.p_adjusted,
        "decision": labels.get(found.verdict, "withheld" if found.withheld else "undecided"),
        "withheld": found.withheld,
    }


def _ends(prefix: str, interval: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}

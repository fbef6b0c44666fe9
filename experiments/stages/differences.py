"""Differences from the reference on all held-out text, on its clean part, and by source and script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.results import GROUPS
from lm.evaluate.comparison import Eligibility, compare_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.stages.comparison import Result
    from lm.evaluate.comparison import Comparison

ALL, CLEAN = "all", "clean"
_MOST_GROUPS = 100


def differences(result: Result) -> list[dict[str, Any]]:
    """Return one row per arm and group of documents; the first arm is the reference.

    The comparisons on all text are corrected for the number of arms, and decide. Those on parts of it are shown with
    uncorrected intervals, and decide nothing.
    """
    arms = result.arms
    rows = [_row(result, ALL, "", i, result.comparisons[0, i]) for i in range(1, len(arms))]
    for by, groups in _groups(result).items():
        for name, chosen in groups:
            parts = [[each.only(chosen) for each in arm.compared] for arm in arms]
            for i in range(1, len(arms)):
                found = Eligibility([arms[0].barred, arms[i].barred], chosen, members=(False, False))
                (part,) = compare_all([parts[0], parts[i]], found, tested=False).values()
                rows.append(_row(result, by, name, i, part))
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
    labels = {"A better": result.labels[0], "B better": result.labels[place], "no significant difference": "undecided"}
    low, high = found.interval or (None, None)
    return {
        "by": by,
        "group": group,
        "tokenizer": result.labels[place],
        "reference": result.labels[0],
        "documents": found.n_documents,
        "bits_per_byte": found.bits_per_byte_b,
        "reference_bits_per_byte": found.bits_per_byte_a,
        "percent": found.percent,
        "low": low,
        "high": high,
        "level": found.level,
        "p": found.p_value,
        "seeds_pooled_over": " + ".join(found.pooled),
        "decision": labels.get(found.verdict, found.verdict),
        "withheld": found.withheld,
    }

"""Differences between arms on all held-out text, and from the reference on its clean part, and by source and script."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.findings.verdict import decision
from experiments.stages.contamination import clean_documents
from lm.evaluate.bits_per_byte import KIND, SOURCE
from lm.evaluate.comparison import Eligibility, compare_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from experiments.findings.compared import Findings
    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.comparison import Comparison

ALL, CLEAN = "all", "clean"
GROUPS = (KIND, SOURCE, "script")
"""Groupings of held-out documents."""
_MOST_GROUPS = 100


def differences(result: Findings) -> list[dict[str, Any]]:
    """Return one row per pair of arms on all documents, and one per arm and group of documents.

    The comparisons with the reference on all text are corrected for the number of arms, and decide. Those by kind are
    corrected for the number of kinds too, and decide about the kinds. Those of other pairs and on other parts of the
    text are shown with uncorrected intervals, and decide nothing.
    """
    arms = result.arms
    rows = [_row(result, ALL, "", pair, arms[pair[1]].compared, change) for pair, change in result.comparisons.items()]
    for by, groups in _groups(result).items():
        for name, chosen in groups:
            parts = [[run.only(chosen) for run in arm.compared] for arm in arms]
            for i, part in enumerate(parts):
                change = result.comparisons[0, i].kinds.get(name) if i and by == KIND else None
                if i and change is None:
                    eligibility = Eligibility([arms[0].barred, arms[i].barred], chosen, members=(False, False))
                    (change,) = compare_all([parts[0], part], eligibility, tested=False).values()
                rows.append(_row(result, by, name, (0, i), part, change))
    return rows


def _groups(result: Findings) -> dict[str, list[tuple[str, NDArray[np.bool_]]]]:
    """Names and documents of the parts of the held-out text, the largest first."""
    scores = result.arms[0].compared[0]
    groups: dict[str, list[tuple[str, NDArray[np.bool_]]]] = {}
    if result.overlap is not None:
        clean = clean_documents(result.overlap)
        clean = clean if result.documents is None else clean[result.documents]
        if not clean.all() and scores.document_bytes[clean].any():
            groups[CLEAN] = [("", clean)]
    for by in GROUPS:
        grouping = scores.groups.get(by)
        if grouping is not None and len(grouping.names) > 1:
            largest = grouping.largest_first(scores.document_bytes)[:_MOST_GROUPS]
            groups[by] = [(grouping.names[i], grouping.index == i) for i in largest]
    return groups


def _row(
    result: Findings, by: str, group: str, pair: tuple[int, int], part: Sequence[Evaluation], change: Comparison | None
) -> dict[str, Any]:
    """Measurements of the second arm of a pair; those of the reference alone if there is no comparison."""
    first, second = (result.labels[i] for i in pair)
    low, high = (change.interval if change else None) or (None, None)
    return {
        "by": by,
        "group": group,
        "tokenizer": second,
        "reference": first,
        "documents": len(part[0].document_bytes),
        "n_bytes": int(part[0].document_bytes.sum()),
        "bytes_per_token": part[0].bytes_per_token,
        "bits_per_byte": fmean(run.bits_per_byte for run in part),
        "reference_bits_per_byte": change and change.bits_per_byte_a,
        "percent": change and change.percent,
        "low": low,
        "high": high,
        "level": change and change.level,
        "p": change and change.p_value,
        "seeds_pooled_over": change and " + ".join(change.pooled),
        "decision": change and decision(change, (first, second)),
        "withheld": change and change.withheld,
    }

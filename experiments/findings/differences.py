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
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.findings.compared import Findings
    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.comparison import Comparison

ALL, CLEAN = "all", "clean"
GROUPS = (KIND, SOURCE, "script")
"""Groupings of held-out documents."""
_MOST_GROUPS = 100


def differences(result: Findings) -> list[dict[str, Any]]:
    """Return the rows of `differences_of` for a comparison, with its clean part if the overlap was measured."""
    clean = None if result.overlap is None else clean_documents(result.overlap)
    if clean is not None and result.documents is not None:
        clean = clean[result.documents]
    runs, barred = [arm.compared for arm in result.arms], [arm.barred for arm in result.arms]
    return differences_of(result.labels, runs, result.comparisons, barred, clean)


def differences_of(
    labels: Sequence[str],
    runs: Sequence[Sequence[Evaluation]],
    comparisons: Mapping[tuple[int, int], Comparison],
    barred: Sequence[str],
    clean: NDArray[np.bool_] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per pair of arms on all documents, and one per arm and group of documents.

    The comparisons with the reference on all text are corrected for the number of arms, and decide. Those by kind are
    corrected for the number of kinds too, and decide about the kinds. Those of other pairs and on other parts of the
    text are shown with uncorrected intervals, and decide nothing.

    Args:
        labels: Names of the arms; the first is the reference.
        runs: Evaluations of each arm on the same documents, one per seed.
        comparisons: Comparisons by indices into `labels`.
        barred: The reason why an arm is left out of verdicts, for each arm; "" for none.
        clean: bool[n_documents], documents that do not occur in the training text; None if that is unknown.
    """
    rows = [_row(labels, ALL, "", pair, runs[pair[1]], change) for pair, change in comparisons.items()]
    for by, groups in _groups(runs[0][0], clean).items():
        for name, chosen in groups:
            parts = [[run.only(chosen) for run in arm] for arm in runs]
            for i, part in enumerate(parts):
                change = comparisons[0, i].kinds.get(name) if i and by == KIND else None
                if i and change is None:
                    eligibility = Eligibility([barred[0], barred[i]], chosen, members=(False, False))
                    (change,) = compare_all([parts[0], part], eligibility, tested=False).values()
                rows.append(_row(labels, by, name, (0, i), part, change))
    return rows


def _groups(scores: Evaluation, clean: NDArray[np.bool_] | None) -> dict[str, list[tuple[str, NDArray[np.bool_]]]]:
    """Names and documents of the parts of the held-out text, the largest first."""
    groups: dict[str, list[tuple[str, NDArray[np.bool_]]]] = {}
    if clean is not None and not clean.all() and scores.document_bytes[clean].any():
        groups[CLEAN] = [("", clean)]
    for by in GROUPS:
        grouping = scores.groups.get(by)
        if grouping is not None and len(grouping.names) > 1:
            largest = grouping.largest_first(scores.document_bytes)[:_MOST_GROUPS]
            groups[by] = [(grouping.names[i], grouping.index == i) for i in largest]
    return groups


def _row(
    labels: Sequence[str],
    by: str,
    group: str,
    pair: tuple[int, int],
    part: Sequence[Evaluation],
    change: Comparison | None,
) -> dict[str, Any]:
    """Measurements of the second arm of a pair; those of the reference alone if there is no comparison."""
    first, second = (labels[i] for i in pair)
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

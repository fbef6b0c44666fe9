"""Training curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def curves(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Diagnostics of a run for charts: one row per quantity and step with diagnostics.

    Args:
        rows: Rows of the training log (`metrics.jsonl` of a model), in any order; if a step was logged twice, the last
            row counts.

    Returns:
        Rows with `step`, `bytes_seen`, `name` and `value`. `grad_norm` is the mean over the logged steps since the
        previous row.
    """
    steps = {row["step"]: row for row in rows}
    found: list[dict[str, Any]] = []
    since: list[float] = []
    for step in sorted(steps):
        row = steps[step]
        since.append(row["grad_norm"])
        if "residual_rms" not in row:
            continue
        values = {"grad_norm": sum(since) / len(since)}
        values |= {name: value for name, value in row.items() if name.startswith("gate_rms/")}
        at = {"step": step, "bytes_seen": row["bytes_seen"]}
        found += [{**at, "name": name, "value": value} for name, value in values.items()]
        since = []
    return found

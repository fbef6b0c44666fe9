"""Training diagnostics for a page: gradients, activations, weights, and under-trained tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.stages.models import METRICS, open_shards
from lm.evaluate.token_statistics import curves, frequency_summary, rank_frequency, trained_counts
from lm.evaluate.undertrained import find_undertrained
from lm.model.weights import load_model
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from experiments.config import ReportConfig
    from experiments.stages.comparison import ArmResult, Result

_RESIDUAL, _NORM, _RMS = "residual_rms/", "weight_norm/", "weight_rms/"


def gather(result: Result, settings: ReportConfig) -> dict[str, Any]:
    """Return the diagnostics of all models of the first seed, JSON-able.

    Returns:
        `grad_norm`, `residual`, `weights`: rows with `tokenizer`, `step`, `bytes_seen` and `value`; `residual` also has
        `place` and `weights` has `group`. `frequency`: `token_statistics.rank_frequency` with the `text` that was
        counted. `undertrained`: for each tokenizer, `Undertrained.summary` with the first tokens, or the `reason` why
        it could not be measured.
    """
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("grad_norm", "residual", "weights", "frequency", "undertrained")
    }
    for each in result.arms:
        label = {"tokenizer": each.label}
        for name, rows in _curves(each).items():
            found[name] += [{**label, **row} for row in rows]
        counts = _training_counts(each, settings.counted_tokens)
        text, counted = ("held-out", each.evaluations[0].token_counts) if counts is None else ("training", counts)
        found["frequency"] += [{**label, "text": text, **row} for row in rank_frequency(counted)]
        if settings.undertrained_candidates:
            listed = _undertrained(each, settings, counts)
            found["undertrained"].append({**label, "frequency": frequency_summary(counted), "text": text, **listed})
    return found


def _curves(each: ArmResult) -> dict[str, list[dict[str, Any]]]:
    lines = (each.lm.path / METRICS).read_text(encoding="utf-8").splitlines()
    rows = curves(json.loads(line) for line in lines)
    # Join the norm and the root mean square of the same group and step.
    means = {
        (row["step"], row["name"].removeprefix(_RMS)): row["value"] for row in rows if row["name"].startswith(_RMS)
    }

    def at(row: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"step": row["step"], "bytes_seen": row["bytes_seen"], **more, "value": row["value"]}

    return {
        "grad_norm": [at(row) for row in rows if row["name"] == "grad_norm"],
        "residual": [
            at(row, place=row["name"].removeprefix(_RESIDUAL)) for row in rows if row["name"].startswith(_RESIDUAL)
        ],
        "weights": [
            {**at(row, group=group), "rms": means[row["step"], group]}
            for row in rows
            if row["name"].startswith(_NORM)
            for group in [row["name"].removeprefix(_NORM)]
        ],
    }


def _training_counts(each: ArmResult, most: int) -> NDArray[np.int64] | None:
    """How often the model read each token; None if there are too many tokens to count."""
    model = each.lm.contents
    n_tokens = model.summary.tokens
    if n_tokens > most:
        return None
    return trained_counts(open_shards(each.training, each.arm), n_tokens, seed=model.seed, shuffle=model.shuffle)


def _undertrained(each: ArmResult, settings: ReportConfig, counts: NDArray[np.int64] | None) -> dict[str, Any]:
    tokenizer = each.tokenizer
    try:
        found = find_undertrained(
            load_model(each.lm.path), tokenizer, most=settings.undertrained_candidates, controls=50
        )
    except UserError as error:  # cannot be measured: the page shows the reason instead of the list
        return {"reason": str(error)}
    summary = found.summary(tokenizer, counts)
    return {**summary, "tokens": summary["tokens"][: settings.undertrained_listed]}

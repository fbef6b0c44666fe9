"""Training diagnostics for a page: gradient norms and activation norms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.stages.models import METRICS
from lm.evaluate.token_statistics import curves

if TYPE_CHECKING:
    from experiments.stages.comparison import Result

_GATE = "gate_rms/"


def gather(result: Result) -> dict[str, list[dict[str, Any]]]:
    """Return the diagnostics of all models of the first seed, JSON-able.

    Returns:
        `grad_norm` and `activations`: rows with `tokenizer`, `step`, `bytes_seen` and `value`; `activations` also has
        `layer`.
    """
    found: dict[str, list[dict[str, Any]]] = {"grad_norm": [], "activations": []}
    for arm in result.arms:
        lines = (arm.lm.path / METRICS).read_text(encoding="utf-8").splitlines()
        for row in curves(map(json.loads, lines)):
            name = row.pop("name")
            if name == "grad_norm":
                found["grad_norm"].append({"tokenizer": arm.label, **row})
            elif name.startswith(_GATE):
                layer = int(name.removeprefix(_GATE))
                found["activations"].append({"tokenizer": arm.label, "layer": layer, **row})
    return found

"""Training curves."""

from __future__ import annotations

from lm.evaluate.curves import curves


def test_curves_average_the_steps_that_all_have():
    rows = [
        {"step": step, "bytes_seen": 10 * step, "grad_norm": float(step), "tokens_per_second": 5.0, "loss": 1.0}
        for step in (1, 2, 3, 3, 4, 5)
    ]
    for row in rows:
        if row["step"] in (1, 4):
            row |= {"residual_rms": 1.0, "gate_rms/00": 2.0}
    found = curves(reversed(rows))
    assert [(row["step"], row["value"]) for row in found if row["name"] == "grad_norm"] == [(1, 1.0), (4, 3.0)]
    assert {row["name"] for row in found} == {"grad_norm", "gate_rms/00"}
    assert found[0]["bytes_seen"] == 10

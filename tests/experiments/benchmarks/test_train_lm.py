"""The benchmark of training steps, at its smallest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from experiments.benchmarks import train_lm

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--precision", "bf16", "--document-mask"]])
def test_both_models_take_the_same_steps(corpus: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    small = [
        "--n-layers",
        "1",
        "--hidden-size",
        "32",
        "--vocab-size",
        "300",
        "--rows",
        "2",
        "--context",
        "16",
        "--rounds",
        "2",
    ]
    assert train_lm.main([str(corpus), *small, *options, "--device", "cpu"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in ("ours / Llama", "bf16" if options else "fp32", "with optimizers", "2 rows of 16", "data loading"):
        assert words in out


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert train_lm.main([str(tmp_path / "nothing.txt")]) == 2
    assert "nothing.txt" in capsys.readouterr().err

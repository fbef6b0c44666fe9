"""The benchmark of both phases on a tiny corpus."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from experiments.benchmarks import train_superbpe

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--vocab-size", "400", "--transition", "330", "--rounds", "1"]


def test_tables_by_size_and_beside_hf_and_a_plot(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "growth.svg"
    sizes = ["--max-bytes", "50kB", "all", "--hf-bytes", "20kB", "--plot", str(plot)]
    assert train_superbpe.main([str(corpus), *SMALL, *sizes]) == 0
    out = capsys.readouterr().out
    for words in ("vocabulary 400, transition 330, uw-2025", "M cells", "│ 0.05", "HF, from scratch"):
        assert words in out
    drawn = "".join(ET.parse(plot).getroot().itertext())
    assert "peak MB" in drawn
    assert "M cells" in drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--transition", "500"], "transition 500 is not below"),
        (["--transition", "1.5"], "transition=1.5"),
        (["--pattern", "gtp2"], "did you mean 'gpt2'"),
    ],
)
def test_a_mistake_is_one_line(
    corpus: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert train_superbpe.main([str(corpus), *SMALL, *options]) == 2
    assert message in capsys.readouterr().err


def test_phase_1_follows_the_rules() -> None:
    assert train_superbpe.parse(["a"]).pattern == "superbpe"
    assert train_superbpe.parse(["a", "--rules", "runs"]).pattern == "o200k"
    assert train_superbpe.parse(["a", "--rules", "runs", "--pattern", "gpt2"]).pattern == "gpt2"


def test_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_superbpe.main([str(tmp_path / "none.txt"), *SMALL]) == 2
    assert "no such file" in capsys.readouterr().err


def test_our_job_reports_the_numbers_in_the_tokenizer(corpus: Path) -> None:
    arguments = train_superbpe.parse([str(corpus), *SMALL])
    facts = train_superbpe.ours(arguments, None)
    assert facts["bytes"] > facts["tokens"] > facts["cells"] > facts["fragments"] > 0
    assert facts["seconds"] == pytest.approx(facts["phase 1"] + facts["phase 2"])
    assert facts["threshold"] <= facts["last count"]

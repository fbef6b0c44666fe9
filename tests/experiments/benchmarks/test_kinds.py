"""Encoding by kind of text: what is trained on, what is encoded, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.benchmarks import kinds


def test_no_document_is_both_trained_on_and_encoded() -> None:
    documents = [("code", f"x = {i}\n" * 10) for i in range(20)] + [("prose", "same"), ("prose", "same")]
    training, encoded = kinds.collected(iter(documents), 500)
    assert not set(training["code"]) & set(encoded["code"])
    sizes = [sum(map(len, texts["code"])) for texts in (training, encoded)]
    assert all(500 <= size < 600 for size in sizes)
    assert (training["prose"], encoded["prose"]) == (["same"], [])


@pytest.mark.slow
def test_every_kind_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    words = {"zh": "漢字", "c": "int"}
    rows = [{"text": f"{words[kind]} {i}\n" * 30, "source": kind} for kind in words for i in range(4)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = [str(texts), "--peers", "none", "--rounds", "1", "--cache", str(tmp_path), "--vocab-size", "262"]
    assert kinds.main([*options, "--tokenizers", "gpt2"]) == 0
    out = capsys.readouterr().out
    assert "gpt2: 262 tokens" in out
    assert out.count(" tokenizers ") >= 8  # two kinds, two lengths, two calls
    assert kinds.main([*options, "--kinds", "rust"]) == 2
    assert "--kinds='rust'; it is one of: zh, c" in capsys.readouterr().err

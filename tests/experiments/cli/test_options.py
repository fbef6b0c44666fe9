"""Names of tokenizers that commands print."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.cli.options import labels_of
from experiments.store import artifacts, registry


def test_artifacts_have_the_names_of_their_arms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = {
        "tokenizer-1111": ("tokenizer", {"counts": "c"}),
        "tokenizer-2222": ("tokenizer", {"phase1": "p"}),
        "superbpe-3333": ("superbpe", {"phase1": "p"}),
        "tokenizer-4444": ("tokenizer", {"phase1": "p"}),
    }

    def artifact_at(path: Path, _: Any) -> Any:
        if path.name not in made:
            return None
        stage, inputs = made[path.name]
        manifest = SimpleNamespace(stage=stage, inputs=inputs, contents={"vocab_size": 8192})
        return SimpleNamespace(name=path.name, folder=path, hash=path.name.partition("-")[2] * 9, manifest=manifest)

    monkeypatch.setattr(artifacts, "artifact_at", artifact_at)
    monkeypatch.setattr(registry, "arm_labels", lambda _: {"tokenizer-4444": ["my arm"]})
    for name in (*made, "plain"):
        (tmp_path / name).mkdir()
    found = labels_of([*(str(tmp_path / name) for name in (*made, "plain")), "openai/gpt2"])
    assert found == ["BPE 8,192", "SuperBPE 8,192 222222", "SuperBPE 8,192 333333", "my arm", "plain", "openai/gpt2"]


def test_folders_with_the_same_name_have_their_parents_name(tmp_path: Path) -> None:
    paths = [tmp_path / parent / "tokenizer" for parent in ("one", "two")]
    for path in paths:
        path.mkdir(parents=True)
    assert labels_of([str(path) for path in paths]) == ["one/tokenizer", "two/tokenizer"]

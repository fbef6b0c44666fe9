"""Names of tokenizers that commands print."""

from types import SimpleNamespace

import pytest

from experiments.cli.arguments import tokenizers_of
from experiments.store import artifacts, records
from tokenizer.errors import UserError


def test_artifacts_have_the_names_of_their_arms(monkeypatch, tmp_path):
    def artifact_at(path, _):
        return SimpleNamespace(name=path.name, folder=path) if "-" in path.name else None

    monkeypatch.setattr(artifacts, "artifact_at", artifact_at)
    monkeypatch.setattr(records, "arm_labels", lambda _: {"tokenizer-4444": ["my arm"]})
    names = ("tokenizer-1111", "tokenizer-4444", "plain")
    for name in names:
        (tmp_path / name).mkdir()
    found = list(tokenizers_of([*(str(tmp_path / name) for name in names), "openai/gpt2"]))
    assert found == ["tokenizer-1111", "my arm", "plain", "openai/gpt2"]


def test_folders_with_the_same_name_are_told_apart_by_the_user(tmp_path):
    one, two = (str(tmp_path / parent / "tokenizer") for parent in ("one", "two"))
    with pytest.raises(UserError, match="two tokenizers are called 'tokenizer'; write NAME=PATH, as in other="):
        tokenizers_of([f"tokenizer={one}", f"tokenizer={two}"])
    assert tokenizers_of([f"a={one}", f"b={two}"]) == {"a": one, "b": two}

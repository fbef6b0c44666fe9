"""Trained models as the stages left them, each with its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.artifacts import Store
from lm.language_model import LanguageModel
from lm.run import MODEL
from lm.training import load_model
from tokenizer.bpe import Tokenizer
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.artifacts import Artifact


@dataclass(frozen=True)
class Saved:
    """A model of a run.

    Attributes:
        label: Short and distinct: "BPE" or "SuperBPE", with the artifact's name if several are.
        artifact: Its folder.
        lm: Model and tokenizer.
    """

    label: str
    artifact: Artifact
    lm: LanguageModel


def load_models(paths: Sequence[str | Path], device: str = "auto") -> list[Saved]:
    """Load models with the tokenizers beside them.

    Args:
        paths: Folders `lm-*`, or folders of artifacts, of which all models are taken.
        device: As in `lm.training.TrainConfig`.

    Raises:
        UserError: If there is no model, or its tokenizer is not among the artifacts.
    """
    found = [artifact for path in paths for artifact in _find(Path(path))]
    models = []
    for artifact in found:
        sha256 = str(artifact.contents.get("tokenizer", ""))
        folder = artifact.path.parent / f"tokenizer-{sha256[:12]}"
        if not folder.is_dir():
            raise UserError(
                f"{artifact.path} was trained with tokenizer {sha256[:12]}, and there is no {folder}; keep a run's "
                "artifacts in one folder"
            )
        models.append(LanguageModel(load_model(artifact.path, device), Tokenizer.load(folder)))
    if len(paths) == 1:  # nobody gave an order
        order = sorted(range(len(models)), key=lambda i: len(models[i].tokenizer.superword_ids()))
        found, models = [found[i] for i in order], [models[i] for i in order]
    labels = ["SuperBPE" if len(lm.tokenizer.superword_ids()) else "BPE" for lm in models]
    return [
        Saved(label if labels.count(label) == 1 else f"{label} {artifact.name}", artifact, lm)
        for label, artifact, lm in zip(labels, found, models, strict=True)
    ]


def _find(path: Path) -> list[Artifact]:
    names = [path.name] if (path / MODEL).exists() else Store(path).names("lm-")
    root = path.resolve().parent if (path / MODEL).exists() else path
    artifacts = [artifact for name in names if (artifact := Store(root).find(name)) is not None]
    if not artifacts:
        raise UserError(
            f"{path} holds no trained model: name folders lm-* of a run's artifacts, or the folder of its artifacts; "
            "python -m experiments.train_lm makes them"
        )
    return artifacts

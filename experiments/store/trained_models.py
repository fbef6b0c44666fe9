"""Trained models and tokenizers among the artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.results import Folder, TrainedTokenizer
from experiments.store.artifacts import Store, artifact_at
from experiments.store.manifest import MANIFEST
from experiments.store.records import arm_labels
from lm.model.config import MODEL
from tokenizer.errors import UserError
from tokenizer.external.load import load_pretrained
from tokenizer.external.tokenizer import FILE as EXTERNAL_FILE
from tokenizer.files import confined
from tokenizer.formats import FILE
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.store.artifacts import Artifact
    from lm.model.language_model import LanguageModel
    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike

_FILES = (FILE, EXTERNAL_FILE)


@dataclass(frozen=True)
class Saved:
    """A model of a run.

    Attributes:
        label: Label of the arm in its run; without one, the kind of the tokenizer ("BPE", "SuperBPE", "bytes",
            "external"). If several models have it, with the name of the artifact.
        artifact: Its folder.
    """

    label: str
    artifact: Artifact[Folder]
    lm: LanguageModel


def load_models(paths: Sequence[str | Path], device: str = "auto") -> list[Saved]:
    """Load models with their tokenizers.

    Args:
        paths: Folders `lm-*`, or folders of artifacts to load all models from.
        device: Device, as in `lm.train.config.TrainConfig`.

    Raises:
        UserError: If there is no model, or its tokenizer is not among the artifacts.
    """
    artifacts = find_models(paths)
    from lm.model.language_model import LanguageModel  # Torch takes seconds to load

    models = [(one, LanguageModel(*open_model(one.path, device=device))) for one in artifacts]
    if len(paths) == 1:  # the user gave no order
        models.sort(key=lambda model: len(model[1].tokenizer.superword_ids()))
    labels = [_label(*model) for model in models]
    return [
        Saved(f"{label} {one.name}" if labels.count(label) > 1 else label, one, lm)
        for label, (one, lm) in zip(labels, models, strict=True)
    ]


def _label(artifact: Artifact[Folder], lm: LanguageModel) -> str:
    if arms := arm_labels(Store(artifact.folder.parent)).get(artifact.name):
        return " and ".join(arms)
    if not isinstance(lm.tokenizer, Tokenizer):
        return "external"
    if len(lm.tokenizer.superword_ids()):
        return "SuperBPE"
    return "BPE" if len(lm.tokenizer.merge_ids) else "bytes"


def open_model(
    folder: Path, tokenizer: Path | None = None, *, device: str = "cpu"
) -> tuple[Transformer, TokenizerLike]:
    """Open a model and its tokenizer.

    Args:
        folder: An `lm-...` artifact, or any folder written by `lm.train.loop.train`.
        tokenizer: Folder or file of the tokenizer. None to look in the model's folder, then for the tokenizer's
            artifact in the same store.
        device: Device, as in `lm.train.config.TrainConfig`.

    Raises:
        UserError: If there is no model or no tokenizer, or the model was trained with another tokenizer.
    """
    if (artifact := artifact_at(folder, Folder)) is not None:
        folder = artifact.path
    if not (folder / MODEL).is_file():
        raise UserError(f"{folder} has no {MODEL}; name a language model's folder, such as artifacts/lm-0123456789ab")
    from lm.model.weights import load_model  # Torch takes seconds to load

    model = load_model(folder, device)
    place = tokenizer or tokenizer_place(folder, model.tokenizer_sha256)
    loaded = load_pretrained(place).tokenizer
    if loaded.sha256 != model.tokenizer_sha256:
        raise UserError(
            f"{place} is tokenizer {loaded.name}, but the model was trained with {model.tokenizer_sha256[:12]}; use "
            "that one"
        )
    return model, loaded


def tokenizer_place(folder: Path, sha256: str) -> Path:
    """Folder of the tokenizer of a model: the model's own, or the tokenizer's artifact in the same store.

    Raises:
        UserError: If there is none.
    """
    places = [folder, folder.resolve().parent / f"tokenizer-{sha256[:12]}"]
    place = next((place for place in places if any((place / file).is_file() for file in _FILES)), None)
    if place is None:
        raise UserError(
            f"the model's tokenizer is neither in {folder} nor at {places[1]}; keep a run's artifacts in one folder, "
            "or put the tokenizer there"
        )
    return place


def find_models(paths: Sequence[str | Path]) -> list[Artifact[Folder]]:
    """The artifacts of the models that `load_models` loads; raises what it raises if there is none."""
    return [artifact for path in paths for artifact in _find(Path(path))]


def _find(path: Path) -> list[Artifact[Folder]]:
    folder = path.resolve()
    if (folder / MANIFEST).is_file():
        return Store(folder.parent).open_all([folder.name], Folder)
    if not path.exists():
        raise UserError(
            f"{path} does not exist; name folders lm-* of a run's artifacts, or the folder of its artifacts"
        )
    store = Store(path)
    if not (names := store.names("lm-")):
        raise UserError(
            f"{path} has no trained model: name folders lm-* of a run's artifacts, or the folder of its artifacts; "
            "superbpe pipeline --until train-lm makes them"
        )
    return store.open_all(names, Folder)


def tokenizer_folder(path: Path) -> Path:
    """Return the tokenizer's folder or file: the path itself, or the tokenizer that a training record points to."""
    is_record = path.absolute().name.startswith(("bpe-", "superbpe-"))
    record = artifact_at(path, TrainedTokenizer) if is_record else None
    return path if record is None else confined(path.parent, record.contents.tokenizer)

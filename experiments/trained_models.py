"""Opening a language model of ours together with what it was trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.artifacts import MANIFEST
from lm.run import MODEL, SUMMARY
from lm.shards import Shards
from lm.token_statistics import trained_counts
from lm.training import load_model
from tokenizer.bpe import Tokenizer
from tokenizer.errors import UserError
from tokenizer.formats import FILE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lm.model import Transformer


def open_model(folder: Path, tokenizer: Path | None = None, *, device: str = "cpu") -> tuple[Transformer, Tokenizer]:
    """Open a model and its tokenizer.

    Args:
        folder: An `lm-...` artifact, or any folder that `lm.training.train` filled.
        tokenizer: Its tokenizer's folder or file; None to look in the model's folder, then for the artifact of the
            tokenizer's name beside it.
        device: As in `lm.training.TrainConfig`.

    Raises:
        UserError: There is no model, or no tokenizer is found, or it is another than the model was trained with.
    """
    if not (folder / MODEL).is_file():
        raise UserError(f"{folder} holds no {MODEL}; name a language model's folder, as artifacts/lm-0123456789ab")
    model = load_model(folder, device)
    name = f"tokenizer-{model.tokenizer_sha256[:12]}"
    places = [folder, folder.resolve().parent / name]
    place = tokenizer or next((place for place in places if (place / FILE).is_file()), None)
    if place is None:
        raise UserError(f"the model's tokenizer is neither in {folder} nor at {places[1]}; name it with --tokenizer")
    found = Tokenizer.from_file(place)
    if found.sha256 != model.tokenizer_sha256:
        raise UserError(
            f"{place} is tokenizer {found.name}, and the model was trained with {model.tokenizer_sha256[:12]}; name "
            "that one with --tokenizer"
        )
    return model, found


def training_counts(folder: Path) -> NDArray[np.int64] | None:
    """How often a model read each id in training, int64[vocab_size]; None where its shards are not beside it.

    Args:
        folder: An `lm-...` artifact.
    """
    try:
        shards = json.loads((folder / MANIFEST).read_bytes())["inputs"]["shards"]
        summary = json.loads((folder / SUMMARY).read_bytes())
        settings = summary["run"]["train"]
        place = folder.resolve().parent / f"shards-{shards[:12]}" / "shards"
        found = {"n_tokens": summary["tokens"], "seed": settings["seed"], "shuffle": settings["shuffle"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return trained_counts(Shards.open(place), **found) if place.is_dir() else None

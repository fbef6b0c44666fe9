"""Opening a language model of ours together with the tokenizer that it was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lm.run import MODEL
from lm.training import load_model
from tokenizer.bpe import Tokenizer
from tokenizer.errors import UserError
from tokenizer.formats import FILE

if TYPE_CHECKING:
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

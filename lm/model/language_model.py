"""A model with its tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lm.evaluate.forward import ScorableModel
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


class LanguageModel:
    """A model and its tokenizer; documents of our models begin and end with the tokenizer's `end_of_text`.

    Args:
        model: The model; one of ours is switched to evaluation mode.
        tokenizer: The tokenizer that the model was trained with.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        start_id: Id of the token before a document.
        eos_id: Id of the token after a document; None if the model has none.
        text_ids: bool[vocabulary], on the CPU: True for ids of text, False for special tokens and unused ids.

    Raises:
        UserError: If the model was trained with another tokenizer, or that has no `end_of_text`.
    """

    def __init__(self, model: Transformer | ScorableModel, tokenizer: TokenizerLike) -> None:
        if model.vocab_size != tokenizer.vocab_size or model.tokenizer_sha256 not in ("", tokenizer.sha256):
            raise UserError(
                f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unnamed)'} of "
                f"{model.vocab_size} tokens, not with {tokenizer.name} of {tokenizer.vocab_size}; load its tokenizer"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.eos_id: int | None
        if isinstance(model, ScorableModel):
            self.start_id, self.eos_id, self._starts_windows = model.start_id, model.end_id, model.starts_windows
        else:
            model.eval()
            self.start_id, self.eos_id, self._starts_windows = tokenizer.end_id, tokenizer.end_id, False
        self.text_ids = torch.zeros(model.vocab_size, dtype=torch.bool)
        self.text_ids[torch.from_numpy(tokenizer.text_ids())] = True

    def window(self, ids: Sequence[int], most: int) -> list[int]:
        """The last inputs of a document, at most this many; if all windows begin with `start_id`, at least two."""
        if len(ids) <= most:
            return list(ids)
        if self._starts_windows:
            return [self.start_id, *ids[-max(1, most - 1) :]]
        return list(ids[-most:])

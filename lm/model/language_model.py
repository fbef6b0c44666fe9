"""A model with its tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


class LanguageModel:
    """A model and its tokenizer; documents begin and end with the tokenizer's `end_of_text`.

    Args:
        model: The model; it is switched to evaluation mode.
        tokenizer: The tokenizer that the model was trained with.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        eos_id: Id of `end_of_text`.
        text_ids: bool[vocabulary], on the CPU: True for ids of text, False for special tokens and unused ids.

    Raises:
        UserError: If the model was trained with another tokenizer, or that has no `end_of_text`.
    """

    def __init__(self, model: Transformer, tokenizer: TokenizerLike) -> None:
        if model.vocab_size != tokenizer.vocab_size or model.tokenizer_sha256 not in ("", tokenizer.sha256):
            raise UserError(
                f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unnamed)'} of "
                f"{model.vocab_size} tokens, not with {tokenizer.name} of {tokenizer.vocab_size}; load its tokenizer"
            )
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.eos_id = tokenizer.end_id
        self.text_ids = torch.zeros(model.vocab_size, dtype=torch.bool)
        self.text_ids[torch.from_numpy(tokenizer.ordinary_ids())] = True

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.model.lm_head.weight.device

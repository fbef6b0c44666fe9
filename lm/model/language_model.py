"""A model with its tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lm.data.shards import END_OF_TEXT
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


class LanguageModel:
    """A model and its tokenizer; documents begin and end with `<|endoftext|>`.

    Args:
        model: The model; it is switched to evaluation mode.
        tokenizer: The tokenizer that the model was trained with.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        eos_id: Id of `<|endoftext|>`.
        text_ids: bool[vocabulary], on the CPU: True for ids of text, False for special tokens and unused ids.

    Raises:
        UserError: If the model was trained with another tokenizer, or there is no `<|endoftext|>`.
    """

    def __init__(self, model: Transformer, tokenizer: TokenizerLike) -> None:
        if model.vocab_size != tokenizer.vocab_size or model.tokenizer_sha256 not in ("", tokenizer.sha256):
            raise UserError(
                f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unnamed)'} of "
                f"{model.vocab_size} tokens, not with {tokenizer.name} of {tokenizer.vocab_size}; load its tokenizer"
            )
        if END_OF_TEXT not in tokenizer.special_tokens:
            raise UserError(f"{tokenizer!r} has no special token {END_OF_TEXT!r}; models are trained with one")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.eos_id = tokenizer.special_tokens[END_OF_TEXT]
        self.text_ids = torch.zeros(model.vocab_size, dtype=torch.bool)
        self.text_ids[torch.from_numpy(tokenizer.ordinary_ids())] = True

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.model.lm_head.weight.device

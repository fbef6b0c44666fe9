"""A model and the tokenizer whose ids it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lm.data.shards import END_OF_TEXT
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


class LanguageModel:
    """Probabilities of text: documents begin and end with `<|endoftext|>`.

    Args:
        model: It is put into evaluation mode.
        tokenizer: The one that the model was trained with.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        eos_id: Id of `<|endoftext|>`.
        text_ids: bool[padded vocabulary], on the CPU: ids of text. The others are special tokens, ids
            that the tokenizer does not use, and padding.

    Raises:
        UserError: If the two do not belong together, or there is no `<|endoftext|>`.
    """

    def __init__(self, model: Transformer, tokenizer: TokenizerLike) -> None:
        if model.vocab_size != tokenizer.vocab_size or model.tokenizer_sha256 not in ("", tokenizer.sha256):
            raise UserError(
                f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unnamed)'} of "
                f"{model.vocab_size} tokens, not with {tokenizer.name} of {tokenizer.vocab_size}; load its own"
            )
        if END_OF_TEXT not in tokenizer.special_tokens:
            raise UserError(f"{tokenizer!r} has no special token {END_OF_TEXT!r}; models are trained with one")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.eos_id = tokenizer.special_tokens[END_OF_TEXT]
        self.text_ids = torch.zeros(model.lm_head.weight.shape[0], dtype=torch.bool)
        self.text_ids[torch.from_numpy(tokenizer.ordinary_ids())] = True

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.lm_head.weight.device

    def window(self, ids: list[int], room: int) -> list[int]:
        """The last ids of a sequence that fit the model together with `room` further ones.

        Positions that were never trained are never used. A sequence that is too long loses its beginning, and then
        enough of it that half of the positions are free, so that decoding need not begin anew for every token.
        """
        limit = self.model.context_tokens - room
        return ids if len(ids) <= limit else ids[-max(1, min(limit, self.model.context_tokens // 2)) :]

    def log_probs(self, logits: Tensor) -> Tensor:
        """float64[..., padded vocabulary] on the CPU: log-probabilities of the logits, in nats."""
        return logits.double().cpu().log_softmax(-1)

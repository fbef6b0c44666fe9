"""Whether a model can repeat a token from its context, which fails for tokens that it has hardly learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from lm.data.shards import END_OF_TEXT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike

_PROMPTS: tuple[tuple[str | None, ...], ...] = (
    (None,),  # the token repeated
    (None, "\n"),
    (None, ","),
    ('"', None, '" is "', None, '" and '),
)
_PROMPT_TOKENS = 32


@torch.no_grad()
def repetition_probability(
    model: Transformer, tokenizer: TokenizerLike, ids: NDArray[np.int64], *, batch_tokens: int = 8192
) -> NDArray[np.float64]:
    """The highest probability that the model gives each token when its context repeats it.

    Prompts are built from ids, so that tokens that no text encodes to can be tested too.

    Args:
        model: A trained model.
        tokenizer: Its tokenizer.
        ids: int64[n].
        batch_tokens: Maximum number of tokens of a forward pass.

    Returns:
        float64[n]: the maximum over prompts and over all repetitions in them.
    """
    device = model.lm_head.weight.device
    best = torch.zeros(len(ids), dtype=torch.float64, device=device)
    training = model.training
    model.eval()
    asked = torch.from_numpy(np.asarray(ids, np.int64)).to(device)
    for parts in _PROMPTS:
        prompt = _prompt(tokenizer, parts, min(_PROMPT_TOKENS, model.context_tokens))
        places = [i for i in range(len(prompt) - 1) if None in prompt[: i + 1] and prompt[i + 1] is None]
        if not places:  # the context is too short for this prompt
            continue
        template = torch.tensor([-1 if i is None else i for i in prompt], device=device)
        for start in range(0, len(ids), max(1, batch_tokens // len(prompt))):
            some = asked[start : start + max(1, batch_tokens // len(prompt))]
            rows = torch.where(template < 0, some[:, None], template)
            keep = torch.zeros_like(rows, dtype=torch.bool)
            keep[:, places] = True
            logits = model(rows, keep).double()  # [tokens * places, vocabulary], token by token
            target = some.repeat_interleave(len(places))
            likely = logits.log_softmax(dim=-1).gather(1, target[:, None]).exp().view(len(some), len(places))
            best[start : start + len(some)] = best[start : start + len(some)].maximum(likely.max(dim=1).values)
    model.train(training)
    return best.cpu().numpy()


def _prompt(tokenizer: TokenizerLike, parts: tuple[str | None, ...], length: int) -> list[int | None]:
    """<|endoftext|> and `parts` repeated, cut to a length; None stands for the token."""
    prompt: list[int | None] = [tokenizer.special_tokens[END_OF_TEXT]]
    while len(prompt) < length:
        for part in parts:
            prompt += [None] if part is None else tokenizer.encode_ordinary(part)
    return prompt[:length]

"""Text generation with temperature, top-k, top-p, stop strings, and limits in tokens and bytes."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from lm.bytelevel.path_tree import PathTree, reader_of

if TYPE_CHECKING:
    from torch import Tensor

    from lm.model.language_model import LanguageModel
    from lm.model.sampling import SamplingConfig

Finish = Literal["end", "stop", "tokens", "bytes"]


@dataclass(frozen=True)
class Sample:
    """A continuation of a prompt.

    Attributes:
        data: Bytes of the continuation, without the stop string. `max_new_bytes` never cuts a character.
        ids: The sampled tokens in order, without `end_of_text`. They may spell more than `data`.
        n_prompt_tokens: Tokens of the prompt, without the leading `end_of_text`.
        finish: Cause of the end: "end" (`end_of_text`), "stop" (a stop string), or a limit: "tokens" or "bytes".
    """

    prompt: str
    data: bytes
    ids: list[int]
    n_prompt_tokens: int
    finish: Finish

    @property
    def text(self) -> str:
        """The continuation; invalid UTF-8, which a model may emit, becomes U+FFFD."""
        return self.data.decode("utf-8", "replace")


def generate(
    lm: LanguageModel, prompts: Sequence[str], config: SamplingConfig, starts: Sequence[Sequence[int]] | None = None
) -> list[Sample]:
    """Continue all prompts in one batch; each prompt begins a document.

    Prompts are encoded with `Tokenizer.encode_ordinary`: special strings are ordinary text. A prompt that ends inside
    what would have been one token has a token boundary that training text rarely has there; for such prompts, pass the
    paths of `lm.bytelevel.byte_model.ByteModel.heal` as `starts`.

    Args:
        lm: The model.
        prompts: The texts. Repeat one to draw several samples.
        config: Sampling settings.
        starts: For each prompt, tokens whose bytes begin with it; bytes past the prompt count as sampled. None for the
            encodings of the prompts.
    """
    ids = [lm.tokenizer.encode_ordinary(prompt) for prompt in prompts] if starts is None else starts
    rows = [
        _Row(lm, i, prompt, list(start), config) for i, (prompt, start) in enumerate(zip(prompts, ids, strict=True))
    ]
    reader, root = reader_of(lm), PathTree([()])
    while active := [row for row in rows if row.finish is None]:
        for row, table in zip(active, reader.read([(row.window(), root) for row in active]), strict=True):
            scores = torch.from_numpy(table[0]).masked_fill(row.forbidden, -torch.inf)
            row.push(sample(scores, config, row.generator))
    return [Sample(row.prompt, row.data, row.ids, len(row.prompt_ids), row.finish or "end") for row in rows]


def sample(logits: Tensor, config: SamplingConfig, generator: torch.Generator) -> int:
    """Draw a token: temperature, then `top_k`, then `top_p`, as HF `transformers` orders them.

    Args:
        logits: float[vocabulary], on the CPU; -inf for forbidden ids.
        config: Sampling settings.
        generator: Random numbers, one per draw; unused at temperature 0.
    """
    if config.temperature == 0:
        return int(logits.argmax())
    scores, ids = (logits.double() / config.temperature).sort(descending=True, stable=True)
    if config.top_k is not None:
        scores, ids = scores[: config.top_k], ids[: config.top_k]
    reached = scores.softmax(0).cumsum(0)
    # Keep the first token, and the token with which the sum reaches top_p.
    n_kept = max(1, int((reached[:-1] < config.top_p).sum()) + 1)
    reached = reached[:n_kept] / reached[n_kept - 1]
    draw = torch.rand((), dtype=torch.float64, generator=generator)
    return int(ids[min(int(torch.searchsorted(reached, draw, right=True)), n_kept - 1)])


class _Row:
    """One text of the batch."""

    def __init__(
        self, lm: LanguageModel, index: int, prompt: str, prompt_ids: list[int], config: SamplingConfig
    ) -> None:
        self.lm, self.prompt, self.prompt_ids, self.config = lm, prompt, prompt_ids, config
        tokenizer = lm.tokenizer
        # Text of the prompt's own tokens: a different one where the tokenizer normalizes.
        spelt = tokenizer.decode_bytes(tokenizer.encode_ordinary(prompt)) if tokenizer.changes_text else prompt.encode()
        state = np.random.SeedSequence([config.seed, index]).generate_state(1, np.uint64)
        self.generator = torch.Generator().manual_seed(int(state[0]) >> 1)
        self.forbidden = ~lm.text_ids
        if lm.eos_id is not None:
            self.forbidden[lm.eos_id] = False
        self.stop = [string.encode() for string in config.stop]
        self.ids: list[int] = []
        self._start = 0
        self.data = b""
        self.finish: Finish | None = "tokens" if config.max_new_tokens == 0 else None
        self._append(tokenizer.decode_bytes(prompt_ids)[len(spelt) :])

    def window(self) -> list[int]:
        """The part of the text that the model reads: at most its context length.

        A full context is cut to half. Where that happens depends only on this text, not on the rest of the batch.
        """
        ids = [self.lm.start_id, *self.prompt_ids, *self.ids]
        if len(ids) - self._start > self.lm.model.context_tokens:
            self._start = len(ids) - max(1, self.lm.model.context_tokens // 2)
        return self.lm.window(ids, len(ids) - self._start)

    def push(self, token: int) -> None:
        """Append a sampled token."""
        if token == self.lm.eos_id:
            self.finish = "end"
            return
        self.ids.append(token)
        if len(self.ids) == self.config.max_new_tokens:
            self.finish = "tokens"
        self._append(self.lm.tokenizer.vocab[token])

    def _append(self, new: bytes) -> None:
        before = len(self.data)
        self.data += new
        limit = self.config.max_new_bytes
        # Search bytes, since a stop string may span tokens.
        places = [self.data.find(string, max(0, before - len(string) + 1)) for string in self.stop]
        stops = [(place + len(string), place) for string, place in zip(self.stop, places, strict=True) if place >= 0]
        end, place = min(stops, default=(-1, -1))  # the one that is completed first
        if stops and (limit is None or end <= limit):
            self.data, self.finish = self.data[:place], "stop"
        elif limit is not None and len(self.data) >= limit:
            whole = codecs.utf_8_decode(self.data[:limit], "replace", False)[1]  # without a character that is cut off
            self.data, self.finish = self.data[:whole], "bytes"

"""Text from a model: temperature, top-k, top-p, stop strings, limits in tokens and in bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError, quoted

if TYPE_CHECKING:
    from torch import Tensor

    from lm.model.language_model import LanguageModel

Finish = Literal["end", "stop", "tokens", "bytes"]


@dataclass(frozen=True)
class SamplingConfig:
    """How text is sampled.

    Attributes:
        temperature: Divides the logits; 0 takes the most probable token.
        top_k: Only so many most probable tokens; None for all. Applied before `top_p`.
        top_p: Only the most probable tokens that together reach this probability.
        seed: Of the random numbers. Sample i of a call depends on (seed, i) alone, not on its neighbours.
        max_new_tokens: Most tokens after the prompt; None for no limit.
        max_new_bytes: Most bytes after the prompt; None for no limit. A fair limit between tokenizers.
        stop: Strings that end the text, which does not contain them. They may lie across tokens.
    """

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 0.8
    seed: int = 0
    max_new_tokens: int | None = None
    max_new_bytes: int | None = 400
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature={self.temperature} is not possible; use 0 (most probable token) or more")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k={self.top_k} leaves no token; use 1 or more, or null for all")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p} is no share; use more than 0, and 1 for all tokens")
        if not 0 <= self.seed < 1 << 64:
            raise UserError(f"seed={self.seed} is out of range: it is from 0 to 2**64 - 1")
        for name in ("max_new_tokens", "max_new_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"{name}={value} is not possible; use 0 or more, or null for no limit")
        if self.max_new_tokens is None and self.max_new_bytes is None:
            raise UserError("nothing ends a text surely; set max_new_tokens or max_new_bytes")
        if "" in self.stop:
            raise UserError(f"stop={quoted(self.stop)} holds an empty string, which is everywhere; leave it out")


@dataclass(frozen=True)
class Sample:
    """A continuation of a prompt.

    Attributes:
        prompt: What it continues.
        data: Its bytes, without a stop string. Where `max_new_bytes` ends it, it ends before a cut character.
        ids: The tokens that were sampled, in order, `<|endoftext|>` not among them. They may spell more than `data`.
        n_prompt_tokens: Tokens of the prompt, `<|endoftext|>` in front not counted.
        finish: What ended it: "end" (`<|endoftext|>`), "stop" (a stop string), or a limit, "tokens" or "bytes".
    """

    prompt: str
    data: bytes
    ids: list[int]
    n_prompt_tokens: int
    finish: Finish

    @property
    def text(self) -> str:
        """The continuation; bytes that are no UTF-8, which a model may emit, as U+FFFD."""
        return self.data.decode("utf-8", "replace")


def generate(lm: LanguageModel, prompts: Sequence[str], config: SamplingConfig) -> list[Sample]:
    """Continue each prompt, all of them in one batch; a prompt begins a document.

    The tokens of the prompt are those of `Tokenizer.encode_ordinary`, special strings in it are ordinary text. A
    prompt that ends inside what would have been one token starts at a place where training text hardly has one;
    `lm.bytelevel.byte_model.heal` gives `generate_from` a better start.

    Args:
        lm: The model.
        prompts: Any texts. Repeat one to have several samples of it.
        config: How to sample.
    """
    return generate_from(lm, prompts, [lm.tokenizer.encode_ordinary(prompt) for prompt in prompts], config)


def generate_from(
    lm: LanguageModel, prompts: Sequence[str], ids: Sequence[Sequence[int]], config: SamplingConfig
) -> list[Sample]:
    """`generate` from given tokens of the prompts; what they spell beyond the prompts counts as sampled.

    Args:
        lm: The model.
        prompts: The texts.
        ids: Tokens that begin with the prompt's bytes, for each one.
        config: How to sample.
    """
    rows = [
        _Row(lm, i, prompt, list(start), config) for i, (prompt, start) in enumerate(zip(prompts, ids, strict=True))
    ]
    active = [row for row in rows if row.finish is None]
    cache: KVCache | None = None
    with torch.inference_mode():
        while active:
            if cache is None or int(cache.lengths.max()) >= lm.model.context_tokens:
                cache, logits = _read(lm, active)  # at first, and whenever a context is full
            else:
                last = torch.tensor([[row.ids[-1]] for row in active], device=lm.device)
                logits = lm.model(last, cache=cache)[:, 0]
            for row, scores in zip(active, logits.float().cpu(), strict=True):
                row.push(sample(scores.masked_fill(row.forbidden, -torch.inf), config, row.generator))
            going = [i for i, row in enumerate(active) if row.finish is None]
            if len(going) < len(active):
                cache = cache.select(going)
                active = [active[i] for i in going]
    return [row.result() for row in rows]


def sample(logits: Tensor, config: SamplingConfig, generator: torch.Generator) -> int:
    """Draw a token: temperature, then `top_k`, then `top_p`, as HF `transformers` orders them.

    Args:
        logits: float[vocabulary], on the CPU; -inf for what must not come.
        config: How to sample.
        generator: Gives one number per draw; none where the temperature is 0.
    """
    if config.temperature == 0:
        return int(logits.argmax())
    scores, ids = (logits.double() / config.temperature).sort(descending=True, stable=True)
    if config.top_k is not None:
        scores, ids = scores[: config.top_k], ids[: config.top_k]
    reached = scores.softmax(0).cumsum(0)
    # The first token is always kept, as is the one with which the sum reaches top_p.
    kept = max(1, int((reached[:-1] < config.top_p).sum()) + 1)
    reached = reached[:kept] / reached[kept - 1]
    draw = torch.rand((), dtype=torch.float64, generator=generator)
    return int(ids[min(int(torch.searchsorted(reached, draw, right=True)), kept - 1)])


def _read(lm: LanguageModel, rows: Sequence[_Row]) -> tuple[KVCache, Tensor]:
    """A cache that holds as much of the rows as fits, and the logits behind them."""
    windows = [row.window() for row in rows]
    lengths = torch.tensor([len(window) for window in windows])
    ids = torch.full((len(rows), int(lengths.max())), lm.eos_id)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = torch.tensor(window)
    cache = KVCache(lm.model, rows=len(rows), capacity=min(2 * ids.shape[1], lm.model.context_tokens))
    keep = torch.arange(ids.shape[1]) == lengths[:, None] - 1
    logits = lm.model(ids.to(lm.device), keep.to(lm.device), cache=cache)
    cache.rewind(lengths)
    return cache, logits


class _Row:
    """One text that is being written."""

    def __init__(
        self, lm: LanguageModel, index: int, prompt: str, prompt_ids: list[int], config: SamplingConfig
    ) -> None:
        self.lm, self.prompt, self.prompt_ids, self.config = lm, prompt, prompt_ids, config
        given, spelled = prompt.encode(), lm.tokenizer.decode_bytes(prompt_ids)
        if not spelled.startswith(given):
            raise ValueError(
                f"the tokens spell {quoted(spelled)}, which does not begin with the prompt {quoted(given)}"
            )
        state = np.random.SeedSequence([config.seed, index]).generate_state(1, np.uint64)
        self.generator = torch.Generator().manual_seed(int(state[0]) >> 1)
        self.forbidden = ~lm.text_ids
        self.forbidden[lm.eos_id] = False
        self.stop = [string.encode() for string in config.stop]
        self.ids: list[int] = []
        self._start = 0
        self.data = b""
        self.finish: Finish | None = None
        if config.max_new_tokens == 0:
            self.finish = "tokens"
        self._append(spelled[len(given) :])

    def window(self) -> list[int]:
        """What the model reads of the text so far, never more than its context.

        Where a full one begins anew, half as long, depends on this text alone: other rows may ask in between.
        """
        ids = [self.lm.eos_id, *self.prompt_ids, *self.ids]
        if len(ids) - self._start > self.lm.model.context_tokens:
            self._start = len(ids) - max(1, self.lm.model.context_tokens // 2)
        return ids[self._start :]

    def push(self, token: int) -> None:
        """Take a sampled token."""
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
        # In bytes: a stop string is found wherever tokens or characters are cut, and never inside a character.
        places = [self.data.find(string, max(0, before - len(string) + 1)) for string in self.stop]
        found = [(place + len(string), place) for string, place in zip(self.stop, places, strict=True) if place >= 0]
        end, place = min(found, default=(-1, -1))  # the one that is complete first
        if found and (limit is None or end <= limit):
            self.data, self.finish = self.data[:place], "stop"
        elif limit is not None and len(self.data) >= limit:
            self.data, self.finish = _whole_characters(self.data[:limit]), "bytes"

    def result(self) -> Sample:
        """What came of it, once it is finished."""
        assert self.finish is not None
        return Sample(self.prompt, self.data, self.ids, len(self.prompt_ids), self.finish)


def _whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character at the end."""
    for size in range(1, min(4, len(data) + 1)):
        lead = data[-size]
        if lead & 0xC0 == 0x80:
            continue
        needed = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return data[:-size] if needed > size else data
    return data

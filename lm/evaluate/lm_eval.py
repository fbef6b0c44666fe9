"""Adapter to EleutherAI's lm-evaluation-harness (`lm_eval`), with scores that do not depend on token boundaries.

The harness's own models encode prompt and answer together, skip as many tokens as the prompt alone has, and score the
rest. If a token spans the boundary (a *straddle*), that is the probability of something else: bytes of the prompt are
scored with the answer, or bytes of the answer are lost. With superwords this is common. Here answers are scored as
bytes (`lm.bytelevel.byte_model`), and straddles are counted.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.bytelevel.byte_model import ByteModel
from lm.model.generation import generate
from lm.model.sampling import SamplingConfig
from tokenizer.errors import UserError

try:
    from lm_eval.api.model import LM
except ImportError as error:
    raise UserError(f"downstream tasks need lm-eval ({error}); in the clone, run: pip install '.[eval]'") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm.model.language_model import LanguageModel

_LOST_SAMPLE = 16
"""Number of prompts for which the share of non-canonical tokenizations is measured."""


class HarnessModel(LM):  # type: ignore[misc]
    """A model for `lm_eval.simple_evaluate(model=...)`. Every prompt begins a document.

    Likelihoods are of bytes, independent of the tokens; "greedy" means that each byte is the most probable one.

    Args:
        lm: The model.
        batch_rows: Maximum number of texts that are generated, or scored, at once.

    Attributes:
        bytewise: The model that scores bytes.
        straddles: Number of requests in which a token spans prompt and answer.
        requests: Number of likelihoods requested.
        lost: Shares of non-canonical tokenizations of the first prompts.
    """

    def __init__(self, lm: LanguageModel, *, batch_rows: int = 32) -> None:
        super().__init__()
        self.lm = lm
        self.bytewise = ByteModel(lm, batch_rows=batch_rows)
        self.batch_rows = batch_rows
        self.straddles = self.requests = 0
        self.lost: list[float] = []

    @property
    def tokenizer_name(self) -> str:
        """Hash of the tokenizer."""
        return self.lm.tokenizer.sha256

    def facts(self) -> dict[str, Any]:
        """The token that ends documents, straddles and share of non-canonical tokenizations so far, JSON-able."""
        return {
            "end_of_text": None if self.lm.eos_id is None else self.lm.tokenizer.end_of_text,
            "requests": self.requests,
            "straddles": self.straddles,
            "straddle_share": self.straddles / max(1, self.requests),
            "noncanonical_share": float(np.mean(self.lost)) if self.lost else None,
        }

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-probability of each request's answer after its prompt, and whether it is greedy.

        Args:
            requests: Requests of `lm_eval` with arguments (prompt, answer). Adjacent requests with the same prompt
                share their forward pass.
            disable_tqdm: Unused; part of the interface.
        """
        results: list[tuple[float, bool]] = []
        self.requests += len(requests)
        self.straddles += sum(self._straddles(*request.args) for request in requests)
        groups = [
            (prompt, [request.args[1] for request in group])
            for prompt, group in itertools.groupby(requests, key=lambda request: request.args[0])
        ]
        for first in range(0, len(groups), self.batch_rows):
            some = groups[first : first + self.batch_rows]
            for prompt, _ in some[: max(0, _LOST_SAMPLE - len(self.lost))]:
                self.lost.append(1 - float(self.bytewise.next_byte(prompt).sum()))
            scores = self.bytewise.choices(some)
            greedy = self.bytewise.greedy_of([(answer, prompt) for prompt, answers in some for answer in answers])
            results += zip(np.concatenate(scores).tolist(), greedy, strict=True)
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, result)
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text as the beginning of a document, whose end is not scored."""
        return [self.bytewise.log_prob(request.args[0]) for request in requests]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """A continuation of each prompt, up to one of its stop strings or `max_gen_toks` tokens.

        Prompts are healed first (`lm.bytelevel.byte_model.ByteModel.heal`).
        """
        results = [""] * len(requests)
        jobs = [(sampling(request.args[1]), i) for i, request in enumerate(requests)]
        jobs.sort(key=lambda job: repr(job[0]))
        for config, group in itertools.groupby(jobs, key=lambda job: job[0]):
            members = [i for _, i in group]
            for rows in (members[at : at + self.batch_rows] for at in range(0, len(members), self.batch_rows)):
                prompts = [requests[i].args[0] for i in rows]
                seeds = [None if config.temperature == 0 else config.seed + i for i in rows]
                starts = [self.bytewise.heal(text, seed=seed) for text, seed in zip(prompts, seeds, strict=True)]
                for i, sample in zip(rows, generate(self.lm, prompts, config, starts), strict=True):
                    results[i] = sample.text
        return results

    def _straddles(self, prompt: str, answer: str) -> bool:
        """Whether a token spans prompt and answer; like `lm_eval`, which moves white space at the end to the answer."""
        encode = self.lm.tokenizer.encode_ordinary
        before = encode(prompt.rstrip())
        return encode(prompt + answer)[: len(before)] != before


def sampling(options: dict[str, Any]) -> SamplingConfig:
    r"""Sampling settings for `lm_eval`'s generation arguments: greedy unless `do_sample` or a temperature is set.

    >>> sampling({"until": "\n", "max_gen_toks": 8}).stop
    ('\n',)
    """
    until = options.get("until") or ()
    sampled = options.get("do_sample", options.get("temperature", 0) > 0)
    return SamplingConfig(
        temperature=float(options.get("temperature") or 1.0) if sampled else 0.0,
        top_k=options.get("top_k") or None,
        top_p=float(options.get("top_p", 1.0)),
        seed=int(options.get("seed", 0)),
        max_new_tokens=int(options.get("max_gen_toks", 256)),
        max_new_bytes=None,
        stop=tuple([until] if isinstance(until, str) else (stop for stop in until if stop)),
    )

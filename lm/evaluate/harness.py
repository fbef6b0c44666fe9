"""Adapter to EleutherAI's lm-evaluation-harness (`lm_eval`), with scores that do not depend on token boundaries.

The harness's own models encode prompt and answer together, skip as many tokens as the prompt alone has, and score the
rest. If a token spans the boundary (a *straddle*), that is the probability of something else: bytes of the prompt are
scored with the answer, or bytes of the answer are lost. With superwords this is common. Here answers are scored as
bytes (`lm.bytelevel.byte_model`), and straddles are counted.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from lm.bytelevel.byte_model import ByteModel
from lm.model.generation import SamplingConfig, generate, generate_from
from tokenizer.errors import UserError, check_choice

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise UserError(
        f"downstream tasks need lm-eval ({error}); install it with: pip install 'superbpe-framework[eval]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm.model.language_model import LanguageModel

Scoring = Literal["bytes", "tokens"]
SCORINGS: tuple[Scoring, ...] = ("bytes", "tokens")
_Encoded = tuple[tuple[str, str], list[int], list[int]]


class HarnessModel(TemplateLM):  # type: ignore[misc]
    """A model for `lm_eval.simple_evaluate(model=...)`. Every prompt begins a document.

    Args:
        lm: The model.
        scoring: "bytes": likelihoods of bytes, independent of the tokens; "greedy" means that each byte is the most
            probable one. Use it to compare tokenizers. "tokens": like `lm_eval`'s own models, which also move white
            space at the end of a prompt to the answer; straddles and answers longer than the context are scored as
            bytes.
        batch_tokens: Maximum number of tokens of a forward pass, padding included.
        batch_rows: Maximum number of texts that are generated, or scored as bytes, at once.
        lost_sample: Number of prompts for which the share of non-canonical tokenizations is measured.

    Attributes:
        bytewise: The model that scores bytes.
        straddles: Number of requests in which a token spans prompt and answer.
        requests: Number of likelihoods requested.
        lost: Shares of non-canonical tokenizations of `lost_sample` prompts.
    """

    def __init__(
        self,
        lm: LanguageModel,
        *,
        scoring: Scoring = "bytes",
        batch_tokens: int = 8192,
        batch_rows: int = 32,
        lost_sample: int = 16,
    ) -> None:
        super().__init__()
        check_choice("scoring", scoring, SCORINGS)
        self.lm, self.scoring = lm, scoring
        self.bytewise = ByteModel(lm, batch_tokens=batch_tokens, batch_rows=batch_rows)
        self.batch_tokens, self.batch_rows, self._lost_sample = batch_tokens, batch_rows, lost_sample
        self.straddles = self.requests = 0
        self.lost: list[float] = []

    @property
    def eot_token_id(self) -> int:
        """Id of `<|endoftext|>`, which also begins every document."""
        return self.lm.eos_id

    @property
    def max_length(self) -> int:
        """Context length of the model in tokens."""
        return self.lm.model.context_tokens

    @property
    def tokenizer_name(self) -> str:
        """Hash of the tokenizer."""
        return self.lm.tokenizer.sha256

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text without `<|endoftext|>`; special strings are ordinary text."""
        return self.lm.tokenizer.encode_ordinary(string)

    def facts(self) -> dict[str, Any]:
        """Straddles and share of non-canonical tokenizations so far, JSON-able."""
        return {
            "scoring": self.scoring,
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
        results: dict[int, tuple[float, bool]] = {}
        encoded: list[_Encoded] = []
        places: list[int] = []
        exact: list[int] = []
        for i, request in enumerate(requests):
            prompt, answer = request.args
            self.requests += 1
            pair, straddles = self._pair(prompt, answer)
            self.straddles += straddles
            # An answer that is longer than the model's context would lose tokens.
            if self.scoring == "tokens" and not straddles and len(pair[2]) <= self.max_length:
                encoded.append(pair)
                places.append(i)
            else:
                exact.append(i)
        groups = [
            (prompt, list(members)) for prompt, members in itertools.groupby(exact, key=lambda i: requests[i].args[0])
        ]
        for first in range(0, len(groups), self.bytewise.batch_rows):
            some = groups[first : first + self.bytewise.batch_rows]
            for prompt, _ in some[: max(0, self._lost_sample - len(self.lost))]:
                self.lost.append(self.bytewise.next_byte(prompt).lost)
            scores = self.bytewise.choices([(prompt, [requests[i].args[1] for i in each]) for prompt, each in some])
            members = [i for _, each in some for i in each]
            greedy = self.bytewise.greedy_of([requests[i].args[::-1] for i in members])
            results |= zip(members, zip(np.concatenate(scores).tolist(), greedy, strict=True), strict=True)
        for i, scored in zip(places, self._loglikelihood_tokens(encoded), strict=True):
            results[i] = scored
        for i, request in enumerate(requests):
            self.cache_hook.add_partial("loglikelihood", request.args, results[i])
        return [results[i] for i in range(len(requests))]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text as the beginning of a document, whose end is not scored."""
        results = []
        for request in requests:
            (text,) = request.args
            if self.scoring == "bytes":
                results.append(self.bytewise.log_prob(text))
                continue
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.eot_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            parts: list[_Encoded] = []
            for before, after in map(make_disjoint_window, windows):
                parts.append((("", ""), list(before), list(after)))
            results.append(sum((score for score, _ in self._loglikelihood_tokens(parts)), 0.0))
        return results

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """A continuation of each prompt, up to one of its stop strings or `max_gen_toks` tokens.

        With byte scoring, prompts are healed first (`lm.bytelevel.byte_model.ByteModel.heal`).
        """
        results = [""] * len(requests)
        jobs = [(sampling(request.args[1]), i) for i, request in enumerate(requests)]
        jobs.sort(key=lambda job: repr(job[0]))
        for config, group in itertools.groupby(jobs, key=lambda job: job[0]):
            members = [i for _, i in group]
            for rows in (members[at : at + self.batch_rows] for at in range(0, len(members), self.batch_rows)):
                prompts = [requests[i].args[0] for i in rows]
                if self.scoring == "bytes":
                    seeds = [None if config.temperature == 0 else config.seed + i for i in rows]
                    starts = [
                        self.bytewise.heal(prompt, seed=seed) for prompt, seed in zip(prompts, seeds, strict=True)
                    ]
                    samples = generate_from(self.lm, prompts, starts, config)
                else:
                    samples = generate(self.lm, prompts, config)
                for i, sample in zip(rows, samples, strict=True):
                    results[i] = sample.text
        return results

    def _pair(self, prompt: str, answer: str) -> tuple[_Encoded, bool]:
        """Ids of prompt and answer as split by `lm_eval`, and whether a token spans both."""
        if not prompt:
            return ((prompt, answer), [self.eot_token_id], self.tok_encode(answer)), False
        before, after = self._encode_pair(prompt, answer)
        straddles = self.tok_encode(prompt + answer)[: len(before)] != before
        return ((prompt, answer), [self.eot_token_id, *before], after), straddles

    @torch.inference_mode()
    def _loglikelihood_tokens(self, requests: Sequence[_Encoded], **_: Any) -> list[tuple[float, bool]]:
        """Scores of the second ids after the first ones, which are truncated on the left if necessary."""
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        rows = [((before + after)[-self.max_length - 1 :], len(after)) for _, before, after in requests]
        order = sorted((i for i in range(len(rows)) if rows[i][1]), key=lambda i: -len(rows[i][0]))
        while order:
            width = len(rows[order[0]][0]) - 1
            count = max(1, self.batch_tokens // width)
            batch, order = order[:count], order[count:]
            ids = torch.full((len(batch), width), self.eot_token_id)
            keep = torch.zeros(len(batch), width, dtype=torch.bool)
            for row, i in enumerate(batch):
                tokens, scored = rows[i]
                ids[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
                keep[row, max(0, len(tokens) - 1 - scored) : len(tokens) - 1] = True
            logits = self.lm.model(ids.to(self.lm.device), keep.to(self.lm.device))
            parts = torch.split(self.lm.log_probs(logits), keep.sum(1).tolist())
            for i, log_probs in zip(batch, parts, strict=True):
                targets = torch.tensor(rows[i][0][-len(log_probs) :])
                chosen = log_probs.gather(1, targets[:, None]).sum()
                results[i] = (float(chosen), bool((log_probs.argmax(1) == targets).all()))
        return results


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

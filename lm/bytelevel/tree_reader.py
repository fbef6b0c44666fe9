"""Reads a tree of tokens in one forward pass, with a KV cache that is kept between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from lm.bytelevel.path_tree import PathTree
    from lm.model.language_model import LanguageModel


@dataclass
class Cost:
    """Work done for byte probabilities, added up.

    Attributes:
        passes: Forward passes.
        tokens: Tokens that went through the model; cached ones do not count again.
        nodes: Tokens among them that belong to trees, roots included.
        widest: Largest number of path groups of one string.
        candidates: Tokens that the encoder has checked.
        strings: Strings whose paths were summed.
    """

    passes: int = 0
    tokens: int = 0
    nodes: int = 0
    widest: int = 0
    candidates: int = 0
    strings: int = 0


class LogProbs:
    """Log-probabilities in nats, float64, normalized when they are looked up: `[node, ids]`.

    Args:
        logits: float[nodes, vocabulary].
    """

    def __init__(self, logits: Tensor) -> None:
        self._sums: NDArray[np.float64] = logits.double().logsumexp(-1).cpu().numpy()
        self._logits: NDArray[np.float32] = logits.float().cpu().numpy()

    def __getitem__(self, key: tuple[int, NDArray[np.int64] | int]) -> NDArray[np.float64]:
        node, ids = key
        found: NDArray[np.float64] = np.float64(self._logits[node, ids]) - self._sums[node]
        return found


class TreeReader:
    """Log-probabilities at the nodes of trees.

    Args:
        lm: The model.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self._cache = KVCache(lm.model)
        self._cached = np.empty((1, 0), np.int64)

    @torch.inference_mode()
    def read(self, jobs: Sequence[tuple[list[int], PathTree]], cost: Cost) -> list[LogProbs]:
        """Log-probabilities after each trunk and after each token of its tree, in one batch.

        Args:
            jobs: Tokens before a tree, of which the last one is the root, and the tree.
            cost: The work is added to it.

        Raises:
            UserError: If the model's context is too short for a tree.
        """
        for trunk, tree in jobs:
            if len(trunk) + tree.depth > self._lm.model.context_tokens:
                raise UserError(
                    f"the tokenization paths of a text differ over {tree.depth} tokens, but the model has only "
                    f"{self._lm.model.context_tokens} positions; use a model with a longer context"
                )
        self._read_trunks([trunk[:-1] for trunk, _ in jobs], cost)
        width = max(1 + len(tree.tokens) for _, tree in jobs)
        padding = [width - 1 - len(tree.tokens) for _, tree in jobs]
        self._cache.branch([[-1, *tree.parents, *[-1] * rest] for (_, tree), rest in zip(jobs, padding, strict=True)])
        logits = self._forward([[trunk[-1], *tree.tokens] for trunk, tree in jobs], cost, keep=True)
        lengths = [len(trunk) for trunk, _ in jobs]
        self._cache.rewind(lengths)
        self._cached = np.full((len(jobs), max(lengths)), -1)
        for row, (trunk, _) in zip(self._cached, jobs, strict=True):
            row[: len(trunk)] = trunk
        cost.nodes += sum(1 + len(tree.tokens) for _, tree in jobs)
        return [LogProbs(part) for part in torch.split(logits, [1 + len(tree.tokens) for _, tree in jobs])]

    def _read_trunks(self, trunks: list[list[int]], cost: Cost) -> None:
        """Make the cache hold these tokens, each row starting from the cached row that shares most with it."""
        rows, same = [], []
        for trunk in trunks:
            size = min(len(trunk), self._cached.shape[1])
            shared = np.logical_and.accumulate(self._cached[:, :size] == trunk[:size], axis=1).sum(axis=1)
            rows.append(int(shared.argmax()))
            same.append(int(shared.max()))
        if rows != list(range(len(self._cached))):
            self._cache = self._cache.select(rows)
        # All rows read equally many tokens: padding after a long row could exceed the context.
        width = max(len(trunk) - start for trunk, start in zip(trunks, same, strict=True))
        starts = [max(0, len(trunk) - width) for trunk in trunks]
        self._cache.rewind(starts)
        if width:
            self._forward([trunk[start:] for trunk, start in zip(trunks, starts, strict=True)], cost, keep=False)
        self._cache.rewind([len(trunk) for trunk in trunks])

    def _forward(self, rows: list[list[int]], cost: Cost, *, keep: bool) -> Tensor:
        """Read rows of tokens, padded on the right; logits of all tokens, or of none."""
        cost.passes += 1
        cost.tokens += sum(map(len, rows))
        ids = torch.full((len(rows), max(map(len, rows))), self._lm.eos_id)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = keep
        logits: Tensor = self._lm.model(ids.to(self._lm.device), mask.to(self._lm.device), cache=self._cache)
        return logits

"""Tokenization paths of several strings as one tree of tokens, read in one forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from lm.bytelevel.tokenization_paths import Path, PathGroup
    from lm.model.language_model import LanguageModel


class PathTree:
    """A tree of paths without their common prefix; the root is the last token before the paths diverge.

    Args:
        paths: The paths, at least one.

    Attributes:
        shared: Their longest common prefix.
        parents: For each node after the root (index 0), the index of its parent.
        tokens: For each node after the root, its token.
        depth: Length of the longest path below the root.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        ordered = sorted(set(paths))
        low, high = ordered[0], ordered[-1]
        size = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
        self.shared = low[:size]
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.depth = max(map(len, ordered)) - size
        self._nodes: dict[Path, int] = {self.shared: 0}
        for path in ordered:
            for stop in range(size + 1, len(path) + 1):
                if path[:stop] not in self._nodes:
                    self.parents.append(self._nodes[path[: stop - 1]])
                    self.tokens.append(path[stop - 1])
                    self._nodes[path[:stop]] = len(self.tokens)

    def log_probs(self, table: NDArray[np.float64], path: Path, last: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[n]: log-probabilities of the path and then each of the last tokens, after the shared prefix."""
        node = at = self._nodes[path]
        total = 0.0
        while at:
            parent = self.parents[at - 1]
            total += float(table[parent, self.tokens[at - 1]])
            at = parent
        scores: NDArray[np.float64] = table[node, last] + total if len(last) else np.array([total])
        return scores

    def log_mass(self, table: NDArray[np.float64], groups: Iterable[PathGroup]) -> float:
        """Log of the sum over paths, after the shared prefix."""
        return float(np.logaddexp.reduce(np.concatenate([self.log_probs(table, g.prefix, g.last) for g in groups])))


class TreeReader:
    """Log-probabilities at the nodes of trees, with a KV cache that is kept between calls.

    Args:
        lm: The model.

    Attributes:
        passes: Forward passes so far.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self.passes = 0
        self._lm = lm
        self._cache = KVCache(lm.model)
        self._cached = np.empty((1, 0), np.int64)

    @torch.inference_mode()
    def read(self, jobs: Sequence[tuple[list[int], PathTree]]) -> list[NDArray[np.float64]]:
        """float64[nodes, vocabulary], log-probabilities after each trunk and each token of its tree, in one batch.

        Args:
            jobs: Tokens before a tree, of which the last one is the root, and the tree.

        Raises:
            UserError: If the model's context is too short for a tree.
        """
        for trunk, tree in jobs:
            if len(trunk) + tree.depth > self._lm.model.context_tokens:
                raise UserError(
                    f"the tokenization paths of a text differ over {tree.depth} tokens, but the model has only "
                    f"{self._lm.model.context_tokens} positions; use a model with a longer context"
                )
        self._read_trunks([trunk[:-1] for trunk, _ in jobs])
        width = max(1 + len(tree.tokens) for _, tree in jobs)
        self._cache.branch([[-1, *tree.parents, *[-1] * (width - 1 - len(tree.tokens))] for _, tree in jobs])
        logits = self._forward([[trunk[-1], *tree.tokens] for trunk, tree in jobs], keep=True)
        lengths = [len(trunk) for trunk, _ in jobs]
        self._cache.rewind(lengths)
        self._cached = np.full((len(jobs), max(lengths)), -1)
        for row, (trunk, _) in zip(self._cached, jobs, strict=True):
            row[: len(trunk)] = trunk
        parts = torch.split(logits, [1 + len(tree.tokens) for _, tree in jobs])
        return [part.log_softmax(-1, dtype=torch.float64).cpu().numpy() for part in parts]

    def _read_trunks(self, trunks: list[list[int]]) -> None:
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
            self._forward([trunk[start:] for trunk, start in zip(trunks, starts, strict=True)], keep=False)
        self._cache.rewind([len(trunk) for trunk in trunks])

    def _forward(self, rows: list[list[int]], *, keep: bool) -> Tensor:
        """Read rows of tokens, padded on the right; logits of all tokens, or of none."""
        self.passes += 1
        ids = torch.full((len(rows), max(map(len, rows))), self._lm.eos_id)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = keep
        logits: Tensor = self._lm.model(ids.to(self._lm.device), mask.to(self._lm.device), cache=self._cache)
        return logits

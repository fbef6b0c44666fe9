"""Reads a tree of tokens in one forward pass, with a KV cache that is kept between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lm.model.kv_cache import KVCache
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import numpy as np
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


class TreeReader:
    """Log-probabilities at the nodes of trees.

    Args:
        lm: The model.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self._cache = KVCache(lm.model)
        self._cached: list[int] = []

    @torch.inference_mode()
    def read(self, trunk: list[int], tree: PathTree, cost: Cost) -> NDArray[np.float64]:
        """float64[nodes, vocabulary]: log-probabilities after the trunk and after each token of the tree.

        Args:
            trunk: Tokens before the tree; its last one is the root.
            tree: The tree.
            cost: The work is added to it.

        Raises:
            UserError: If the model's context is too short for the tree.
        """
        if len(trunk) + tree.depth > self._lm.model.context_tokens:
            raise UserError(
                f"the tokenization paths of a text differ over {tree.depth} tokens, but the model has only "
                f"{self._lm.model.context_tokens} positions; use a model with a longer context"
            )
        same = 0
        for old, new in zip(self._cached, trunk[:-1], strict=False):
            if old != new:
                break
            same += 1
        self._cache.rewind(same)
        if fresh := trunk[same:-1]:
            self._forward(fresh, cost, keep=False)
        self._cache.branch([-1, *tree.parents])
        logits = self._forward([trunk[-1], *tree.tokens], cost, keep=True)
        self._cache.rewind(len(trunk))
        self._cached = trunk
        cost.nodes += 1 + len(tree.tokens)
        table: NDArray[np.float64] = self._lm.log_probs(logits).numpy()
        return table

    def _forward(self, ids: list[int], cost: Cost, *, keep: bool) -> Tensor:
        cost.passes += 1
        cost.tokens += len(ids)
        mask = torch.full((1, len(ids)), keep, device=self._lm.device)
        logits: Tensor = self._lm.model(torch.tensor([ids], device=self._lm.device), mask, cache=self._cache)
        return logits

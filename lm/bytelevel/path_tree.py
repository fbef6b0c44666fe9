"""Tokenization paths of several strings as one tree of tokens, and its log-probabilities under a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lm.evaluate.forward import ScorableModel
from lm.model.kv_cache import KVCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from lm.bytelevel.tokenization_paths import Path, PathGroup
    from lm.model.language_model import LanguageModel
    from lm.model.transformer import Transformer


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
        size = _n_shared(ordered[0], ordered[-1])
        self.shared = ordered[0][:size]
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

    def rows(self) -> list[list[int]]:
        """The nodes from the root to each leaf."""
        rows = []
        for node in sorted({*range(len(self.tokens) + 1)}.difference(self.parents)):
            row = [node]
            while row[-1]:
                row.append(self.parents[row[-1] - 1])
            rows.append(row[::-1])
        return rows

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


def _n_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


Job = tuple[list[int], PathTree]
"""Tokens before a tree, of which the last one is the root, and the tree."""


def reader_of(lm: LanguageModel, batch_tokens: int = 8192) -> TreeReader | RowReader:
    """Return the reader of a model: trees for our models, otherwise rows with at most these tokens in a pass."""
    return RowReader(lm.model, batch_tokens) if isinstance(lm.model, ScorableModel) else TreeReader(lm.model)


class TreeReader:
    """Log-probabilities at the nodes of trees, with a KV cache that is kept between calls.

    Attributes:
        passes: Forward passes so far.
    """

    def __init__(self, model: Transformer) -> None:
        self.passes = 0
        self._model = model
        self._cache = KVCache(model)
        self._cached = np.empty((1, 0), np.int64)

    @torch.inference_mode()
    def read(self, jobs: Sequence[Job]) -> list[NDArray[np.float64]]:
        """float64[nodes, vocabulary], log-probabilities after each trunk and each token of its tree, in one batch.

        A trunk and a path together must fit the model's context.
        """
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
        ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.int64)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = keep
        device = self._model.lm_head.weight.device
        logits: Tensor = self._model(ids.to(device), mask.to(device), cache=self._cache)
        return logits


class RowReader:
    """Log-probabilities at the nodes of trees, of which every path is a row.

    The rows of a tree follow a copy of a cache of the tokens before it, if the model has one (`ScorableModel.past`).
    Otherwise they are read from their beginnings.

    Args:
        model: The model.
        batch_tokens: Maximum number of tokens of a forward pass, cached ones and padding included; one row may have
            more. Also of the caches that are kept between calls.
    """

    def __init__(self, model: ScorableModel, batch_tokens: int) -> None:
        self._model, self._batch_tokens = model, batch_tokens
        self._pasts: dict[Path, Any] = {}  # newest last

    @torch.inference_mode()
    def read(self, jobs: Sequence[Job]) -> list[NDArray[np.float64]]:
        """float64[nodes, vocabulary] for each job, as `TreeReader.read`."""
        tables = [np.empty((1 + len(tree.tokens), self._model.vocab_size)) for _, tree in jobs]
        batch: list[_Row] = []
        for table, (trunk, tree) in zip(tables, jobs, strict=True):
            past = self._past(trunk[:-1])
            before, cached = (trunk[:-1], 0) if past is None else ([], len(trunk) - 1)
            done = 0  # nodes are in the order of the rows
            for nodes in tree.rows():
                ids = [*before, trunk[-1], *(tree.tokens[node - 1] for node in nodes[1:])]
                row = _Row(ids, [node for node in nodes if node >= done], table, past)
                done = nodes[-1] + 1
                width = max(len(one.ids) for one in [*batch, row])
                full = (cached + width) * (len(batch) + 1) > self._batch_tokens
                if batch and (full or batch[0].past is not past):
                    self._read(batch)
                    batch = []
                batch.append(row)
        if batch:
            self._read(batch)
        return tables

    def _read(self, batch: list[_Row]) -> None:
        """Fill the tables of a batch of rows after one cache."""
        width = max(len(row.ids) for row in batch)
        ids = torch.full((len(batch), width), self._model.start_id)
        places: list[int] = []
        for i, row in enumerate(batch):
            ids[i, : len(row.ids)] = torch.tensor(row.ids)
            stop = i * width + len(row.ids)
            places += range(stop - len(row.nodes), stop)
        device = self._model.device
        logits = self._model.logits(ids.to(device), torch.tensor(places, device=device), batch[0].past)
        log_probs = logits.log_softmax(-1, dtype=torch.float64).cpu().numpy()
        for row in batch:
            row.table[row.nodes], log_probs = log_probs[: len(row.nodes)], log_probs[len(row.nodes) :]

    def _past(self, trunk: list[int]) -> Any:
        """Cache of the tokens before a root, from the kept one that shares most with it; None if there is none."""
        if not trunk:
            return None
        nearest = max(self._pasts, key=lambda ids: _n_shared(ids, trunk), default=())
        kept = _n_shared(nearest, trunk)
        past = self._model.past(trunk[kept:], self._pasts.get(nearest), kept)
        if past is not None:
            if kept == len(nearest):
                self._pasts.pop(nearest, None)  # the new one begins with it
            self._pasts[tuple(trunk)] = past
            while len(self._pasts) > 1 and sum(map(len, self._pasts)) > self._batch_tokens:
                del self._pasts[next(iter(self._pasts))]
        return past


class _Row(NamedTuple):
    """Tokens to read, the last nodes of them whose log-probabilities are wanted, and where these go."""

    ids: list[int]
    nodes: list[int]
    table: NDArray[np.float64]
    past: Any

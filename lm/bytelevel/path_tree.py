"""Tokenization paths of several strings as one tree of tokens, for one forward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lm.bytelevel.tokenization_paths import Path, PathGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.bytelevel.tree_reader import LogProbs


@dataclass
class PathTree:
    """A tree of paths without their common prefix; the root is the last token before the paths diverge.

    Attributes:
        paths: The paths.
        shared: Their longest common prefix.
        parents: For each node after the root (index 0), the index of its parent.
        tokens: For each node after the root, its token.
        depth: Length of the longest path below the root.
    """

    paths: Iterable[Path]
    shared: Path = ()
    parents: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    depth: int = 0

    def __post_init__(self) -> None:
        paths = list(dict.fromkeys(self.paths))
        low, high = min(paths), max(paths)
        size = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
        self.shared = low[:size]
        self._nodes: dict[Path, int] = {self.shared: 0}
        for path in sorted(paths):
            for stop in range(size + 1, len(path) + 1):
                if path[:stop] not in self._nodes:
                    self.parents.append(self._nodes[path[: stop - 1]])
                    self.tokens.append(path[stop - 1])
                    self._nodes[path[:stop]] = len(self.tokens)
            self.depth = max(self.depth, len(path) - size)

    def log_probs(self, table: LogProbs, path: Path, last: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[n]: log-probabilities of the path and then each of the last tokens, after the shared prefix."""
        node = self._nodes[path]
        total = 0.0
        at = node
        while at:
            parent = self.parents[at - 1]
            total += float(table[parent, self.tokens[at - 1]])
            at = parent
        return table[node, last] + total if len(last) else np.array([total])

    def log_mass(self, table: LogProbs, groups: Iterable[PathGroup]) -> float:
        """Log of the sum over paths, after the shared prefix."""
        return float(np.logaddexp.reduce(np.concatenate([self.log_probs(table, g.prefix, g.last) for g in groups])))

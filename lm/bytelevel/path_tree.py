"""TokenizationPaths of several strings as one tree of tokens, for one forward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lm.bytelevel.tokenization_paths import Path, PathGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class PathTree:
    """Paths without what all of them share, as a tree whose root is the token before them.

    Attributes:
        shared: The longest beginning that all paths have in common.
        parents: By node behind the root: the index of its parent; the root is 0, the nodes follow it.
        tokens: By node behind the root: its token.
        depth: Tokens of the longest path behind the root.
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

    def log_probs(self, table: NDArray[np.float64], path: Path, last: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[n]: log-probabilities of the path and then each of the last tokens, behind what is shared."""
        node = self._nodes[path]
        total = 0.0
        at = node
        while at:
            parent = self.parents[at - 1]
            total += float(table[parent, self.tokens[at - 1]])
            at = parent
        return table[node, last] + total if len(last) else np.array([total])

    def log_mass(self, table: NDArray[np.float64], groups: Iterable[PathGroup]) -> float:
        """Log of the sum over covers, behind what is shared."""
        return float(np.logaddexp.reduce(np.concatenate([self.log_probs(table, g.path, g.last) for g in groups])))

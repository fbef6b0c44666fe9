"""The grid of tokenizers while it grows: what is trained and counted so far, and what to try next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from experiments.fertility.choosing import Contender, cost_curve, is_rare
from experiments.fertility.grid import Cell
from experiments.fertility.tallies import tally
from experiments.numbers import percent, si
from tokenizer import Tokenizer
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.fertility.grid import GridTrainer, Trained
    from experiments.fertility.tallies import Documents, Tally
    from lm.evaluate.deployment import Deployment
    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained
    from tokenizer.interface import TokenizerLike

LEAST_SHARE, STEP, MOST_TOKENS = 0.4, 0.1, 256_000
"""Lowest transition that is tried, the step to the next lower one, and the largest vocabulary."""
SAMPLE_BYTES = 1_000_000
"""Text on which a tokenizer that only other software can run is measured: that software may take a second per MB."""
_QUARTERS, _BYTES = 4, 256
_LEAST_TOKENS = 300
"""Smallest vocabulary of an existing tokenizer for which BPE of the same size is trained."""


@dataclass
class GridSearch:
    """Tokenizers that are trained, and their tokens for the documents to choose by.

    Attributes:
        selection: The documents to choose by.
        documents: Their sizes and groups.
        deployed: The model whose serving is priced.
        pattern: Pattern of full-strength BPE.
        existing: The tokenizers that the user has, by name.
        parents: Names of the tokenizers that extend one of these, and of that one.
        edges: What of the cheapest tokenizer is at the edge of what was tried, as sentences.
        cells: The tokenizers that were tried, by name; the text may have too few pairs for some.
        trained: Those that are trained, and extended ones.
        contenders: All tokenizers whose tokens are counted.
    """

    trainer: GridTrainer
    selection: Corpus
    documents: Documents
    deployed: Deployment
    pattern: str
    existing: Mapping[str, Pretrained] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    edges: list[str] = field(default_factory=list)
    cells: dict[str, Cell] = field(default_factory=dict)
    trained: dict[str, Trained] = field(default_factory=dict)
    contenders: dict[str, Contender] = field(default_factory=dict)

    def explore(
        self,
        cells: Sequence[Cell],
        *,
        extend_by: str | None,
        equal_sizes: bool,
        fixed_sizes: bool,
        fixed_transitions: bool,
    ) -> None:
        """Train a grid and what belongs to it, and count all tokens.

        Args:
            cells: The grid.
            extend_by: Preset by which existing tokenizers without superwords are extended; None to extend none.
            equal_sizes: Whether to train BPE of the sizes of existing and extended tokenizers.
            fixed_sizes: Whether the user chose the sizes.
            fixed_transitions: Whether the user chose the transitions.
        """
        tallies = self.tally([one.tokenizer for one in self.existing.values()])
        for (name, one), counted in zip(self.existing.items(), tallies, strict=True):
            self.contenders[name] = Contender(counted, name, software=one.about()["software"])
        self.train(cells)
        for name, one in self.existing.items() if extend_by else ():
            self._extend(name, one.tokenizer, extend_by or "")
        if equal_sizes:
            sizes = {self.contenders[name].tally.tokenizer.vocab_size for name in (*self.existing, *self.parents)}
            self.train([Cell(size, self.pattern) for size in sorted(sizes) if size > _LEAST_TOKENS])
        self.edges = self.grow(
            [cell.size for cell in cells], fixed_sizes=fixed_sizes, fixed_transitions=fixed_transitions
        )

    def _extend(self, name: str, start: TokenizerLike, preset: str) -> None:
        """Extend an existing tokenizer, unless it has superwords or other software runs it."""
        if not isinstance(start, Tokenizer) or start.fence is not None:
            return
        try:
            self.add({f"{name}-extended": self.trainer.extend(start, name, preset)})
            self.parents[f"{name}-extended"] = name
        except UserError as error:
            self.trainer.reporter.say(f"{name} cannot be extended with superwords: {error}", style="yellow")

    def train(self, cells: Sequence[Cell]) -> None:
        """Train the tokenizers that were not tried, and count their tokens."""
        new = [cell for cell in cells if cell.name not in self.cells]
        self.cells |= {cell.name: cell for cell in new}
        self.add(self.trainer.train(new))

    def add(self, trained: Mapping[str, Trained]) -> None:
        """Count the tokens of trained tokenizers."""
        self.trained |= trained
        tallies = self.tally([one.tokenizer for one in trained.values()])
        for (name, one), counted in zip(trained.items(), tallies, strict=True):
            recipe = self.cells[name].recipe if name in self.cells else name
            weight = max(self.trainer.corpus.config.weights.values(), default=1)
            last_count = int(one.counts[-1]) // weight if len(one.counts) else None
            self.contenders[name] = Contender(counted, recipe, last_count)

    def tally(self, tokenizers: Sequence[TokenizerLike]) -> list[Tally]:
        """Count the tokens of each tokenizer."""
        if not tokenizers:
            return []
        reporter = self.trainer.reporter
        with reporter.stage("tokens"):
            return tally(
                tokenizers, self.selection, self.documents, threads=self.trainer.threads,
                progress=reporter.progress, sample_bytes=SAMPLE_BYTES,
            )  # fmt: skip

    def cost(self, counted: Tally) -> float:
        """FLOPs of reading a byte and generating a byte."""
        n_bytes = self.documents.n_bytes[counted.measured].sum()
        return float(cost_curve(self.deployed, counted.tokenizer.vocab_size)(counted.tokens.sum() / n_bytes))

    def references(self, chosen: str | None = None) -> dict[str, str | None]:
        """Name of the tokenizer with which each is compared.

        It is the one that the user chose, or full-strength BPE of the same size, or the tokenizer that it extends.
        """
        if chosen is not None:
            return dict.fromkeys(self.contenders, chosen)
        of_size = {cell.size: name for name, cell in self.cells.items() if self.is_plain(cell) and name in self.trained}
        return {
            name: of_size.get(one.tally.tokenizer.vocab_size, self.parents.get(name))
            for name, one in self.contenders.items()
        }

    def is_plain(self, cell: Cell) -> bool:
        """Whether a tokenizer is full-strength BPE."""
        return cell == Cell(cell.size, self.pattern)

    def supported(self, cell: Cell) -> bool:
        """Whether the text is large enough for a tokenizer and for BPE of the same size."""
        names = (cell.name, Cell(cell.size, self.pattern).name)
        return all(name in self.trained and not is_rare(self.contenders[name].last_count) for name in names)

    def cheapest(self) -> Cell | None:
        """The cheapest tokenizer with superwords that the text supports; without any, the cheapest of another pattern.

        None if full-strength BPE is all there is.
        """
        others = [cell for cell in self.cells.values() if not self.is_plain(cell) and self.supported(cell)]
        with_superwords = [cell for cell in others if cell.preset is not None]
        return min(with_superwords or others, key=self._cost_of, default=None)

    def _cost_of(self, cell: Cell) -> float:
        return self.cost(self.contenders[cell.name].tally)

    def grow(self, sizes: Sequence[int], *, fixed_sizes: bool, fixed_transitions: bool) -> list[str]:
        """Try lower transitions and larger vocabularies until the cheapest tokenizer is not at the edge.

        Args:
            sizes: Sizes of the grid.
            fixed_sizes: Whether the user chose them.
            fixed_transitions: Whether the user chose the transitions.

        Returns:
            What of the cheapest is still at the edge, as sentences.
        """
        largest = max(sizes)
        while (best := self.cheapest()) is not None and best.preset is not None:
            more, edges = [], []
            if isinstance(best.transition, int) and best.transition == min(self._transitions(best)):
                share = round(best.transition / best.size - STEP, 2)
                lower = round(share * best.size)
                if not fixed_transitions and share >= LEAST_SHARE and lower >= _BYTES:
                    more.append(best._replace(transition=lower))
                else:
                    at = f"{si(best.transition)} tokens, {percent(best.transition / best.size, 0)} of the vocabulary"
                    edges.append(f"The transition of {best.name} ({at}) is the lowest tried")
            if best.size == largest:
                if not fixed_sizes and 2 * best.size <= MOST_TOKENS:
                    largest = 2 * best.size
                    start = 2 * best.transition if isinstance(best.transition, int) else best.transition
                    more += [Cell(largest, self.pattern), best._replace(size=largest, transition=start)]
                else:
                    edges.append(f"The vocabulary of {best.name} is the largest tried")
            if not more:
                return edges
            self.train(more)
        return []

    def _transitions(self, cell: Cell) -> list[int]:
        """Transitions that were tried with the recipe and the size of a tokenizer."""
        alike = [one for one in self.cells.values() if one._replace(transition=cell.transition) == cell]
        return [one.transition for one in alike if isinstance(one.transition, int)]

    def differences(self, cell: Cell | None, reference: str | None = None) -> list[float]:
        """Logarithms of the cost of a tokenizer over its reference's, trained on each quarter of the text.

        Args:
            cell: The tokenizer; None for full-strength BPE.
            reference: Name of an existing tokenizer that is the reference, which is the same for all quarters; None for
                full-strength BPE of the same size, trained on the same quarter.
        """
        plain = [one for one in self.cells.values() if self.is_plain(one) and one.name in self.trained]
        pair = [cell or plain[0]]
        if cell is not None and reference is None:
            pair.append(Cell(cell.size, self.pattern))
        quarters = [self.trainer.train(pair, quarter) for quarter in range(_QUARTERS)]
        while any(len(trained) < len(pair) for trained in quarters) and pair[0].size >= 1000:  # too few pairs
            pair = [_halved(one) for one in pair]
            quarters = [self.trainer.train(pair, quarter) for quarter in range(_QUARTERS)]
        whole = [trained for trained in quarters if len(trained) == len(pair)]
        tallies = self.tally([trained[one.name].tokenizer for trained in whole for one in pair])
        costs = np.log([self.cost(one) for one in tallies]).reshape(len(whole), len(pair))
        return list(costs[:, 0] - costs[:, 1] if len(pair) > 1 else costs[:, 0])


def _halved(cell: Cell) -> Cell:
    start = max(cell.transition // 2, _BYTES) if isinstance(cell.transition, int) else cell.transition
    return cell._replace(size=cell.size // 2, transition=start)

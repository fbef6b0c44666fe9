"""A grid of tokenizers trained on one text: pretokens are counted once per pattern, and vocabularies of a recipe nest.

Merges of a smaller vocabulary are the first merges of a larger one, with phase 1 and with a phase 2 that starts at the
same token. So each recipe is trained once, to its largest size, and cut to the others.
"""

from __future__ import annotations

import warnings
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.cli.console import si
from superbpe import PRESETS, train_superbpe
from superbpe.rules import PHASE1
from superbpe.transition import AUTO, resolve_transition
from tokenizer import Tokenizer, count_pretokens, train_bpe
from tokenizer._native import DocumentFilter
from tokenizer.files import digest
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.cli.console import Reporter
    from tokenizer import Batch, Corpus

_SPECIALS = len(DEFAULT_SPECIAL_TOKENS)


@dataclass(frozen=True)
class Recipe:
    """One way to train a tokenizer, apart from its size.

    Attributes:
        pattern: Phase-1 pattern.
        unit: Unit of phase 1: `document` or `line`.
        preset: Preset of phase 2; None for BPE.
        transition: Number of tokens at which phase 2 starts, or `auto`.
    """

    pattern: str
    unit: str
    preset: str | None = None
    transition: int | str | None = None

    def __str__(self) -> str:
        usual = {"pattern": self.pattern, "unit": "document"} if self.preset is None else PHASE1[self.preset]
        parts = [self.preset or "bpe"]
        parts += [self.pattern] if self.preset is None or self.pattern != usual["pattern"] else []
        parts += [self.unit] if self.unit != usual["unit"] else []
        return "-".join(parts)


class Cell(NamedTuple):
    """A tokenizer of the grid: a recipe and the size of the vocabulary."""

    recipe: Recipe
    size: int

    @property
    def name(self) -> str:
        """Name of the tokenizer, such as `uw-2025-32k-t26k`."""
        start = self.recipe.transition
        parts = [str(self.recipe), si(self.size), f"t{si(start)}" if isinstance(start, int) else ""]
        return "-".join(filter(None, parts)).replace(".", "_")  # arms of a pipeline have no dots in their names


class Trained(NamedTuple):
    """A trained tokenizer.

    Attributes:
        tokenizer: The tokenizer.
        counts: Count of each merge of its last phase in the training text, by rank.
    """

    tokenizer: Tokenizer
    counts: NDArray[np.integer[Any]]

    def cut(self, size: int) -> Trained:
        """The tokenizer that training to a smaller size gives."""
        if size == self.tokenizer.vocab_size:
            return self
        return Trained(self.tokenizer.cut(size), self.counts[: size - self.tokenizer.vocab_size])

    @property
    def last_count(self) -> int | None:
        """Count of the last merge; None if the last phase has no merge."""
        return int(self.counts[-1]) if len(self.counts) else None


def grid(
    patterns: Sequence[str] | None,
    units: Sequence[str] | None,
    presets: Sequence[str],
    transitions: Sequence[float | str],
    sizes: Sequence[int],
    default_patterns: Sequence[str],
) -> list[Cell]:
    """Return all combinations, in order and without repetition.

    A preset is combined with its own pattern and unit of phase 1, unless others are chosen.

    Args:
        patterns: Patterns of phase 1 for BPE and superwords; None for `default_patterns`, and those of the presets.
        units: Units of phase 1; None for documents, and those of the presets.
        presets: Presets of phase 2.
        transitions: Numbers of tokens, shares of the vocabulary, or `auto`.
        sizes: Sizes of the vocabulary.
        default_patterns: Patterns of BPE if none are chosen.
    """
    cells = [
        Cell(Recipe(pattern, unit), size)
        for pattern in patterns or default_patterns
        for unit in units or ["document"]
        for size in sizes
    ]
    for preset in presets:
        for pattern in patterns or [PHASE1[preset]["pattern"]]:
            for unit in units or [PHASE1[preset]["unit"]]:
                for transition in [AUTO] if PRESETS[preset].interleave else transitions:
                    for size in sizes:
                        start = transition if transition == AUTO else resolve_transition(size, transition)
                        if start == AUTO or 256 <= int(start) < size - _SPECIALS:
                            cells.append(Cell(Recipe(pattern, unit, preset, start), size))
    return list(dict.fromkeys(cells))


@dataclass(frozen=True)
class Trainer:
    """Trains recipes on the training split of a corpus, and keeps them in a folder, so that a command can resume.

    Attributes:
        corpus: The text.
        folder: Folder of the trained recipes.
        about: Identity of the text and its split, which is stored with the tokenizers.
        reporter: Shows the progress.
        threads: Number of threads.
    """

    corpus: Corpus
    folder: Path
    about: dict[str, Any]
    reporter: Reporter
    threads: int

    def train(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Trained]]:
        """Yield the tokenizers of a grid, those with the same phase 1 together.

        Sizes and transitions for which the text has too few pairs are left out.
        """
        order = list(dict.fromkeys((cell.recipe.pattern, cell.recipe.unit) for cell in cells))
        for pattern, unit in order:
            group = [cell for cell in cells if (cell.recipe.pattern, cell.recipe.unit) == (pattern, unit)]
            start = self._phase1(Recipe(pattern, unit), max(_phase1_size(cell) for cell in group))
            nested: dict[tuple[Recipe, int], list[Cell]] = {}
            for cell in group:  # if superwords compete with phase 1, sizes do not nest
                nested.setdefault((cell.recipe, cell.size * (cell.recipe.transition == AUTO)), []).append(cell)
            for (recipe, _), sizes in nested.items():
                trained: Trained | None = start
                if recipe.preset is not None:
                    trained = self._phase2(start.tokenizer, recipe, max(cell.size for cell in sizes))
                for cell in sizes:
                    if trained is not None and cell.size <= trained.tokenizer.vocab_size:
                        yield cell, trained.cut(cell.size)

    def _phase1(self, recipe: Recipe, size: int) -> Trained:
        def job(found: list[Any]) -> Tokenizer:
            counts = count_pretokens(
                self.corpus, recipe.pattern, unit=recipe.unit, threads=self.threads, progress=self.reporter.progress
            )
            return train_bpe(counts, size, progress=self.reporter.progress, on_counts=found.append)

        return self._stored(recipe, [size], job)

    def _phase2(self, start: Tokenizer, recipe: Recipe, size: int) -> Trained | None:
        """Phase 2 of a recipe; None if phase 1 ends before the transition."""
        assert recipe.preset is not None
        rules, transition = PRESETS[recipe.preset], recipe.transition
        if isinstance(transition, int) and transition > 256 + start.n_phase1_merges:
            return None

        def job(found: list[Any]) -> Tokenizer:
            return train_superbpe(
                start, self.corpus, vocab_size=size, rules=rules, transition=transition, threads=self.threads,
                progress=self.reporter.progress, on_counts=found.append,
            )  # fmt: skip

        return self._stored(recipe, [size, start.sha256], job)

    def quarters(self, recipe: Recipe, size: int) -> list[Tokenizer]:
        """BPE from four disjoint parts of the text: their differences are those of the training text alone."""

        def documents(number: int) -> Iterator[Batch]:
            for batch in self.corpus.batches("train"):
                for place, salt in enumerate(("half", "quarter")):
                    side = ("train", "heldout")[number >> place & 1]
                    batch = DocumentFilter(split=side, heldout_fraction=0.5, heldout_salt=salt).apply(batch)[0]
                if len(batch):
                    yield batch

        def job(number: int, found: list[Any]) -> Tokenizer:
            text = partial(documents, number)
            counts = count_pretokens(text, recipe.pattern, unit=recipe.unit, threads=self.threads)
            return train_bpe(counts, size, progress=self.reporter.progress, on_counts=found.append)

        return [self._stored(recipe, [size, number], partial(job, number)).tokenizer for number in range(4)]

    def extend(self, tokenizer: Tokenizer, preset: str) -> Trained:
        """A tokenizer with a quarter more tokens, which are superwords; its own ids do not change."""
        size = tokenizer.vocab_size + tokenizer.vocab_size // 4

        def job(found: list[Any]) -> Tokenizer:
            return train_superbpe(
                tokenizer, self.corpus, vocab_size=size, rules=preset, keep_ids=True, threads=self.threads,
                progress=self.reporter.progress, on_counts=found.append,
            )  # fmt: skip

        return self._stored(Recipe(tokenizer.pattern.name, "document", preset), [size, tokenizer.sha256], job)

    def _stored(self, recipe: Recipe, settings: list[Any], job: Callable[[list[Any]], Tokenizer]) -> Trained:
        """The result of a job, from the folder if it is there."""
        place = self.folder / digest([astuple(recipe), settings, self.about])[:16]
        counts = place.with_suffix(".npy")
        if place.exists() and counts.exists():
            return Trained(Tokenizer.load(place), np.load(counts))
        found: list[Any] = []
        with self.reporter.stage(f"train {recipe}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # too few pairs for a size: it is left out
            tokenizer = job(found)
        tokenizer.provenance["choose"] = self.about
        tokenizer.save(place)
        np.save(counts, found[0])
        return Trained(tokenizer, found[0])


def _phase1_size(cell: Cell) -> int:
    """Size that phase 1 needs for a tokenizer."""
    start = cell.recipe.transition
    return start + _SPECIALS if isinstance(start, int) else cell.size

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
    from tokenizer.corpus.texts import Text

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
        recipe: How it was trained, apart from the size and the transition.
        counts: Count of each merge of its last phase in the training text, by rank.
    """

    tokenizer: Tokenizer
    recipe: str
    counts: NDArray[np.integer[Any]]

    def cut(self, size: int) -> Trained:
        """The tokenizer that training to a smaller size gives."""
        if size == self.tokenizer.vocab_size:
            return self
        return Trained(self.tokenizer.cut(size), self.recipe, self.counts[: size - self.tokenizer.vocab_size])

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

    def train(self, cells: Sequence[Cell]) -> dict[str, Trained]:
        """Train the tokenizers of a grid, those with the same phase 1 together; returns them by name.

        Sizes and transitions for which the text has too few pairs are left out.
        """
        trained: dict[str, Trained] = {}
        for pattern, unit in dict.fromkeys((cell.recipe.pattern, cell.recipe.unit) for cell in cells):
            group = [cell for cell in cells if (cell.recipe.pattern, cell.recipe.unit) == (pattern, unit)]
            start = self._phase1(Recipe(pattern, unit), max(map(_phase1_size, group)))
            nested: dict[tuple[Recipe, int], list[Cell]] = {}
            for cell in group:  # if superwords compete with phase 1, sizes do not nest
                nested.setdefault((cell.recipe, cell.size * (cell.recipe.transition == AUTO)), []).append(cell)
            for (recipe, _), sizes in nested.items():
                largest = start
                if isinstance(recipe.transition, int) and recipe.transition > 256 + start.tokenizer.n_phase1_merges:
                    continue
                if recipe.preset is not None:
                    settings = {"vocab_size": max(cell.size for cell in sizes), "transition": recipe.transition}
                    largest = self._phase2(start.tokenizer, recipe, str(recipe), settings)
                trained |= {x.name: largest.cut(x.size) for x in sizes if x.size <= largest.tokenizer.vocab_size}
        return trained

    def quarters(self, recipe: Recipe, size: int) -> list[Trained]:
        """BPE from four disjoint parts of the text: their differences are those of the training text alone."""

        def documents(number: int) -> Iterator[Batch]:
            for batch in self.corpus.batches("train"):
                part = batch
                for place, salt in enumerate(("half", "quarter")):
                    side = ("train", "heldout")[number >> place & 1]
                    part = DocumentFilter(split=side, heldout_fraction=0.5, heldout_salt=salt).apply(part)[0]
                if len(part):
                    yield part

        return [self._phase1(recipe, size, partial(documents, number), number) for number in range(4)]

    def extend(self, tokenizer: Tokenizer, name: str, preset: str) -> Trained:
        """A tokenizer with a quarter more tokens, which are superwords; its own ids do not change."""
        settings = {"vocab_size": tokenizer.vocab_size + tokenizer.vocab_size // 4, "keep_ids": True}
        recipe = Recipe(tokenizer.pattern.name, "document", preset)
        return self._phase2(tokenizer, recipe, f"{name} extended with superwords", settings)

    def _phase1(self, recipe: Recipe, size: int, text: Text | None = None, number: int | None = None) -> Trained:
        def job(found: list[Any]) -> Tokenizer:
            counts = count_pretokens(
                text or self.corpus, recipe.pattern, unit=recipe.unit, threads=self.threads,
                progress=self.reporter.progress,
            )  # fmt: skip
            return train_bpe(counts, size, progress=self.reporter.progress, on_counts=found.append)

        return self._stored(str(recipe), [astuple(recipe), size, number], job)

    def _phase2(self, start: Tokenizer, recipe: Recipe, title: str, settings: dict[str, Any]) -> Trained:
        def job(found: list[Any]) -> Tokenizer:
            return train_superbpe(
                start, self.corpus, rules=str(recipe.preset), threads=self.threads, progress=self.reporter.progress,
                on_counts=found.append, **settings,
            )  # fmt: skip

        return self._stored(title, [astuple(recipe), settings, start.sha256], job)

    def _stored(self, title: str, settings: list[Any], job: Callable[[list[Any]], Tokenizer]) -> Trained:
        """The result of a job, from the folder if it is there."""
        place = self.folder / digest([settings, self.about])[:16]
        counts = place.with_suffix(".npy")
        if place.exists() and counts.exists():
            return Trained(Tokenizer.load(place), title, np.load(counts))
        found: list[Any] = []
        with self.reporter.stage(f"train {title}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # too few pairs for a size: it is left out
            tokenizer = job(found)
        tokenizer.provenance["choose"] = self.about
        tokenizer.save(place)
        np.save(counts, found[0])
        return Trained(tokenizer, title, found[0])


def _phase1_size(cell: Cell) -> int:
    """Size that phase 1 needs for a tokenizer."""
    start = cell.recipe.transition
    return start + _SPECIALS if isinstance(start, int) else cell.size

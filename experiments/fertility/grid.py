"""A grid of tokenizers trained on one text: pretokens are counted once per pattern, and vocabularies of a recipe nest.

Merges of a smaller vocabulary are the first merges of a larger one, with phase 1 and with a phase 2 that starts at the
same token. So each recipe is trained once, to its largest size, and cut to the others.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.numbers import si
from superbpe import PRESETS, train_superbpe
from superbpe.rules import PHASE1
from superbpe.transition import AUTO, resolve_transition
from tokenizer import Tokenizer, count_pretokens, train_bpe
from tokenizer._native import DocumentFilter
from tokenizer.corpus.sources import Source, sources_of
from tokenizer.errors import UserError
from tokenizer.files import digest, read_sealed, write_sealed
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.progress import Reporter
    from tokenizer import Batch, Corpus

_SPECIALS = len(DEFAULT_SPECIAL_TOKENS)


class Cell(NamedTuple):
    """A tokenizer of the grid.

    Attributes:
        unit: Unit of phase 1: `document` or `line`.
        preset: Preset of phase 2; None for BPE.
        transition: Number of tokens at which phase 2 starts, or `auto`.
    """

    size: int
    pattern: str
    unit: str = "document"
    preset: str | None = None
    transition: int | str | None = None

    @property
    def recipe(self) -> str:
        """How it is trained, apart from the size and the transition."""
        usual = PHASE1[self.preset].values() if self.preset else ("", "document")
        changed = [str(value) for value, other in zip((self.pattern, self.unit), usual, strict=True) if value != other]
        return "-".join([self.preset or "bpe", *changed])

    @property
    def name(self) -> str:
        """Name of the tokenizer, such as `uw-2025-32k-t26k`."""
        start = f"-t{si(self.transition)}" if isinstance(self.transition, int) else ""
        return f"{self.recipe}-{si(self.size)}{start}".replace(".", "_")  # arms of a pipeline have no dots in names

    @property
    def phase1_size(self) -> int:
        """Size that phase 1 needs for it."""
        return self.transition + _SPECIALS if isinstance(self.transition, int) else self.size


class Trained(NamedTuple):
    """A tokenizer, and the count of each merge of its last phase in the training text, by rank."""

    tokenizer: Tokenizer
    counts: NDArray[np.integer[Any]]

    def cut(self, size: int) -> Trained:
        """The tokenizer that training to a smaller size gives."""
        less = size - self.tokenizer.vocab_size
        return Trained(self.tokenizer.cut(size), self.counts[:less]) if less else self


def _quarter(corpus: Corpus, quarter: int) -> Iterator[Batch]:
    """The training documents of a quarter of a text."""
    for batch in corpus.batches("train"):
        part = batch
        for place, salt in enumerate(("half", "quarter")):
            side = "heldout" if quarter >> place & 1 else "train"
            part = DocumentFilter(split=side, heldout_fraction=0.5, heldout_salt=salt).apply(part)[0]
        if len(part):
            yield part


def grid(
    patterns: Sequence[str] | None,
    presets: Sequence[str],
    transitions: Sequence[float | str],
    sizes: Sequence[int],
    default_patterns: Sequence[str],
) -> list[Cell]:
    """Return all combinations, in order and without repetition.

    A preset is combined with its own unit and pattern of phase 1, unless patterns are chosen.

    Args:
        patterns: Patterns of phase 1 for BPE and superwords; None for `default_patterns` and the presets' own.
        presets: Presets of phase 2.
        transitions: Numbers of tokens, shares of the vocabulary, or `auto`.
        sizes: Sizes of the vocabulary.
        default_patterns: Patterns of BPE if none are chosen.
    """
    cells = []
    for preset in (None, *presets):
        usual = PHASE1[preset] if preset else {"pattern": "", "unit": "document"}
        starts = transitions if preset and not PRESETS[preset].interleave else [AUTO]
        for pattern in patterns or ([usual["pattern"]] if preset else default_patterns):
            for transition in starts:
                for size in sizes:
                    start = transition if transition == AUTO else resolve_transition(size, transition)
                    if start == AUTO or 256 <= int(start) < size - _SPECIALS:
                        cells.append(Cell(size, pattern, usual["unit"], preset, start if preset else None))
    return list(dict.fromkeys(cells))


@dataclass(frozen=True)
class GridTrainer:
    """Trains on the training split of a corpus, and keeps the results in a folder, so that a command can resume.

    Attributes:
        about: Identity of the text and its split, which is stored with the tokenizers.
    """

    corpus: Corpus
    folder: Path
    about: dict[str, Any]
    reporter: Reporter
    threads: int
    _loaded: dict[str, Trained] = field(default_factory=dict)

    def train(self, cells: Sequence[Cell], quarter: int | None = None) -> dict[str, Trained]:
        """Train the tokenizers of a grid, and return them by name.

        Sizes and transitions for which the text has too few pairs are left out.

        Args:
            cells: The tokenizers.
            quarter: Number of a quarter of the text to train on, from 0 to 3; None for all of it. The quarters are
                disjoint, so they differ in the training text alone.
        """
        trained: dict[str, Trained] = {}
        for cell in cells:
            family = [one for one in cells if (one.pattern, one.unit) == (cell.pattern, cell.unit)]
            largest = self._phase1(cell, max(one.phase1_size for one in family), quarter)
            if isinstance(cell.transition, int) and cell.transition > 256 + largest.tokenizer.n_phase1_merges:
                continue
            if cell.preset is not None:
                nested = [one.size for one in family if one._replace(size=cell.size) == cell]
                size = cell.size if cell.transition == AUTO else max(nested)  # competing superwords do not nest
                settings = {"vocab_size": size, "transition": cell.transition}
                largest = self._phase2(largest.tokenizer, cell.preset, cell.recipe, settings, quarter)
            if cell.size <= largest.tokenizer.vocab_size:
                trained[cell.name] = largest.cut(cell.size)
        return trained

    def _text(self, quarter: int | None) -> list[Source]:
        """The sources of the training text, or of a quarter of it."""
        sources = list(sources_of(self.corpus))
        if quarter is None:
            return sources
        parts = [replace(source, batches=partial(_quarter, source.batches, quarter)) for source in sources]
        return [part for part in parts if next(part.batches(), None)]  # a source may have few documents

    def extend(self, tokenizer: Tokenizer, name: str, preset: str) -> Trained:
        """A tokenizer with a quarter more tokens, which are superwords; its own ids do not change."""
        settings = {"vocab_size": tokenizer.vocab_size + tokenizer.vocab_size // 4, "keep_ids": True}
        return self._phase2(tokenizer, preset, f"{name} extended with superwords", settings)

    def _phase1(self, cell: Cell, size: int, quarter: int | None) -> Trained:
        def job(merge_counts: list[Any]) -> Tokenizer:
            counts = count_pretokens(
                self._text(quarter), cell.pattern, unit=cell.unit, threads=self.threads, progress=self.reporter.progress
            )
            return train_bpe(counts, size, progress=self.reporter.progress, on_counts=merge_counts.append)

        title = Cell(size, cell.pattern, cell.unit).recipe
        return self._stored(title, [cell.pattern, cell.unit, size, quarter], job)

    def _phase2(
        self, start: Tokenizer, preset: str, title: str, settings: dict[str, Any], quarter: int | None = None
    ) -> Trained:
        def job(merge_counts: list[Any]) -> Tokenizer:
            return train_superbpe(
                start, self._text(quarter), rules=preset, threads=self.threads, progress=self.reporter.progress,
                on_counts=merge_counts.append, **settings,
            )  # fmt: skip

        return self._stored(title, [preset, settings, start.sha256, quarter], job)

    def _stored(self, title: str, settings: list[Any], job: Callable[[list[Any]], Tokenizer]) -> Trained:
        """The result of a job, from the folder if it is there."""
        name = digest([settings, self.about])[:16]
        if name not in self._loaded:
            place = self.folder / name
            merge_counts = list[Any]()
            record = place.with_suffix(".json")
            with suppress(OSError, UserError):  # it is not there, or damaged: train it again
                stored, tokenizer = read_sealed(record), Tokenizer.load(place)
                if stored["sha256"] == tokenizer.sha256:
                    self._loaded[name] = Trained(tokenizer, np.array(stored["counts"], np.int64))
                    return self._loaded[name]
            with self.reporter.stage(f"train {title}"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # too few pairs for a size: it is left out
                tokenizer = job(merge_counts)
            tokenizer.provenance["choose"] = self.about
            tokenizer.save(place)
            write_sealed(record, {"sha256": tokenizer.sha256, "counts": merge_counts[0].tolist()})
            self._loaded[name] = Trained(tokenizer, merge_counts[0])
        return self._loaded[name]

"""The text of phase 2: one source or several, each with a weight, and a sample of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from superbpe.rules import Rules
from tokenizer import _native
from tokenizer.errors import UserError
from tokenizer.progress import Progress, Throttle

Batches = Callable[[], Iterable[_native.Batch]]
"""Gives the corpus from its beginning, each time it is called."""

MAX_WEIGHT = _native.SuperwordTrainer.MAX_WEIGHT


@dataclass(frozen=True)
class Source:
    """Text of one kind, for a mixture.

    Attributes:
        batches: gives the text from its beginning, each time it is called.
        weight: every document counts this many times, 1 to `MAX_WEIGHT`.
        name: what messages call it.
    """

    batches: Batches
    weight: int = 1
    name: str = "the corpus"

    def __post_init__(self) -> None:
        """Rejects what would fail in the middle of a pass.

        Raises:
            UserError: the weight is out of range, or the text can be read only once.
        """
        if self.weight != int(self.weight) or not 1 <= self.weight <= MAX_WEIGHT:
            raise UserError(f"{self.name} has the weight {self.weight}; use a whole number from 1 to {MAX_WEIGHT}")
        if not callable(self.batches):  # a mistake that no type checker caught
            raise UserError(
                f"{self.name} must be given from its beginning for each pass: pass corpus.batches, not corpus.batches()"
            )

    def read(self, add: Callable[[_native.Batch], object], tick: Throttle, done: int) -> int:
        """Hands every batch to `add`; returns `done` and the bytes that were read.

        Raises:
            UserError: there is no text. Otherwise a language, say, could be missing unnoticed.
        """
        before = done
        for batch in self.batches():
            if not isinstance(batch, _native.Batch):
                raise UserError(f"{self.name} gives {type(batch).__name__}, not batches; use Batch.from_texts([...])")
            add(batch)
            done += batch.n_bytes
            tick(done)
        if done == before:
            raise UserError(
                f"{self.name} is empty: there is no text to train superwords on (of a sample, all of its documents may "
                "have been left out: raise the rules' sample or choose another sample_salt)"
            )
        return done


def sources_of(text: Batches | Source | Sequence[Source]) -> Sequence[Source]:
    """The sources for `train_superbpe`; a single one can be given as a callable or a `Source`."""
    if isinstance(text, Source):
        return [text]
    if not (callable(text) or isinstance(text, Sequence)):  # a Corpus, for instance
        raise UserError(
            "the text for superwords is read more than once: give a callable that returns its batches each time, as "
            f'lambda: corpus.batches("train") or lambda: [Batch.from_texts(texts)] do, not a {type(text).__name__}'
        )
    if not isinstance(text, Sequence):
        return [Source(text)]
    if not text:
        raise UserError("there are no sources: name at least one text to train superwords on")
    for source in text:
        if not isinstance(source, Source):
            raise UserError(f"a list of texts holds sources: write Source(...) around {source!r:.80}")
    return text


def sampled(sources: Sequence[Source], rules: Rules, progress: Progress | None) -> Sequence[Source]:
    """The same share of every source, chosen by hashes of documents."""
    share = rules.sample
    if rules.sample_bytes is not None:
        tick, n_bytes = Throttle(progress, "bytes measured for a sample"), 0
        for source in sources:
            n_bytes = source.read(lambda _: None, tick, n_bytes)
        share = rules.sample_bytes / n_bytes
    if share >= 1.0:
        return sources
    return [replace(source, batches=partial(_taken, source.batches, share, rules.sample_salt)) for source in sources]


def _taken(batches: Batches, share: float, salt: str) -> Iterator[_native.Batch]:
    keep = _native.DocumentFilter(sample_fraction=share, sample_salt=salt)
    for batch in batches():
        yield keep.apply(batch)[0]

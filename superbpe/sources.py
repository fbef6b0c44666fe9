"""The text of phase 2: one or several weighted sources, optionally sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from superbpe.rules import Rules
from tokenizer import _native
from tokenizer.errors import UserError
from tokenizer.progress import Progress, Throttle

Batches = Callable[[], Iterable[_native.Batch]]
"""Returns the batches of a corpus from the start on each call."""

MAX_WEIGHT = _native.SuperwordTrainer.MAX_WEIGHT


@dataclass(frozen=True)
class Source:
    """Text of one kind, for a mixture.

    Attributes:
        batches: returns the text from the start on each call.
        weight: number of times each document counts, 1 to `MAX_WEIGHT`.
        name: name of the source in messages.
    """

    batches: Batches
    weight: int = 1
    name: str = "the corpus"

    def __post_init__(self) -> None:
        """Reject errors that would otherwise occur in the middle of a pass.

        Raises:
            UserError: the weight is out of range, or the text can be read only once.
        """
        if self.weight != int(self.weight) or not 1 <= self.weight <= MAX_WEIGHT:
            raise UserError(f"{self.name} has the weight {self.weight}; use a whole number from 1 to {MAX_WEIGHT}")
        if not callable(self.batches):  # a mistake that no type checker caught
            raise UserError(
                f"{self.name} is read from the start in each pass: pass corpus.batches, not corpus.batches()"
            )

    def read(self, add: Callable[[_native.Batch], object], tick: Throttle, done: int) -> int:
        """Pass each batch to `add`; returns `done` plus the number of bytes read.

        Raises:
            UserError: there is no text. Without this check, a missing language could go unnoticed.
        """
        before = done
        for batch in self.batches():
            if not isinstance(batch, _native.Batch):
                raise UserError(f"{self.name} yields {type(batch).__name__}, not batches; use Batch.from_texts([...])")
            add(batch)
            done += batch.n_bytes
            tick(done)
        if done == before:
            raise UserError(
                f"{self.name} is empty: there is no text to train superwords on (sampling may have dropped all of its "
                "documents: raise the rules' sample or choose another sample_salt)"
            )
        return done


def sources_of(text: Batches | Source | Sequence[Source]) -> Sequence[Source]:
    """The sources for `train_superbpe`; a single source may be a callable or a `Source`."""
    if isinstance(text, Source):
        return [text]
    if not (callable(text) or isinstance(text, Sequence)):  # a Corpus, for instance
        raise UserError(
            "the text for superwords is read more than once: pass a callable that returns its batches each time, such "
            f'as lambda: corpus.batches("train") or lambda: [Batch.from_texts(texts)], not a {type(text).__name__}'
        )
    if not isinstance(text, Sequence):
        return [Source(text)]
    if not text:
        raise UserError("there are no sources: name at least one text to train superwords on")
    for source in text:
        if not isinstance(source, Source):
            raise UserError(f"a list of texts must contain sources: write Source(...) around {source!r:.80}")
    return text


def sampled(sources: Sequence[Source], rules: Rules, progress: Progress | None) -> Sequence[Source]:
    """Sample the same fraction of each source, by a hash of the documents."""
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

"""One pass of phase 2 over a corpus: in this process, or over its parts in other processes or on other machines.

Partial results of a pass are sums, so they add up to the result of a single process, whatever the parts are. This holds
for seams, too: their counters saturate at a value that no threshold exceeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy.typing as npt

from superbpe.sources import Selection, check_not_empty
from superbpe.transition import Merges
from tokenizer import _native
from tokenizer.corpus import texts
from tokenizer.corpus.sources import Source
from tokenizer.progress import Progress, Throttle

Kind = Literal["spans", "seams", "fragments"]
_TABLES: dict[Kind, tuple[str, ...]] = {
    "spans": ("lengths",),
    "seams": ("seams", "tokens", "sample"),
    "fragments": ("fragments",),
}
"""Tables of the core that each pass fills."""
_SUMS = ("documents", "bytes", "tokens", "spans", "seams", "dead_seams")
_ROWS = 1 << 18  # rows per block, which bounds the memory for reading


class MemoryFullError(Exception):
    """The fragments of a pass exceed the memory limit."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over the corpus.

    Attributes:
        kind: "spans" measures the lengths of spans; "seams" counts seams and tokens; "fragments" counts fragments.
        sample_every: seams: one in this many pieces is also sampled; 0 for no sample.
        threshold: fragments: seams that occur less often are cut.
        memory_bytes: fragments: memory limit for the fragments and a merge loop over them; None for no limit.
    """

    kind: Kind
    sample_every: int = 0
    threshold: int = 1
    memory_bytes: int | None = None

    @property
    def title(self) -> str:
        """Unit of the progress."""
        fragments = f"bytes: fragments between seams of {self.threshold:,} or more"
        return {"spans": "bytes measured", "seams": "bytes: seams", "fragments": fragments}[self.kind]

    def check_memory(self, trainer: _native.SuperwordTrainer) -> None:
        """Stop a pass that exceeds the memory limit.

        Raises:
            MemoryFullError: the fragments exceed the limit.
        """
        if self.kind == "fragments" and self.memory_bytes is not None and trainer.memory > self.memory_bytes:
            raise MemoryFullError

    def count(
        self, trainer: _native.SuperwordTrainer, sources: Sequence[Source], tick: Throttle, *, whole: bool
    ) -> Counter[str]:
        """Run the pass in this process; returns the number of bytes read by the names of the sources.

        Args:
            trainer: gets the result.
            sources: the text.
            tick: reports bytes.
            whole: whether the sources are the whole corpus, so that none may be empty.

        Raises:
            MemoryFullError: the fragments exceed the memory limit.
        """
        sums = Counter[str]()
        trainer.begin_pass()
        for source in sources:
            n_bytes = 0
            for batch in texts.batches(source.batches):
                self._add(trainer, source, batch)
                n_bytes += batch.n_bytes
                tick(sums.total() + n_bytes)
            if whole:
                check_not_empty({source.name: n_bytes})
            sums[source.name] += n_bytes
        tick.finish(sums.total())
        trainer.end_pass()
        return sums

    def _add(self, trainer: _native.SuperwordTrainer, source: Source, batch: _native.Batch) -> None:
        if self.kind == "spans":
            trainer.measure_spans(batch, source.weight)
        elif self.kind == "seams":
            trainer.count_seams(batch, source.weight, sample_every=self.sample_every)
        else:
            trainer.count_fragments(batch, source.weight, threshold=self.threshold)
            self.check_memory(trainer)

    def dump(self, trainer: _native.SuperwordTrainer) -> Generator[dict[str, npt.NDArray[Any]], None, dict[str, Any]]:
        """Yield what a trainer has counted, as blocks of arrays; returns the rest, as JSON."""
        tables = []
        for table in _TABLES[self.kind]:
            keys, offsets, counts = trainer.rows(table)
            for start in range(0, len(counts), _ROWS):
                bounds = offsets[start : start + _ROWS + 1]
                tables.append(table)
                rows = {"keys": keys[bounds[0] : bounds[-1]], "offsets": bounds - bounds[0]}
                yield {**rows, "counts": counts[start : start + _ROWS]}
        statistics = {name: trainer.statistics[name] for name in _SUMS}
        return {"tables": tables, "statistics": statistics, "sample": trainer.sample_sizes()}

    def add(
        self, trainer: _native.SuperwordTrainer, about: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]]
    ) -> None:
        """Add what `dump` yielded and returned to a trainer.

        Raises:
            MemoryFullError: the fragments exceed the memory limit.
        """
        lowest, sizes = about["sample"]
        trainer.add_sample_sizes(lowest, [tuple(size) for size in sizes])
        for name, count in about["statistics"].items():
            trainer.add_statistic(name, count)
        for table, rows in zip(about["tables"], blocks, strict=True):
            trainer.add_rows(table, rows["keys"], rows["offsets"], rows["counts"])
            self.check_memory(trainer)


@dataclass
class State:
    """A trainer, and what another process needs to make one that counts the same.

    Attributes:
        settings: arguments of `_native.SuperwordTrainer` except `threads`.
        trainer: the trainer, which gets the results of passes.
        selection: the documents to read.
        longest: spans are truncated to this many phase-1 tokens.
        merges: pairs of tokens that were merged so far, which passes apply to the text.
    """

    settings: dict[str, Any]
    trainer: _native.SuperwordTrainer
    selection: Selection = field(default_factory=Selection)
    longest: int | None = None
    merges: list[tuple[int, int]] = field(default_factory=list)

    def start_over(self, merges: Merges) -> None:
        """Apply the merges that the trainer has found so far in the following passes."""
        self.trainer.start_over()
        self.merges = list(zip(merges.left.tolist(), merges.right.tolist(), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the trainer; `reopened` makes another."""
        return {**vars(self), "trainer": None}

    def reopened(self, live_seams: bytes | None, threads: int) -> _native.SuperwordTrainer:
        """Make a trainer in this state, in another process.

        Args:
            live_seams: for a pass over fragments: result of `live_seams` of the trainer.
            threads: number of threads.
        """
        trainer = _native.SuperwordTrainer(**self.settings, threads=threads)
        if self.longest is not None:
            trainer.set_longest(self.longest)
        trainer.apply(self.merges)
        if live_seams is not None:
            trainer.set_live_seams(live_seams)
        return trainer


@runtime_checkable
class Runner(Protocol):
    """Text that passes can be run over."""

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """Run a pass; its result is then in the trainer, as if the trainer had counted all text itself.

        Raises:
            MemoryFullError: the fragments exceed the memory limit.
            UserError: a source is empty. Without this check, a missing language could go unnoticed.
        """


@dataclass(frozen=True)
class Local:
    """Sources that this process reads."""

    sources: Sequence[Source]

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """See `Runner`."""
        pass_.count(state.trainer, state.selection.of(self.sources), Throttle(progress, pass_.title), whole=True)

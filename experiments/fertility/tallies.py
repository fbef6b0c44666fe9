"""The measured documents of a text, and the tokens of several tokenizers for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from lm.data.survey import survey
from lm.evaluate.bits_per_byte import sampling_units
from superbpe.inspection.boundaries import UnitCounts, find_units
from tokenizer import Batch
from tokenizer.corpus.parallel import parallel_documents
from tokenizer.errors import UserError, listed
from tokenizer.external.tokenizer import ExternalTokenizer
from tokenizer.progress import Throttle
from tokenizer.train.balanced import check_balance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from superbpe.inspection.boundaries import Units
    from tokenizer import Corpus
    from tokenizer.interface import Stream, TokenizerLike
    from tokenizer.progress import Progress

ALL, KIND, SOURCE, SCRIPT = "all", "kind", "source", "script"
"""How documents are grouped. The kind of text is the part of a source's name before a colon: `code: python`."""
_NAMING = ("source_field", "kind_field", "kinds")
"""Settings that give sources other names than `Corpus.by_source` does."""
_BATCH_BYTES = 1 << 20
"""Text that is in memory at once, per thread, with its words and its tokens, unless a document is longer."""
MOST_SOURCES = 50
"""Number of sources, the largest ones, that are distinguished."""


class Group(NamedTuple):
    """Indices of the documents of a kind, source or script, or of all, int64[n]; `by` says which, `name` its name."""

    by: str
    name: str
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class Documents:
    """The measured documents, in the order of the text.

    Attributes:
        n_bytes: int64[n_documents], bytes of UTF-8.
        n_words: int64[n_documents], whitespace-separated words.
        groups: All documents, then kinds (if sources name them), sources and scripts; the largest first.
        hashes: uint64[n_documents], equal for documents of equal text.
        parallel: Of each source, in the order of the text, documents with the texts of its translations, int64[n]; the
            documents at one place are translations of each other. Empty without translations.
    """

    n_bytes: NDArray[np.int64]
    n_words: NDArray[np.int64]
    groups: list[Group]
    hashes: NDArray[np.uint64]
    parallel: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.n_bytes)


def read(
    text: Corpus, progress: Progress | None = None, most_sources: int = MOST_SOURCES, parallel: str | None = None
) -> Documents:
    """Read the documents of a text.

    Args:
        text: The text.
        progress: Called with the bytes read.
        most_sources: Sources to tell apart.
        parallel: Field whose values are equal in translations; None for no translations.

    Raises:
        UserError: If the text has no documents, or no translations.
    """
    check_balance(text.config.weights, parallel=parallel)
    if parallel and (named := next((name for name in _NAMING if getattr(text.config, name)), None)):
        raise UserError(f"parallel={parallel} compares named sources (NAME=PATH); leave out {named}")
    documents = survey(text, "all", done=Throttle(progress, "bytes read"))
    if not len(documents):
        raise UserError(f"{listed(path for path, _ in text.files)} contains no text")
    kinds: dict[str, int] = {}
    kind_of = [kinds.setdefault(name.partition(": ")[0], len(kinds)) for name in documents.sources]
    kind = np.array(kind_of)[documents.source]

    def groups(by: str, names: Sequence[str], of_document: NDArray[np.integer[Any]]) -> list[Group]:
        order = np.argsort(-np.bincount(of_document, documents.n_bytes, len(names)), kind="stable")
        return [Group(by, names[i], np.flatnonzero(of_document == i)) for i in order[:most_sources].tolist()]

    every = [Group(ALL, "all text", np.arange(len(documents)))]
    every += groups(KIND, list(kinds), kind) if len(kinds) < len(documents.sources) else []
    every += groups(SOURCE, documents.sources, documents.source) + groups(SCRIPT, documents.scripts, documents.script)
    translations = parallel_documents(text, parallel, "all") if parallel else {}
    order = np.argsort(documents.hashes)

    def found(of_source: Iterator[tuple[str, str]]) -> NDArray[np.int64]:
        pairs = sorted((value, xxhash.xxh3_64_intdigest(text.encode())) for value, text in of_source)
        hashes = np.array([text_hash for _, text_hash in pairs], np.uint64)
        return order[np.searchsorted(documents.hashes, hashes, sorter=order)]

    of_sources = {name: found(of_source) for name, of_source in translations.items()}
    return Documents(documents.n_bytes, documents.n_words, every, documents.hashes, of_sources)


def by_text(hashes: NDArray[np.uint64], *columns: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Sums over the documents of each distinct text, float64[n_texts] per column."""
    units = sampling_units(hashes, None)
    return [np.bincount(units, column).astype(np.float64) for column in columns]


class Tally:
    """Token counts of one tokenizer. Batches may be added from any thread, in any order.

    Args:
        tokenizer: The tokenizer.
        n_documents: Number of documents.
        every: Measure one document of this many.
        units: Words, numbers and characters by document, which are filled in; None for new ones. Tallies of one text
            share them.

    Attributes:
        measured: bool[n_documents], the documents that are measured.
        tokens: int64[n_documents], tokens of each document.
        lost: int64[n_documents], bytes of each document that no token stands for, or only the unknown token.
        changed: bool[n_documents], whether a document decodes to another text.
        counts: int64[vocab_size], occurrences of each token.
        located: bool[n_documents], whether the place of each token of a document is known: the tokens account for all
            bytes of the text. Only of these documents it is known what tokens cut.
        units: Words, numbers and characters by document.
        cut: The ones that tokens cut, of located documents.
    """

    def __init__(
        self, tokenizer: TokenizerLike, n_documents: int, every: int = 1, units: UnitCounts | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.measured = np.arange(n_documents) % every == 0
        self.tokens, self.lost = np.zeros(n_documents, np.int64), np.zeros(n_documents, np.int64)
        self.changed = np.zeros(n_documents, np.bool_)
        self.counts = np.zeros(tokenizer.vocab_size, np.int64)
        self.located = np.zeros(n_documents, np.bool_)
        self.cut, zeros = (UnitCounts(*np.zeros((3, n_documents), np.int32)) for _ in range(2))
        self.units = units or zeros
        self._lengths = tokenizer.token_byte_lengths().astype(np.uint32)
        self._lock = threading.Lock()

    def add(self, batch: Batch, first: int, units: Units | None = None) -> None:
        """Count the tokens of a batch whose first document has index `first`; `units` are the batch's."""
        chosen = np.flatnonzero(self.measured[first : first + len(batch)])
        if len(chosen) < len(batch):
            batch = Batch.from_texts([batch.text(i) for i in chosen.tolist()])
            units = None
        if not len(batch):
            return
        stream = self.tokenizer.encode_stream(batch, len(self.counts), self._lengths, narrow=False)
        lengths, at = np.diff(stream.ends, prepend=0), first + chosen
        self.tokens[at] = lengths - 1
        if stream.changed is not None:
            self.changed[at] = stream.changed
        if stream.covered is not None:
            unknown = -1 if self.tokenizer.unknown_id is None else self.tokenizer.unknown_id
            replaced = np.where(stream.ids == unknown, stream.covered.astype(np.int64), 0)
            self.lost[at] = np.diff(batch.offsets) - stream.spelled + np.add.reduceat(replaced, stream.ends - lengths)
        self._locate(batch, stream, lengths, at, units or find_units(batch.data, batch.offsets[1:]))
        counts = np.bincount(stream.ids, minlength=len(self.counts))[:-1]  # without the mark: not a token
        with self._lock:
            self.counts += counts

    def _locate(
        self, batch: Batch, stream: Stream, lengths: NDArray[np.int64], at: NDArray[np.int64], units: Units
    ) -> None:
        """Count what the tokens of a batch cut."""
        located = (stream.spelled == np.diff(batch.offsets)) & (self.lost[at] == 0)
        if stream.covered is None:
            located &= ~self.changed[at]
        if stream.covered is None:
            ends = np.cumsum(np.append(self._lengths, np.uint32(0))[stream.ids], dtype=np.int64)
        else:  # the first of several tokens of a character covers it: the others cut it
            ends = np.cumsum(stream.covered, dtype=np.int64)
            ends = np.sort(ends - ((stream.covered == 0) & (stream.ids < len(self.counts))))
        if not located.all():
            ends += np.repeat(batch.offsets[1:] - np.cumsum(stream.spelled), lengths)
            ends = ends[np.repeat(located, lengths)]
        self.located[at] = located
        for totals, of_batch in ((self.units, units.counts), (self.cut, units.cut(ends))):
            for column, values in zip(totals, of_batch, strict=True):
                column[at] = values


def tally(
    tokenizers: Sequence[TokenizerLike],
    text: Corpus,
    documents: Documents,
    *,
    threads: int,
    progress: Progress | None = None,
    sample_bytes: int | None = None,
) -> list[Tally]:
    """Count the tokens of a text with each tokenizer.

    Args:
        tokenizers: The tokenizers.
        text: The text.
        documents: Its documents.
        threads: Number of threads.
        progress: Called with the bytes encoded, over all tokenizers.
        sample_bytes: Tokenizers that other software runs measure about this much of the text, since they are slow;
            None for all of it.
    """
    n, total = len(documents), int(documents.n_bytes.sum())
    sampled = min(n, -(-total // sample_bytes)) if sample_bytes else 1
    of_text = UnitCounts(*np.zeros((3, n), np.int32))
    tallies = [Tally(one, n, sampled if isinstance(one, ExternalTokenizer) else 1, of_text) for one in tokenizers]
    tick = Throttle(progress, "bytes encoded", len(tallies) * total)
    batches = text.batches("all", batch_bytes=_BATCH_BYTES)
    done = first = 0
    with ThreadPoolExecutor(threads) as pool:
        while group := list(islice(batches, threads)):
            firsts = accumulate(map(len, group), initial=first)
            units = pool.map(lambda batch: find_units(batch.data, batch.offsets[1:]), group)
            jobs = [(one, *rest) for rest in zip(group, firsts, units, strict=False) for one in tallies]
            for (_, batch, *_), _ in zip(jobs, pool.map(lambda job: job[0].add(*job[1:]), jobs), strict=True):
                done += batch.n_bytes
                tick(done)
            first += sum(map(len, group))
    assert first == n, "the text has other documents than the survey found"
    return tallies

"""The corpus of an experiment, and the text of each arm's phase 2."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from experiments.cli.console import si
from experiments.config import part
from experiments.results import CorpusFiles, Reading
from superbpe.sources import Source
from tokenizer import Batch
from tokenizer._native import DocumentFilter
from tokenizer.corpus import embedded
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.errors import UserError
from tokenizer.files import digest, shown, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from experiments.arms import Arm
    from experiments.config import BudgetConfig, CorpusSource
    from experiments.results import SplitSize
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact


@dataclass(frozen=True)
class Text:
    """The corpus of an experiment.

    Attributes:
        corpus: Its documents, split into `train` and `heldout`.
        hash: Hash of everything that determines the text; every stage that reads text records it.
        facts: Facts for the report, as (name, value).
        artifact: Folder of the text, if this project wrote it.
    """

    corpus: Corpus
    hash: str
    facts: list[tuple[str, str]]
    artifact: Artifact[CorpusFiles] | None

    def heldout_identity(self) -> dict[str, float]:
        """Settings besides `hash` on which the held-out documents depend."""
        sample = self.corpus.config.heldout_sample
        return {} if sample == 1 else {"heldout_sample": sample}

    @property
    def training_split(self) -> Reading:
        """The record of a stage that reads the training documents."""
        return Reading(corpus=self.hash, split="train")


def prepare(context: Context, settings: CorpusSource, budget: BudgetConfig | None = None) -> Text:
    """Return the corpus; write the embedded corpus to files first.

    Args:
        context: Context of the run.
        settings: The text.
        budget: Budget of the models that will be trained on it, whose size the text must suit; None without models.

    Raises:
        UserError: If the text is empty, is too small for the budget, or has no held-out document.
    """
    if settings.source == "embedded":
        return embedded_text(settings, _written(context, settings))
    corpus = Corpus(part(CorpusConfig, settings))
    _check_size(corpus, budget)
    where = settings.dataset or ", ".join(settings.places)
    with context.reporter.stage("find held-out text"):
        next(corpus.batches("heldout"))  # fails early if no document is held out
        if settings.source_field is not None:
            next(documents_by_origin(corpus, "heldout"))  # fails early if the records do not have this field
    heldout = (
        ", ".join(map(shown, settings.heldout_paths)) or f"{settings.heldout_fraction:g} of the documents, by hash"
    )
    return Text(corpus, digest(corpus.identity()), [("corpus", where), ("held out", heldout)], None)


def _check_size(corpus: Corpus, budget: BudgetConfig | None) -> None:
    """Raise a UserError if the files are empty, or too small for the budget, before any of them is read."""
    sizes = corpus.sizes()
    if sizes and not any(sizes):
        raise UserError(f"the corpus is empty: every file of {corpus.config.places} has 0 bytes")
    # Text is at most as long as its file, unless that is compressed.
    plain = all(str(path).endswith((".txt", ".text", ".jsonl", ".ndjson", ".json")) for path, _ in corpus.files)
    if sizes and plain and budget is not None and budget.train_flops is None:
        budget.check_epochs(budget.train_bytes, min(sum(sizes), corpus.config.max_bytes or sum(sizes)))


def _written(context: Context, settings: CorpusSource) -> Artifact[CorpusFiles]:
    """Write the embedded corpus to files."""
    return context.make(
        "corpus",
        CorpusFiles,
        "corpus",
        config={
            **embedded.identity(),
            "heldout_fraction": settings.heldout_fraction,
            "max_bytes": settings.max_bytes,
        },
        inputs={},
        build=lambda folder: CorpusFiles.load(
            embedded.write(folder, settings.heldout_fraction, settings.max_bytes, context.reporter.progress)
        ),
        describe=lambda found: _size(found.train),
    )


def embedded_text(settings: CorpusSource, artifact: Artifact[CorpusFiles]) -> Text:
    """Return the embedded corpus that was written to an artifact."""
    files = dataclasses.replace(
        part(CorpusConfig, settings),
        paths=[str(artifact.path / "train.jsonl.zst")],
        heldout_paths=[str(artifact.path / "heldout.jsonl.zst")],
        heldout_fraction=0.0,
        max_bytes=None,
        source_field=settings.source_field or "source",
    )
    corpus = Corpus(files)
    # The artifact's hash identifies the files; the configuration adds the document filters.
    chosen = {"artifact": artifact.hash, "config": corpus.identity()["config"]}
    return Text(corpus, digest(chosen), _embedded_facts(artifact.contents), artifact)


def _embedded_facts(contents: CorpusFiles) -> list[tuple[str, str]]:
    packages = ", ".join(f"{name} {version}" for name, version in contents.packages.items())
    return [
        ("corpus", f"embedded: English, code and other languages from {packages}"),
        ("training text", _size(contents.train)),
        ("held-out text", _size(contents.heldout)),
    ]


def _size(split: SplitSize) -> str:
    return f"{si(split.bytes)}B in {split.documents:,} documents of {split.sources} sources"


@dataclass(frozen=True)
class Mixture:
    """The text of phase 2.

    Attributes:
        sources: The sources with their weights.
        hash: Hash of everything that determines the text.
        read: Description of the text for the training record.
        corpora: The corpora of the sources.
    """

    sources: list[Source]
    hash: str
    read: Reading
    corpora: list[Corpus]

    def sizes(self) -> list[int]:
        """Return the sizes of the files in bytes."""
        return [size for corpus in self.corpora for size in corpus.sizes()]

    def parts(self, target_bytes: int) -> list[list[Source]]:
        """Return the sources in parts, which can be pickled."""
        return [
            [dataclasses.replace(source, batches=part if source.batches is corpus else _without_heldout(part, corpus))]
            for source, corpus in zip(self.sources, self.corpora, strict=True)
            for part in corpus.parts("train", target_bytes)
        ]


def phase2_text(text: Text, arm: Arm) -> Mixture:
    """Return the text of an arm's phase 2: the corpus, or the files of `superbpe.sources`.

    Raises:
        UserError: If a path does not exist, or is a file of held-out text.
    """
    named = [weighted(entry, "superbpe.sources") for entry in arm.superbpe.sources]
    if not named:
        parts = text.corpus.by_source()
        sources = [
            Source(one, weight, f"corpus.sources.{name}" if name else "the corpus") for name, one, weight in parts
        ]
        return Mixture(sources, text.hash, text.training_split, [one for _, one, _ in parts])
    # The dataset and the size limit apply to the corpus only. All held-out documents are left out, sampled or not.
    shared = dataclasses.replace(text.corpus.config, dataset=None, sources={}, max_bytes=None, heldout_sample=1.0)
    corpora = [(Corpus(dataclasses.replace(shared, paths=[path])), path, weight) for path, weight in named]
    return Mixture(
        [
            Source(_without_heldout(corpus, corpus), weight, f"superbpe.sources {shown(path)}")
            for corpus, path, weight in corpora
        ],
        digest([text.hash, [[corpus.identity(), weight] for corpus, _, weight in corpora]]),
        Reading(mixture=[f"{shown(path)}:{weight}" for path, weight in named], without_heldout_of=text.hash),
        [corpus for corpus, _, _ in corpora],
    )


def _without_heldout(part: Corpus, corpus: Corpus) -> Corpus | Callable[[], Iterator[Batch]]:
    """Training documents of a part, without those with the same text as a document of a held-out file."""
    return partial(_training, part, corpus.parts("heldout")) if corpus.heldout_files else part


def _training(part: Corpus, heldout: list[Corpus]) -> Iterator[Batch]:
    keep = DocumentFilter()
    for one in heldout:
        for batch in one.batches("heldout"):
            keep.exclude(batch)
    for batch in part.batches("train"):
        yield keep.apply(batch)[0]

"""The corpus of an experiment."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.config import part
from experiments.numbers import si
from experiments.results import CorpusFiles
from tokenizer.corpus import embedded
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import PART_BYTES, Corpus
from tokenizer.corpus.origins import check_kinds, documents_by_origin
from tokenizer.corpus.text_files import is_plain
from tokenizer.errors import UserError, counted, listed
from tokenizer.files import digest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.config import BudgetConfig, CorpusSource
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact

_LARGE = 4 * PART_BYTES
_logger = logging.getLogger(__name__)


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
        """Settings besides `hash` that determine the held-out documents."""
        sample = self.corpus.config.heldout_sample
        return {} if sample == 1 else {"heldout_sample": sample}


def prepare(context: Context, settings: CorpusSource, budget: BudgetConfig | None = None) -> Text:
    """Return the corpus; write the embedded corpus to files first.

    Args:
        context: Context of the run.
        settings: The text.
        budget: Budget of the models that will be trained on it, whose size the text must suit; None without models.

    Raises:
        UserError: If the text is empty, is too small for the budget, or has no held-out document.
    """
    if budget is not None and settings.max_bytes is not None:
        budget.check_epochs(settings.max_bytes)
    if settings.source == "embedded":
        return _embedded(context, settings)
    corpus = Corpus(part(CorpusConfig, settings))
    _check_size(corpus, budget)
    if context.runner.name != "local" and (undivided := _undivided(corpus)):
        _logger.warning("One task of the cluster reads %s", undivided)
    where = settings.dataset or ", ".join(settings.places)
    with context.reporter.stage("find held-out text"):
        next(corpus.batches("heldout"))  # fails early if no document is held out
        check_kinds(corpus)
        if settings.source_field is not None or settings.kind_field is not None:
            next(documents_by_origin(corpus, "heldout"))  # fails early if the records do not have this field
    heldout = (
        ", ".join(map(shown, settings.heldout_paths)) or f"{settings.heldout_fraction:g} of the documents, by hash"
    )
    return Text(corpus, digest(corpus.identity()), [("corpus", where), ("held out", heldout)], None)


def _check_size(corpus: Corpus, budget: BudgetConfig | None) -> None:
    """Raise a UserError if the files are empty, or too small for the budget, before any of them is read."""
    sizes = corpus.sizes()
    if sizes and not any(sizes):
        raise UserError(f"the corpus is empty: every file of {listed(corpus.config.places)} has 0 bytes")
    # Text is at most as long as its file, unless that is compressed.
    if sizes and budget is not None and all(is_plain(path, form) for path, form in corpus.files):
        budget.check_epochs(sum(sizes))


def _undivided(corpus: Corpus) -> str:
    """Text that is a part of the corpus of more than four times the usual size, and how to divide it."""
    if corpus.config.dataset:
        return f"all of dataset={corpus.config.dataset}: write it to files of a few hundred megabytes"
    if corpus.config.max_bytes is not None:
        return "all text, since corpus.max_bytes depends on its order: use corpus.sample"
    large = [(size, file) for (file, _), size in zip(corpus.files, corpus.sizes(), strict=True) if size > _LARGE]
    if not large:
        return ""
    size, file = max(large, key=lambda each: each[0])
    files = f"{counted(len(large), 'large file')}, such as {file} of {si(size)}B"
    return f"each of {files}: use files of a few hundred megabytes"


def _embedded(context: Context, settings: CorpusSource) -> Text:
    """Return the embedded corpus, written to files."""
    artifact = context.make(
        "corpus",
        CorpusFiles,
        "corpus",
        config={
            **embedded.IDENTITY,
            "heldout_fraction": settings.heldout_fraction,
            "max_bytes": settings.max_bytes,
        },
        inputs={},
        build=lambda folder: CorpusFiles.load(
            embedded.write(folder, settings.heldout_fraction, settings.max_bytes, context.reporter.progress)
        ),
        describe=lambda files: _size(files.train),
    )
    corpus = Corpus(
        dataclasses.replace(
            part(CorpusConfig, settings),
            paths=[str(artifact.path / "train.jsonl.zst")],
            heldout_paths=[str(artifact.path / "heldout.jsonl.zst")],
            heldout_fraction=0.0,
            max_bytes=None,
            source_field=settings.source_field or "source",
        )
    )
    packages = ", ".join(f"{name} {version}" for name, version in artifact.contents.packages.items())
    facts = [
        ("corpus", f"embedded: English, code and other languages from {packages}"),
        ("training text", _size(artifact.contents.train)),
        ("held-out text", _size(artifact.contents.heldout)),
    ]
    # The artifact's hash identifies the files; the configuration adds the document filters.
    identity = {"artifact": artifact.hash, "config": corpus.identity()["config"]}
    return Text(corpus, digest(identity), facts, artifact)


def _size(split: Mapping[str, int]) -> str:
    return (
        f"{si(split['bytes'])}B in {counted(split['documents'], 'document')} of {counted(split['sources'], 'source')}"
    )

"""Corpus and counts."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.console import percent, si
from experiments.cluster import connect
from experiments.cluster import parts as on_cluster
from experiments.config import part
from experiments.results import CorpusFiles, CountedSource, Counts, Reading
from experiments.store.artifacts import Artifact
from superbpe.sources import Source
from tokenizer import Batch
from tokenizer._native import DocumentFilter
from tokenizer.corpus import embedded
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.errors import UserError
from tokenizer.files import check_file, digest, shown, weighted
from tokenizer.train.counting import PretokenCounts, count_pretokens, mix_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from experiments.arms import Arm
    from experiments.cluster.tasks import Cluster
    from experiments.config import BpeConfig, BudgetConfig, CorpusSource
    from experiments.results import SplitSize
    from experiments.stages.context import Context
    from tokenizer.patterns import Pattern
    from tokenizer.progress import Progress


COUNTS = "counts.parquet"


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
        """What the held-out documents depend on besides `hash`."""
        sample = self.corpus.config.heldout_sample
        return {} if sample == 1 else {"heldout_sample": sample}


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


def prepare(context: Context, *, trains: bool = False) -> Text:
    """Return the corpus; write the embedded corpus to files first.

    Args:
        context: Context of the run.
        trains: Whether models are trained on it, so that the budget must suit its size.
    """
    config = context.config.corpus
    if config.source == "files":
        corpus = Corpus(part(CorpusConfig, config))
        _check_size(context.config.budget, corpus, trains=trains)
        where = config.dataset or ", ".join(config.places)
        with context.reporter.stage("find held-out text"):
            next(corpus.batches("heldout"))  # fails early if no document is held out
            if config.source_field is not None:
                next(documents_by_origin(corpus, "heldout"))  # fails early if the records do not have this field
        heldout = (
            ", ".join(map(shown, config.heldout_paths)) or f"{config.heldout_fraction:g} of the documents, by hash"
        )
        return Text(corpus, digest(corpus.identity()), [("corpus", where), ("held out", heldout)], None)

    def build(folder: Path) -> CorpusFiles:
        written = embedded.write(folder, config.heldout_fraction, config.max_bytes, context.reporter.progress)
        return CorpusFiles.load(written)

    chosen = {
        **embedded.identity(),
        "heldout_fraction": config.heldout_fraction,
        "max_bytes": config.max_bytes,
    }
    with context.reporter.stage("corpus"):
        artifact = context.store.make(CorpusFiles, "corpus", config=chosen, inputs={}, build=build)
    context.done("corpus", artifact, _size(artifact.contents.train))
    return embedded_text(config, artifact)


def _check_size(budget: BudgetConfig, corpus: Corpus, *, trains: bool) -> None:
    """Raise a UserError if the files are empty, or too small for the budget, before any of them is read."""
    sizes = corpus.sizes()
    if sizes and not any(sizes):
        raise UserError(f"the corpus is empty: every file of {corpus.config.places} has 0 bytes")
    # Text is at most as long as its file, unless that is compressed.
    plain = all(str(path).endswith((".txt", ".text", ".jsonl", ".ndjson", ".json")) for path, _ in corpus.files)
    if sizes and plain and trains and budget.train_flops is None:
        budget.check_epochs(budget.train_bytes, min(sum(sizes), corpus.config.max_bytes or sum(sizes)))


def embedded_text(config: CorpusSource, artifact: Artifact[CorpusFiles]) -> Text:
    """Return the embedded corpus that was written to an artifact."""
    files = dataclasses.replace(
        part(CorpusConfig, config),
        paths=[str(artifact.path / "train.jsonl.zst")],
        heldout_paths=[str(artifact.path / "heldout.jsonl.zst")],
        heldout_fraction=0.0,
        max_bytes=None,
        source_field=config.source_field or "source",  # name of the service
    )
    corpus = Corpus(files)
    # The artifact's hash identifies the files; the configuration adds the document filters.
    chosen = {"artifact": artifact.hash, "config": corpus.identity()["config"]}
    return Text(corpus, digest(chosen), _embedded_facts(artifact.contents), artifact)


def count(context: Context, text: Text, arm: Arm, stage: str = "count") -> Artifact[Counts]:
    """Count the pretokens of the training text, or add up the counts that `bpe.counts` names.

    Args:
        context: Context of the run.
        text: The corpus.
        arm: The arm whose pattern, unit and special tokens are used.
        stage: Name of the stage as shown to the user.
    """
    config, pattern = context.config, arm.phase1_pattern
    cluster = connect(config.runner)
    mixture = [_counts_file(entry) for entry in arm.bpe.counts]

    def build(folder: Path) -> Counts:
        if mixture:
            counts = mix_counts([(PretokenCounts.load(path), weight) for path, weight in mixture])
            _check_counts(counts, pattern, arm.bpe)
            counted = [("", counts, 1)]
        else:
            memory = config.runner.memory_mb
            settings: dict[str, Any] = {
                "pattern": pattern,
                "unit": arm.bpe.unit,
                "special_tokens": arm.bpe.special_tokens,
                "threads": config.runner.threads,
                "memory_bytes": None if memory is None else memory * 1_000_000,
            }
            counted = [
                (name, _count(corpus, settings, folder, cluster, context.reporter.progress), weight)
                for name, corpus, weight in text.corpus.by_source()
            ]
            named = text.corpus.config.sources
            counts = mix_counts([(one, weight) for _, one, weight in counted]) if named else counted[0][1]
        counts.save(folder / COUNTS)
        # The files of a mixture do not say which corpus they were counted on.
        read = Reading(mixture=[str(path) for path, _ in mixture]) if mixture else _training_split(text)
        return Counts(
            **vars(read),
            n_distinct=counts.n_distinct,
            n_pretokens=sum(one.n_total for _, one, _ in counted),
            n_bytes=sum(one.n_bytes for _, one, _ in counted),
            n_documents=sum(one.n_documents for _, one, _ in counted),
            sources={
                name: CountedSource(weight, one.n_documents, one.n_bytes, one.n_total)
                for name, one, weight in counted
                if name
            },
            skipped={} if mixture else text.corpus.skipped.summary(),
        )

    chosen: dict[str, Any] = {
        "pattern": pattern.regex,
        "unit": arm.bpe.unit,
        "special_tokens": arm.bpe.special_tokens,
    }
    inputs = {"corpus": text.hash}
    if mixture:
        chosen["mixture"] = [[hashlib.sha256(path.read_bytes()).hexdigest(), weight] for path, weight in mixture]
        inputs = {}
        context.reporter.say(
            "phase 1 trains on bpe.counts: these counts may include held-out text, which is not checked", style="yellow"
        )
    with context.reporter.stage(stage):
        artifact = context.store.make(
            Counts, "count", config=chosen, inputs=inputs, build=build, resumable=cluster is not None
        )
    found = artifact.contents
    what = (
        f"{si(found.n_distinct)} distinct pretokens of {si(found.n_pretokens)}, "
        f"{si(found.n_bytes)}B in {si(found.n_documents)} documents"
    )
    if found.sources:
        each = (f"{name} {si(of.n_bytes)}B ×{of.weight}" for name, of in found.sources.items())
        what += f" ({', '.join(each)})"
    if found.skipped:
        what += f"; {found.skipped['count']:,} damaged records or rests of files skipped"
    context.done(stage, artifact, what)
    return artifact


def _count(
    corpus: Corpus, settings: dict[str, Any], folder: Path, cluster: Cluster | None, progress: Progress
) -> PretokenCounts:
    if cluster is None:
        return count_pretokens(corpus, **settings, spill_folder=folder, progress=progress)
    with cluster.results(folder / "parts") as results:
        return on_cluster.count(cluster, corpus, results, settings | {"threads": cluster.threads}, progress)


def _training_split(text: Text) -> Reading:
    return Reading(corpus=text.hash, split="train")


def _check_counts(counts: PretokenCounts, pattern: Pattern, bpe: BpeConfig) -> None:
    """Raise a UserError that names the fix if counts were made with other settings than this run's."""
    name = counts.pattern.name
    for found, asked, setting in (
        (counts.pattern.regex, pattern.regex, f"pattern={name}" + (" pattern.regex=…" if name == "custom" else "")),
        (counts.unit, bpe.unit, f"bpe.unit={counts.unit}"),
        (counts.special_tokens, tuple(bpe.special_tokens), f"bpe.special_tokens=[{','.join(counts.special_tokens)}]"),
    ):
        if found != asked:
            raise UserError(
                f"bpe.counts were counted with {setting.partition('=')[0]} {found!r}, but this run has {asked!r}; add "
                f"{setting}, or count again"
            )


def _counts_file(entry: str) -> tuple[Path, int]:
    """Split FILE or FILE:WEIGHT of `bpe.counts`. A folder means the counts file in it."""
    name, weight = weighted(entry, "bpe.counts")
    path = Path(name)
    if path.is_dir():
        path /= COUNTS
    try:
        check_file(path)
    except FileNotFoundError:
        raise UserError(
            f"bpe.counts names {name!r}, which does not exist; `superbpe pipeline --until count` counts a corpus and "
            f"prints the name of the folder (in artifacts/) that contains the counts as {COUNTS}"
        ) from None
    return path, weight


def phase2_sources(text: Text, arm: Arm) -> Mixture:
    """Return the text of an arm's phase 2: the corpus, or the files of `superbpe.sources`.

    Raises:
        UserError: If a path does not exist, or is a file of held-out text.
    """
    named = [weighted(entry, "superbpe.sources") for entry in arm.superbpe.sources]
    if not named:
        found = text.corpus.by_source()
        sources = [
            Source(one, weight, f"corpus.sources.{name}" if name else "the corpus") for name, one, weight in found
        ]
        return Mixture(sources, text.hash, _training_split(text), [one for _, one, _ in found])
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
    for each in heldout:
        for batch in each.batches("heldout"):
            keep.exclude(batch)
    for batch in part.batches("train"):
        yield keep.apply(batch)[0]


def _embedded_facts(contents: CorpusFiles) -> list[tuple[str, str]]:
    name = f"{contents.package} {contents.version}".strip()
    facts = [("corpus", f"embedded: the documentation texts of {name}")]
    if contents.fallback:
        facts.append(("note", "a small fallback; `pip install 'superbpe-framework[demo]'` installs the full corpus"))
    facts += [("training text", _size(contents.train)), ("held-out text", _size(contents.heldout))]
    shared = contents.overlap
    overlap = (
        f"{percent(shared.shared_sentences)} of the held-out sentences ({percent(shared.shared_sentence_bytes)} of "
        "their bytes) also occur somewhere in the training text"
    )
    facts.append(("remaining overlap", overlap))
    return facts


def _size(split: SplitSize) -> str:
    return f"{si(split.bytes)}B in {split.documents:,} documents of {split.groups} services"

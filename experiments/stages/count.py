"""Counts of pretokens: the input of phase 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.cluster import parts as on_cluster
from experiments.numbers import si
from experiments.results import Counts
from tokenizer.corpus.parallel import parallel_documents
from tokenizer.train.balanced import Balanced
from tokenizer.train.counting import PretokenCounts, count_pretokens, mix_counts

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.arms import Arm
    from experiments.config import BpeConfig
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus

COUNTS = "counts.parquet"
SOURCE, PARALLEL = "source-{}.parquet", "parallel-{}.parquet"
"""Counts of each source, for balance."""


def count(context: Context, text: Text, arm: Arm, name: str = "count") -> Artifact[Counts]:
    """Count the pretokens of the training text.

    Args:
        context: Context of the run.
        text: The corpus.
        arm: The arm whose pattern, unit and special tokens are used.
        name: Name of the stage as shown to the user.
    """
    runner, cluster, pattern = context.runner, context.cluster, arm.pattern
    settings: dict[str, Any] = {
        "pattern": pattern,
        "unit": arm.bpe.unit,
        "special_tokens": arm.bpe.special_tokens,
        "threads": runner.threads,
        "memory_bytes": None if runner.memory_mb is None else runner.memory_mb * 1_000_000,
    }

    def pretokens(corpus: Corpus, folder: Path) -> PretokenCounts:
        progress = context.reporter.progress
        if cluster is None:
            return count_pretokens(corpus, **settings, spill_folder=folder, progress=progress)
        with cluster.results(folder / "parts") as results:
            return on_cluster.count(cluster, corpus, results, settings | {"threads": cluster.threads}, progress)

    def build(folder: Path) -> Counts:
        sources = [(source, pretokens(corpus, folder), weight) for source, corpus, weight in text.corpus.by_source()]
        named = text.corpus.config.sources
        counts = mix_counts([(of_source, weight) for _, of_source, weight in sources]) if named else sources[0][1]
        counts.save(folder / COUNTS)
        if arm.bpe.separate_counts:
            for place, (_, of_source, _) in enumerate(sources):
                of_source.save(folder / SOURCE.format(place))
        if arm.bpe.parallel is not None:
            translations = parallel_documents(text.corpus, arm.bpe.parallel, "train")
            for place, documents in enumerate(translations.values()):
                texts = (translation for _, translation in documents)
                count_pretokens(texts, **settings, spill_folder=folder).save(folder / PARALLEL.format(place))
        return Counts(
            corpus=text.hash,
            split="train",
            n_distinct=counts.n_distinct,
            n_pretokens=sum(of_source.n_total for _, of_source, _ in sources),
            n_bytes=sum(of_source.n_bytes for _, of_source, _ in sources),
            n_documents=sum(of_source.n_documents for _, of_source, _ in sources),
            sources={
                source: {
                    "weight": weight,
                    "n_documents": of_source.n_documents,
                    "n_bytes": of_source.n_bytes,
                    "n_pretokens": of_source.n_total,
                }
                for source, of_source, weight in sources
                if source
            },
            skipped=text.corpus.skipped.summary(),
        )

    config: dict[str, Any] = {"unit": arm.bpe.unit, "special_tokens": arm.bpe.special_tokens, "pattern": pattern.regex}
    if arm.bpe.separate_counts:
        config["separate"] = arm.bpe.separate_counts
    return context.make(
        name,
        Counts,
        "count",
        config=config,
        inputs={"corpus": text.hash},
        build=build,
        describe=_describe,
        resumable=cluster is not None,
    )


def counted(counts: Artifact[Counts], bpe: BpeConfig) -> PretokenCounts | Balanced:
    """Input of phase 1: the counts of all text, or of the sources that are balanced."""
    if not bpe.separate_counts:
        return PretokenCounts.load(counts.path / COUNTS)

    def of_sources(file: str) -> dict[str, PretokenCounts]:
        names = enumerate(counts.contents.sources)
        return {name: PretokenCounts.load(counts.path / file.format(place)) for place, name in names}

    parallel = None if bpe.parallel is None else of_sources(PARALLEL)
    return Balanced(sources=of_sources(SOURCE), parallel=parallel, ratios=bpe.ratios or None)


def _describe(counts: Counts) -> str:
    what = (
        f"{si(counts.n_distinct)} distinct pretokens of {si(counts.n_pretokens)}, "
        f"{si(counts.n_bytes)}B in {si(counts.n_documents)} documents"
    )
    if counts.sources:
        parts = (f"{name} {si(source['n_bytes'])}B ×{source['weight']}" for name, source in counts.sources.items())
        what += f" ({', '.join(parts)})"
    if counts.skipped:
        what += f"; {counts.skipped['count']:,} damaged records or rests of files skipped"
    return what

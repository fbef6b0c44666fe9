"""Counts of pretokens: the input of phase 1."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.console import si
from experiments.cluster import connect
from experiments.cluster import parts as on_cluster
from experiments.results import CountedSource, Counts, Reading
from tokenizer.errors import UserError
from tokenizer.files import check_file, weighted
from tokenizer.train.counting import PretokenCounts, count_pretokens, mix_counts

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.cluster.tasks import Cluster
    from experiments.config import BpeConfig
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.patterns import Pattern
    from tokenizer.progress import Progress

COUNTS = "counts.parquet"


def count(context: Context, text: Text, arm: Arm, name: str = "count") -> Artifact[Counts]:
    """Count the pretokens of the training text, or add up the counts that `bpe.counts` names.

    Args:
        context: Context of the run.
        text: The corpus.
        arm: The arm whose pattern, unit and special tokens are used.
        name: Name of the stage as shown to the user.

    Raises:
        UserError: If a file of counts does not exist, or was counted with other settings.
    """
    runner, pattern = context.runner, arm.pattern
    cluster = connect(runner)
    mixture = [_counts_file(entry) for entry in arm.bpe.counts]
    settings: dict[str, Any] = {
        "pattern": pattern,
        "unit": arm.bpe.unit,
        "special_tokens": arm.bpe.special_tokens,
        "threads": runner.threads,
        "memory_bytes": None if runner.memory_mb is None else runner.memory_mb * 1_000_000,
    }

    def build(folder: Path) -> Counts:
        if mixture:
            counts = mix_counts([(PretokenCounts.load(path), weight) for path, weight in mixture])
            _check_counts(counts, pattern, arm.bpe)
            counted = [("", counts, 1)]
        else:
            counted = [
                (source, _count(corpus, settings, folder, cluster, context.reporter.progress), weight)
                for source, corpus, weight in text.corpus.by_source()
            ]
            named = text.corpus.config.sources
            counts = mix_counts([(one, weight) for _, one, weight in counted]) if named else counted[0][1]
        counts.save(folder / COUNTS)
        # The files of a mixture do not say which corpus they were counted on.
        read = Reading(mixture=[str(path) for path, _ in mixture]) if mixture else text.training_split
        return Counts(
            **vars(read),
            n_distinct=counts.n_distinct,
            n_pretokens=sum(one.n_total for _, one, _ in counted),
            n_bytes=sum(one.n_bytes for _, one, _ in counted),
            n_documents=sum(one.n_documents for _, one, _ in counted),
            sources={
                source: CountedSource(weight, one.n_documents, one.n_bytes, one.n_total)
                for source, one, weight in counted
                if source
            },
            skipped={} if mixture else text.corpus.skipped.summary(),
        )

    chosen: dict[str, Any] = {name: settings[name] for name in ("unit", "special_tokens")} | {"pattern": pattern.regex}
    if mixture:
        chosen["mixture"] = [[hashlib.sha256(path.read_bytes()).hexdigest(), weight] for path, weight in mixture]
        context.reporter.say(
            "phase 1 trains on bpe.counts: these counts may include held-out text, which is not checked", style="yellow"
        )
    return context.make(
        name,
        Counts,
        "count",
        config=chosen,
        inputs={} if mixture else {"corpus": text.hash},
        build=build,
        describe=_describe,
        resumable=cluster is not None,
    )


def _describe(counts: Counts) -> str:
    what = (
        f"{si(counts.n_distinct)} distinct pretokens of {si(counts.n_pretokens)}, "
        f"{si(counts.n_bytes)}B in {si(counts.n_documents)} documents"
    )
    if counts.sources:
        parts = (f"{name} {si(source.n_bytes)}B ×{source.weight}" for name, source in counts.sources.items())
        what += f" ({', '.join(parts)})"
    if counts.skipped:
        what += f"; {counts.skipped['count']:,} damaged records or rests of files skipped"
    return what


def _count(
    corpus: Corpus, settings: dict[str, Any], folder: Path, cluster: Cluster | None, progress: Progress
) -> PretokenCounts:
    if cluster is None:
        return count_pretokens(corpus, **settings, spill_folder=folder, progress=progress)
    with cluster.results(folder / "parts") as results:
        return on_cluster.count(cluster, corpus, results, settings | {"threads": cluster.threads}, progress)


def _check_counts(counts: PretokenCounts, pattern: Pattern, bpe: BpeConfig) -> None:
    """Raise a UserError that names the fix if counts were made with other settings than this run's."""
    name = counts.pattern.regex if counts.pattern.name == "custom" else counts.pattern.name
    for counted, asked, setting in (
        (counts.pattern.regex, pattern.regex, f"pattern={name}"),
        (counts.unit, bpe.unit, f"bpe.unit={counts.unit}"),
        (counts.special_tokens, tuple(bpe.special_tokens), f"bpe.special_tokens=[{','.join(counts.special_tokens)}]"),
    ):
        if counted != asked:
            raise UserError(
                f"bpe.counts were counted with {setting.partition('=')[0]} {counted!r}, but this run has {asked!r}; "
                f"add {setting}, or count again"
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

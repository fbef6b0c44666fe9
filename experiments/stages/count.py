"""The first pass over the text: counts of pretokens, the input of phase 1, and a copy of the held-out documents."""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from experiments.cluster import parts as on_cluster
from experiments.cluster.tasks import TASKS, folder_of_tasks
from experiments.numbers import si
from experiments.results import Counts
from experiments.stages import heldout
from experiments.store.artifacts import Wanted
from lm.data.sharding import map_parts
from lm.data.survey import Survey, survey
from tokenizer.corpus.parallel import parallel_documents
from tokenizer.corpus.seen import about
from tokenizer.errors import UserError
from tokenizer.files import digest, temporary_folder
from tokenizer.progress import Throttle, thread_count
from tokenizer.train.balanced import Balanced
from tokenizer.train.counting import BATCH_BYTES, Cut, PretokenCounts, count_pretokens, counting, mix_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from experiments.arms import Arm
    from experiments.cluster.tasks import Beat, Blocks
    from experiments.config import BpeConfig
    from experiments.results import Contents, HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.train.counting import Counters

COUNTS = "counts.parquet"
SOURCE, PARALLEL = "source-{}.parquet", "parallel-{}.parquet"
"""Counts of each source, for balance."""
_HELD = "documents"


class Passed(NamedTuple):
    """Results of the first pass over the text.

    Attributes:
        counts: Counts of each arm, by its name.
        documents: The held-out documents, if they were asked for.
    """

    counts: Mapping[str, Artifact[Counts]]
    documents: Artifact[HeldoutDocuments] | None


def first_pass(
    context: Context,
    text: Text,
    arms: Sequence[Arm],
    *,
    documents: bool,
    check: Callable[[Artifact[HeldoutDocuments]], object] = lambda _: None,
) -> Passed:
    """Count the pretokens of the training text for all arms, and copy the held-out documents, in one pass.

    Args:
        context: Context of the run.
        text: The corpus.
        arms: The arms that are trained, whose patterns, units and special tokens are used.
        documents: Whether held-out documents are wanted.
        check: Called with them, as soon as they are known.

    Raises:
        UserError: If the records do not have the field that `corpus.source_field` names.
    """
    key_of = {arm.name: digest(_identity(arm)) for arm in arms}
    first = {key_of[arm.name]: arm for arm in reversed(arms)}
    counts = {key: Wanted(Counts, "count", _identity(arm), {"corpus": text.hash}) for key, arm in first.items()}
    held = {_HELD: heldout.wanted(text)} if documents else {}
    made: dict[str, Artifact[Any]] = {}
    for wanted in (held, counts) if text.corpus.config.heldout_paths else (counts | held,):
        if not wanted:
            continue
        with context.reporter.stage(" and ".join(dict.fromkeys(one.stage for one in wanted.values()))):
            build = partial(_build, context, text, first)
            made |= context.store.make_all(wanted, build, resumable=context.cluster is not None)
        if _HELD in wanted:
            heldout.show(context, made[_HELD])
            check(made[_HELD])
    for arm in arms:
        if first[key_of[arm.name]] is arm:
            artifact = made[key_of[arm.name]]
            context.done("count" if arm is arms[0] else f"count {arm.name}", artifact, _describe(artifact.contents))
    return Passed({name: made[key] for name, key in key_of.items()}, made.get(_HELD))


def _identity(arm: Arm) -> dict[str, Any]:
    """Settings of an arm that change its counts."""
    config = {"unit": arm.bpe.unit, "special_tokens": list(arm.bpe.special_tokens), "pattern": arm.pattern.regex}
    return {**config, "separate": arm.bpe.separate_counts} if arm.bpe.separate_counts else config


def _build(context: Context, text: Text, arms: Mapping[str, Arm], folders: Mapping[str, Path]) -> dict[str, Contents]:
    """Read the text once for all of these folders."""
    counted = {key: arms[key] for key in folders if key != _HELD}
    cuts = [_cut(arm) for arm in counted.values()]
    sources = text.corpus.by_source() if cuts else [("", text.corpus, 1)]
    made: dict[str, Contents] = {}
    with heldout.copying(folders.get(_HELD)) as copy:
        folder = folder_of_tasks(folders.values())
        counts_of = [_read(context, corpus, name, cuts, copy, folder) for name, corpus, _ in sources]
    for place, (key, arm) in enumerate(counted.items()):
        parts = [(name, counts[place], weight) for (name, _, weight), counts in zip(sources, counts_of, strict=True)]
        made[key] = _save(context, text, arm, parts, folders[key])
    if copy is not None:
        made[_HELD] = copy.save(text)
    return made


def _cut(arm: Arm) -> Cut:
    return Cut.of(arm.pattern, arm.bpe.unit, arm.bpe.special_tokens)


def _settings(context: Context, folder: Path) -> dict[str, Any]:
    """Arguments of `counting` on this machine."""
    memory = context.runner.memory_mb
    memory_bytes = None if memory is None else memory * 1_000_000
    return {"threads": thread_count(context.runner.threads), "memory_bytes": memory_bytes, "spill_folder": folder}


def _read(
    context: Context, corpus: Corpus, name: str, cuts: Sequence[Cut], copy: heldout.Copy | None, folder: Path
) -> list[PretokenCounts]:
    """Read a source once; returns its counts for each cut."""
    settings, cluster, progress = _settings(context, folder), context.cluster, context.reporter.progress
    split: Split = "train" if cuts else "heldout"
    if cluster is not None:
        settings |= {"threads": cluster.threads, "spill_folder": None}
        work = partial(_task, name, cuts, settings, copy is not None)
        key = digest([name, copy is not None, [(cut.pattern.regex, *cut[1:]) for cut in cuts]])
        with cluster.results(folder / TASKS) as results:
            what = "count" if cuts else "survey"
            found = list(cluster.map_parts(what, work, corpus, split, results, progress, key=key))
            if copy is not None:
                for result in found:
                    facts = next(result.blocks())
                    copy.add(BytesIO(facts.pop("text")), Survey(**result.value["names"], **facts))
            counts = on_cluster.add_counts(cluster, found, results, progress) if cuts else []
    else:
        with counting(cuts, **settings) as counters, temporary_folder(folder) as texts:

            def read_part(part: Corpus, n: int, done: Callable[[int], None]) -> dict[str, Any]:
                path = texts / digest(part.part_identity())
                with path.open("wb") as file:
                    value, facts = _read_part(part, name, counters, None if copy is None else file, n, done)
                return {**value, "facts": facts, "path": path}

            tick = Throttle(progress, "bytes counted" if cuts else "bytes of held-out text")
            for value in map_parts(read_part, corpus, split, settings["threads"], tick):
                if copy is not None:
                    with value["path"].open("rb") as file:
                        copy.add(file, value["facts"])
            counts = counters.finish()
    for one in counts:
        if not one.n_bytes:
            raise UserError("the corpus is empty; name files that contain text")
        assert one.read is not None
        one.read["texts"] = [about(corpus)]  # a part does not know all places
    return counts


def _read_part(
    part: Corpus, name: str, counters: Counters, copy: BinaryIO | None, threads: int, done: Callable[[int], None]
) -> tuple[dict[str, Any], Survey | None]:
    """Count the training documents of a part, and write its held-out documents as JSON lines.

    Returns:
        `n_bytes` and `skipped` for `Corpus.check_parts`, and the facts about the held-out documents.
    """
    n_bytes, facts = 0, None

    def add(batch: Batch) -> None:
        nonlocal n_bytes
        counters.add(batch, record=True)
        n_bytes += batch.n_bytes
        done(n_bytes)

    if copy is None:
        for batch in part.batches("train", readers=(threads + 1) // 2, in_order=False, batch_bytes=BATCH_BYTES):
            add(batch)
    else:
        facts = survey(
            part,
            "heldout",
            take=lambda document: copy.write(json.dumps({"text": document}, ensure_ascii=False).encode() + b"\n"),
            done=(lambda _: None) if counters.cuts else done,
            name=name,
            train=add if counters.cuts else None,
        )
        if not counters.cuts:
            n_bytes = int(facts.n_bytes.sum())
    return {"n_bytes": n_bytes, "skipped": part.skipped.so_far()}, facts


def _task(
    name: str, cuts: Sequence[Cut], settings: Mapping[str, Any], copied: bool, part: Corpus, beat: Beat
) -> Blocks:
    copy = BytesIO() if copied else None
    with counting(cuts, **settings) as counters:
        value, facts = _read_part(part, name, counters, copy, settings["threads"], beat)
        if copy is not None:
            columns = vars(facts)
            value["names"] = {name: names for name, names in columns.items() if isinstance(names, list)}
            arrays = {name: column for name, column in columns.items() if name not in value["names"]}
            yield {"text": np.frombuffer(copy.getvalue(), np.uint8), **arrays}
        values = yield from on_cluster.save_counts(counters.finish())
    return {**value, **values}


def _save(
    context: Context, text: Text, arm: Arm, sources: Sequence[tuple[str, PretokenCounts, int]], folder: Path
) -> Counts:
    """Write the counts of an arm. `sources` has the name, the counts and the weight of each source."""
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
            parallel = count_pretokens(texts, **_cut(arm)._asdict(), **_settings(context, folder))
            parallel.save(folder / PARALLEL.format(place))
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

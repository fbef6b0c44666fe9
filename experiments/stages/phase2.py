"""Phase 2: superwords on top of an arm's phase-1 merges."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cluster.parts import ClusterSources
from experiments.cluster.tasks import TASKS
from experiments.config import part
from experiments.results import TrainedTokenizer
from experiments.stages.phase1 import MERGE_COUNTS
from experiments.stages.tokenizers import ArmTokenizer, keep, load, usable
from superbpe.inspection.history import merge_log
from superbpe.rules import Rules
from superbpe.training import train_superbpe
from superbpe.transition import AUTO
from tokenizer.corpus.seen import KEY
from tokenizer.corpus.sources import Source, sources_of
from tokenizer.errors import UserError
from tokenizer.files import digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.arms import Arm
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.phase1 import MergeList
    from tokenizer.tokenizer import Tokenizer

MERGE_LOG = "merges.parquet"


def train(context: Context, arm: Arm, text: Text, phase1: MergeList) -> ArmTokenizer:
    """Train an arm's superwords on top of its phase-1 merges up to the transition.

    The training record contains the log of all merges (`superbpe.inspection.history.merge_log`).
    """
    transition, prefix = start_of(arm, phase1.tokenizer)
    rules = part(Rules, arm.superbpe)
    memory, cluster = context.runner.memory_mb, context.cluster
    sources = sources_of(text.corpus)

    def build(folder: Path) -> TrainedTokenizer:
        if cluster is None:
            return build_from(folder, sources)
        size = cluster.part_bytes
        parts = [
            [dataclasses.replace(source, batches=part)]
            for source in sources
            for part in source.batches.parts("train", size)
        ]
        with cluster.results(folder / TASKS) as results:
            return build_from(folder, ClusterSources(cluster, parts, digest([text.hash, size]), results))

    def build_from(folder: Path, texts: ClusterSources | Sequence[Source]) -> TrainedTokenizer:
        counts: list[Any] = []
        tokenizer = train_superbpe(
            prefix,
            texts,
            vocab_size=arm.vocab_size,
            transition=transition,
            rules=rules,
            tie_break=arm.bpe.tie_break,
            threads=context.runner.threads,
            memory_bytes=None if memory is None else memory * 1_000_000,
            progress=context.reporter.progress,
            on_counts=counts.append,
        )
        if isinstance(texts, ClusterSources):  # which read the text of phase 1
            tokenizer.provenance[KEY] = prefix.provenance.get(KEY)
        import pyarrow.parquet as pq

        log = merge_log(tokenizer, counts=[np.load(phase1.record.path / MERGE_COUNTS), *counts])
        pq.write_table(log, folder / MERGE_LOG, compression="zstd")
        return TrainedTokenizer(
            corpus=text.hash,
            split="train",
            tokenizer=keep(context, tokenizer, inputs).name,
            sha256=tokenizer.sha256,
            vocab_size=tokenizer.vocab_size,
        )

    inputs = {"phase1": prefix.sha256, "corpus": text.hash}
    identity: dict[str, Any] = {
        "config": {
            "rules": dataclasses.asdict(rules),
            "tie_break": arm.bpe.tie_break,
            "vocab_size": arm.vocab_size,
            "transition": transition,
        },
        "inputs": inputs,
    }
    with context.reporter.stage(arm.name):
        name, _ = context.store.identify("superbpe", **identity)
        with context.store.lock(name):
            usable(context, name)
        record = context.store.make(
            TrainedTokenizer, "superbpe", **identity, build=build, resumable=cluster is not None
        )
        tokenizer, artifact = load(context, record)
    superwords = len(tokenizer.superword_ids())
    what = f"{artifact.name}, vocabulary {tokenizer.vocab_size:,}, {superwords:,} superwords"
    context.done(arm.name, record, what)
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact, record, phase1.counts)


def start_of(arm: Arm, whole: Tokenizer) -> tuple[int | str, Tokenizer]:
    """Return the transition and the tokenizer with the phase-1 merges before it."""
    specials = len(arm.bpe.special_tokens)
    size = arm.transition_size
    if arm.competing:
        size = min(size, whole.vocab_size - specials)
    if whole.vocab_size < size + specials:
        raise UserError(
            f"the corpus has only enough pairs for a phase-1 vocabulary of {whole.vocab_size - specials}, below "
            f"the transition at {size}; lower superbpe.transition or bpe.vocab_size, or use more text"
        )
    return (AUTO if arm.competing else size), whole.cut(size + specials)

"""Phase 2: superwords on top of an arm's phase-1 merges."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from experiments.cli.console import si
from experiments.cluster import connect
from experiments.cluster.parts import ClusterSources
from experiments.config import part
from experiments.results import Phase2Training, TrainedTokenizer
from experiments.stages.tokenizers import ArmTokenizer, keep, load, points, say_if_short, trained
from superbpe.inspection.history import merge_log
from superbpe.rules import Rules
from superbpe.training import train_superbpe
from superbpe.transition import AUTO
from tokenizer.errors import UserError
from tokenizer.files import digest, free_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.arms import Arm
    from experiments.cluster.tasks import Cluster
    from experiments.stages.context import Context
    from experiments.stages.corpus import Mixture
    from experiments.stages.phase1 import MergeList
    from superbpe.sources import Source
    from tokenizer.tokenizer import Tokenizer

MERGE_LOG = "merges.parquet"
_PASS_SHARE = 0.4
"""Bytes that a pass over parts writes for each byte of stored text; measured for English."""


def train(context: Context, arm: Arm, mixture: Mixture, phase1: MergeList) -> ArmTokenizer:
    """Train an arm's superwords on top of its phase-1 merges up to the transition.

    The training record contains the log of all merges (`superbpe.inspection.history.merge_log`).
    """
    transition, prefix = _prefix(arm, phase1.tokenizer)
    rules = part(Rules, arm.superbpe)
    memory = context.runner.memory_mb

    cluster = connect(context.runner)

    def build(folder: Path) -> TrainedTokenizer:
        if cluster is None:
            return build_from(folder, mixture.sources)
        with cluster.results(folder / "parts") as results:
            return build_from(folder, sources_in(cluster, results))

    def sources_in(cluster: Cluster, folder: Path) -> ClusterSources:
        parts = mixture.parts(cluster.part_bytes)
        n_bytes, free = _PASS_SHARE * sum(mixture.sizes()), free_bytes(folder)
        context.reporter.say(f"each pass writes about {si(n_bytes)}B to {folder} ({si(free)}B free)")
        return ClusterSources(cluster, parts, digest([mixture.hash, cluster.part_bytes]), folder)

    def build_from(folder: Path, text: ClusterSources | list[Source]) -> TrainedTokenizer:
        counts: list[Any] = []
        tokenizer = train_superbpe(
            prefix,
            text,
            vocab_size=arm.vocab_size,
            transition=transition,
            rules=rules,
            tie_break=arm.bpe.tie_break,
            threads=context.runner.threads,
            memory_bytes=None if memory is None else memory * 1_000_000,
            progress=context.reporter.progress,
            on_counts=counts.append,
        )
        log = merge_log(tokenizer, counts=[phase1.merge_counts, *counts])
        pq.write_table(log, folder / MERGE_LOG, compression="zstd")
        return trained(
            keep(context, tokenizer, inputs),
            tokenizer,
            mixture.read,
            training=Phase2Training.load(tokenizer.provenance["phase2"]),
        )

    inputs = {"phase1": prefix.sha256, "corpus": mixture.hash}
    chosen = {
        "rules": dataclasses.asdict(rules),
        "tie_break": arm.bpe.tie_break,
        "vocab_size": arm.vocab_size,
        "transition": transition,
    }

    def make() -> Any:
        return context.store.make(
            TrainedTokenizer,
            "superbpe",
            config=chosen,
            inputs=inputs,
            build=build,
            resumable=cluster is not None,
        )

    with context.reporter.stage(arm.name):
        record = make()
        if not record.fresh and not points(context, record):  # the tokenizer was deleted
            with context.store.lock(record.name):
                if context.store.exists(record.name):
                    context.store.remove(record.name)
            record = make()
        tokenizer, artifact = load(context, record)
    say_if_short(context, record, tokenizer, arm.vocab_size)
    superwords = len(tokenizer.superword_ids())
    what = f"{artifact.name}, vocabulary {tokenizer.vocab_size:,}, {superwords:,} superwords"
    context.done(arm.name, record, what)
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact, record, phase1.counts)


def _prefix(arm: Arm, whole: Tokenizer) -> tuple[int | str, Tokenizer]:
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

"""Phase 1: lists of BPE merges, shared between arms where possible and cut to each arm's size."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.results import TrainedTokenizer
from experiments.stages.count import counted
from experiments.stages.tokenizers import ArmTokenizer, keep, load, usable
from tokenizer.durable import write_whole
from tokenizer.files import digest
from tokenizer.train.bpe import train_bpe, warn_of_memory
from tokenizer.train.counting import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from experiments.arms import Arm
    from experiments.results import Counts
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact
    from tokenizer.tokenizer import Tokenizer

MERGE_COUNTS = "merge_counts.npy"


class Family(NamedTuple):
    """Arms that share one list of phase-1 merges, because their rules are equal, and the counts it is trained on."""

    counts: Artifact[Counts]
    arms: list[Arm]


class MergeList(NamedTuple):
    """A tokenizer with all phase-1 merges that a family needs, its training record, and its counts."""

    tokenizer: Tokenizer
    record: Artifact[TrainedTokenizer]
    counts: Artifact[Counts]


def families(arms: Sequence[Arm], counts: Mapping[str, Artifact[Counts]]) -> list[Family]:
    """Group arms by the counts and rules that determine their merges; `counts` are by the name of the arm."""
    groups: dict[str, Family] = {}
    for arm in arms:
        of_arm = counts[arm.name]
        groups.setdefault(digest([of_arm.hash, rules_of(arm)]), Family(of_arm, [])).arms.append(arm)
    return list(groups.values())


def train(context: Context, family: Family, stage: str) -> MergeList:
    """Train the merges of a family, or reuse a list that is long enough.

    A shorter list of BPE merges is a prefix of a longer one, so the size is not part of the key: the folder is
    `bpe-<12 hex>-<vocabulary size>`.
    """
    rules = rules_of(family.arms[0])
    inputs = {"counts": family.counts.hash}
    name, identity = context.store.identify("bpe", rules, inputs)
    wanted = max(arm.phase1_size for arm in family.arms)
    merging = {key: value for key, value in rules.items() if key not in ("parallel", "ratios")}

    def build(folder: Path) -> TrainedTokenizer:
        counts_of_merges: list[npt.NDArray[np.uint64]] = []
        counts, limit = counted(family.counts, family.arms[0].bpe), context.runner.memory_mb
        if limit is not None and isinstance(counts, PretokenCounts):
            warn_of_memory(counts, limit * 1_000_000, family.arms[0].bpe.min_pretoken_count)
        tokenizer = train_bpe(
            counts,
            wanted,
            **merging,
            progress=context.reporter.progress,
            on_counts=counts_of_merges.append,
        )
        content = io.BytesIO()  # np.save to a file does not report a full disk
        np.save(content, counts_of_merges[0])
        write_whole(folder / MERGE_COUNTS, content.getvalue())
        return TrainedTokenizer(
            corpus=family.counts.contents.corpus,
            split=family.counts.contents.split,
            tokenizer=keep(context, tokenizer, inputs).name,
            sha256=tokenizer.sha256,
            vocab_size=tokenizer.vocab_size,
            exhausted=tokenizer.vocab_size < wanted,
        )

    with context.reporter.stage(stage), context.store.lock(name):
        record = _long_enough(context, name, wanted)
        if record is None:
            sized = f"{name}-{wanted}"
            key = digest([identity["hash"], wanted])
            record = context.store.make(
                TrainedTokenizer, "bpe", config=rules, inputs=inputs, build=build, name=sized, key=key
            )
        else:
            context.store.use(record)
        tokenizer, artifact = load(context, record)
    context.done(stage, record, f"{artifact.name}, {len(tokenizer.merges):,} merges")
    return MergeList(tokenizer, record, family.counts)


def cut(context: Context, arm: Arm, whole: MergeList) -> ArmTokenizer:
    """Return the tokenizer of an arm that has no phase 2."""
    tokenizer = whole.tokenizer
    if tokenizer.vocab_size > arm.vocab_size:
        tokenizer = tokenizer.cut(arm.vocab_size)
    artifact = keep(context, tokenizer, {"counts": whole.counts.hash})
    # Phase 1 has saved the whole list under this name too.
    shown = replace(artifact, fresh=artifact.fresh or whole.record.fresh)
    context.done(arm.name, shown, f"vocabulary {tokenizer.vocab_size:,}")
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact, whole.record, whole.counts)


def rules_of(arm: Arm) -> dict[str, Any]:
    """Settings of an arm that determine its merges: arguments of `train_bpe`, and what balances sources."""
    return {
        "special_tokens": arm.bpe.special_tokens,
        "tie_break": arm.bpe.tie_break,
        "min_count": arm.bpe.min_count,
        "max_token_bytes": arm.bpe.max_token_bytes,
        **arm.bpe.wanted,
    }


def _long_enough(context: Context, family: str, needed: int) -> Artifact[TrainedTokenizer] | None:
    """Return the shortest merge list of a family that has at least `needed` tokens, or all that its text has."""
    records = [usable(context, name) for name in context.store.names(f"{family}-")]
    enough = [
        record for record in records if record and (record.contents.vocab_size >= needed or record.contents.exhausted)
    ]
    return min(enough, key=lambda record: record.contents.vocab_size, default=None)

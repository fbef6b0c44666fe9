"""Phase 1: lists of BPE merges, shared between arms where possible and cut to each arm's size."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.results import TrainedTokenizer
from experiments.stages.tokenizers import ArmTokenizer, keep, load, points, say_if_short, trained
from experiments.store.manifest import FORMAT
from tokenizer.durable import write_whole
from tokenizer.files import digest
from tokenizer.train.bpe import train_bpe
from tokenizer.train.counting import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from experiments.arms import Arm
    from experiments.results import Counts
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact
    from tokenizer.tokenizer import Tokenizer

MERGE_COUNTS = "merge_counts.npy"


@dataclass(frozen=True)
class Family:
    """Arms that share one list of phase-1 merges: same counts, same rules.

    Attributes:
        counts: The counts that the list is trained on.
        arms: The arms.
    """

    counts: Artifact[Counts]
    arms: list[Arm]

    @property
    def rules(self) -> dict[str, Any]:
        """Settings that determine the merges."""
        return _rules(self.arms[0])

    @property
    def size(self) -> int:
        """The largest vocabulary that an arm needs."""
        return max(arm.phase1_size for arm in self.arms)


@dataclass(frozen=True)
class MergeList:
    """A list of phase-1 merges that is long enough for every arm of its family.

    Attributes:
        tokenizer: The tokenizer with all of the merges.
        merge_counts: uint64 [n_merges], count of each pair when it was merged.
        record: Training record.
        counts: The counts that it was trained on.
    """

    tokenizer: Tokenizer
    merge_counts: npt.NDArray[np.uint64]
    record: Artifact[TrainedTokenizer]
    counts: Artifact[Counts]


def families(arms: Sequence[Arm], counts: Sequence[Artifact[Counts]]) -> list[Family]:
    """Group arms by the counts and rules that determine their merges."""
    found: dict[str, Family] = {}
    for arm, counted in zip(arms, counts, strict=True):
        found.setdefault(digest([counted.hash, _rules(arm)]), Family(counted, [])).arms.append(arm)
    return list(found.values())


def train(context: Context, family: Family, stage: str) -> MergeList:
    """Train the merges of a family, or reuse a list that is long enough.

    A shorter list of BPE merges is a prefix of a longer one, so the size is not part of the key: the folder is
    `bpe-<12 hex>-<vocabulary size>`.

    Args:
        context: Context of the run.
        family: The arms that share the list.
        stage: Name of the stage as shown to the user.
    """
    rules, inputs = family.rules, {"counts": family.counts.hash}
    identity = {"stage": "bpe", "config": rules, "inputs": inputs, "format": FORMAT}
    name = f"bpe-{digest(identity)[:12]}"

    def build(folder: Path) -> TrainedTokenizer:
        start = None if shorter is None else load(context, shorter)[0]
        merged = [] if shorter is None else [np.load(shorter.path / MERGE_COUNTS)]
        tokenizer = train_bpe(
            PretokenCounts.load(family.counts.path / "counts.parquet"),
            wanted,
            start=start,
            **rules,
            progress=context.reporter.progress,
            on_counts=merged.append,
        )
        content = io.BytesIO()  # np.save to a file does not report a full disk
        np.save(content, np.concatenate(merged))
        write_whole(folder / MERGE_COUNTS, content.getvalue())
        kept = keep(context, tokenizer, inputs)
        return trained(kept, tokenizer, family.counts.contents, exhausted=tokenizer.vocab_size < wanted)

    with context.reporter.stage(stage), context.store.lock(name):
        record, shorter = _lists(context, name, family.size)
        if record is None:
            wanted = family.size
            sized = {**identity, "hash": digest({**identity, "vocab_size": wanted})}
            record = context.store.write(TrainedTokenizer, f"{name}-{wanted}", sized, build)
        else:
            context.store.on_use(record)
        tokenizer, artifact = load(context, record)
    context.done(stage, record, f"{artifact.name}, {len(tokenizer.merges):,} merges")
    return MergeList(tokenizer, np.load(record.path / MERGE_COUNTS), record, family.counts)


def cut(context: Context, arm: Arm, merges: MergeList) -> ArmTokenizer:
    """Return the tokenizer of an arm that has no phase 2."""
    whole = merges.tokenizer
    tokenizer = whole.cut(arm.vocab_size) if whole.vocab_size > arm.vocab_size else whole
    artifact = keep(context, tokenizer, {"counts": merges.counts.hash})
    say_if_short(context, merges.record, tokenizer, arm.vocab_size)
    # Phase 1 has saved the whole list under this name too.
    made = replace(artifact, fresh=artifact.fresh or merges.record.fresh)
    context.done(arm.name, made, f"{artifact.name}, vocabulary {tokenizer.vocab_size:,}")
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact, merges.record, merges.counts)


def _rules(arm: Arm) -> dict[str, Any]:
    """Settings of an arm that determine its merges, as arguments of `train_bpe`."""
    return {
        "special_tokens": arm.bpe.special_tokens,
        "tie_break": arm.bpe.tie_break,
        "min_count": arm.bpe.min_count,
        "max_token_bytes": arm.bpe.max_token_bytes,
    }


def _lists(
    context: Context, family: str, needed: int
) -> tuple[Artifact[TrainedTokenizer] | None, Artifact[TrainedTokenizer] | None]:
    """Return the shortest merge list of a family that is long enough, and the longest that is too short, if any."""
    serve, shorter = [], []
    for name in context.store.names(f"{family}-"):
        record = context.store.find(name, TrainedTokenizer)
        if record is None:
            continue
        if not points(context, record):
            context.store.remove(name)
        elif record.contents.vocab_size >= needed or record.contents.exhausted:
            serve.append(record)
        else:
            shorter.append(record)

    def size(record: Artifact[TrainedTokenizer]) -> int:
        return record.contents.vocab_size

    return min(serve, key=size, default=None), max(shorter, key=size, default=None)

"""Phase 1 and phase 2.

Tokenizers live in folders named by their content; small records say which training led to which.
"""

from __future__ import annotations

import dataclasses
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from experiments.cli.console import superword_summary, training_summary
from experiments.config import part, transition_key, transition_size, vocab_sizes
from experiments.store.artifacts import FORMAT, Artifact
from superbpe.inspection.history import merge_log, training_statistics
from superbpe.rules import Rules
from superbpe.training import train_superbpe
from superbpe.transition import AUTO
from tokenizer.durable import digest, write_whole
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.bpe import train_bpe
from tokenizer.train.counting import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from experiments.stages.context import Context
    from experiments.stages.text import Mixture


MERGE_COUNTS = "merge_counts.npy"
MERGE_LOG = "merges.parquet"


@dataclass(frozen=True)
class Trained:
    """A tokenizer of an experiment.

    Attributes:
        key: `bpe` or `superbpe`.
        label: The same for people.
        tokenizer: It.
        artifact: Its folder, named by its content.
        record: The training that led to it: inputs, rules, cost, and which split of which corpus it read.
    """

    key: str
    label: str
    tokenizer: Tokenizer
    artifact: Artifact
    record: Artifact


class MergeList(NamedTuple):
    """The longest list of phase-1 merges at hand, for phase 2 to cut, and the count at which each was made."""

    tokenizer: Tokenizer
    counts: npt.NDArray[np.uint64]


def phase1(context: Context, counts: Artifact) -> tuple[Trained, MergeList]:
    """Train BPE, or cut a longer list of merges that is there already.

    BPE merges nest, so the list is keyed without its size: the folder is `bpe-<12 hex>-<vocabulary size>`.

    Returns:
        The tokenizer of the configured size, and the list of merges that it was cut from.
    """
    config = context.config.bpe
    chosen = {
        "special_tokens": config.special_tokens,
        "tie_break": config.tie_break,
        "min_count": config.min_count,
        "max_token_bytes": config.max_token_bytes,
    }
    inputs = {"counts": counts.hash}
    identity = {"stage": "bpe", "config": chosen, "inputs": inputs, "format": FORMAT}
    family = f"bpe-{digest(identity)[:12]}"
    needed = max(config.vocab_size, transition_size(context.config) + len(config.special_tokens))

    def build(folder: Path) -> dict[str, Any]:
        start = None if shorter is None else load(shorter, context)
        merged = [] if shorter is None else [np.load(shorter.path / MERGE_COUNTS)]
        tokenizer = train_bpe(
            PretokenCounts.load(counts.path / "counts.parquet"),
            wanted,
            start=start,
            special_tokens=config.special_tokens,
            tie_break=config.tie_break,
            min_count=config.min_count,
            max_token_bytes=config.max_token_bytes,
            # By what it starts from: a shorter list may be there when an interrupted training goes on.
            checkpoint=folder / f"merges-{'none' if start is None else start.name}.npz",
            progress=context.reporter.progress,
            on_counts=merged.append,
        )
        content = io.BytesIO()  # given a file, NumPy loses what a full disk cannot take
        np.save(content, np.concatenate(merged))
        write_whole(folder / MERGE_COUNTS, content.getvalue())
        found = _keep(context, tokenizer, inputs)
        # All checkpoints: of sittings that started from another list too, or were killed while writing.
        for checkpoint in [*folder.glob("merges-*"), *folder.glob(".merges-*")]:
            checkpoint.unlink()
        read: dict[str, Any] = {
            key: counts.contents[key] for key in ("corpus", "split", "mixture") if key in counts.contents
        }
        return {**_about(found, tokenizer), **read, "exhausted": tokenizer.vocab_size < wanted}

    with context.reporter.stage("bpe"), context.store.lock(family):
        record, shorter = _lists(context, family, needed)
        if record is None:
            wanted = max(needed, config.train_size or 0)
            sized = {**identity, "hash": digest({**identity, "vocab_size": wanted})}
            record = context.store.write(f"{family}-{wanted}", sized, build, resumable=True)
        whole = load(record, context)
        tokenizer = whole.cut(config.vocab_size) if whole.vocab_size > config.vocab_size else whole
        artifact = _keep(context, tokenizer, inputs)
    _say_if_short(context, record, tokenizer, config.vocab_size)
    context.done("bpe", record, f"{artifact.name}, vocabulary {tokenizer.vocab_size:,}")
    if record.fresh:
        context.reporter.say(f"  {training_summary(whole)}", style="dim")
    merge_list = MergeList(whole, np.load(record.path / MERGE_COUNTS))
    return Trained("bpe", "BPE", tokenizer, artifact, record), merge_list


def phase2(context: Context, mixture: Mixture, phase1: MergeList) -> Trained:
    """Train the superword tokenizer on the phase-1 merges up to the transition.

    Its record holds the log of all merges (`superbpe.inspection.history.merge_log`).
    """
    config, whole = context.config, phase1.tokenizer
    transition, (_, vocab_size) = transition_size(config), vocab_sizes(config)
    specials = len(config.bpe.special_tokens)
    competing = config.superbpe.transition == AUTO
    if competing:
        transition = min(transition, whole.vocab_size - specials)
    if whole.vocab_size < transition + specials:
        raise UserError(
            f"the corpus has only enough pairs for a phase-1 vocabulary of {whole.vocab_size - specials}, below "
            f"the transition at {transition}; lower {transition_key(config)} or bpe.vocab_size, or use more text"
        )
    prefix = whole.cut(transition + specials)
    rules = part(Rules, config.superbpe)

    def build(folder: Path) -> dict[str, Any]:
        counts: list[Any] = []
        tokenizer = train_superbpe(
            prefix,
            mixture.sources,
            vocab_size=vocab_size,
            transition=AUTO if competing else transition,
            rules=rules,
            tie_break=config.bpe.tie_break,
            threads=config.runner.threads,
            memory_bytes=None if config.runner.memory_mb is None else config.runner.memory_mb * 1_000_000,
            progress=context.reporter.progress,
            on_counts=counts.append,
        )
        found = _keep(context, tokenizer, inputs)
        pq.write_table(merge_log(tokenizer, counts=[phase1.counts, *counts]), folder / MERGE_LOG, compression="zstd")
        early = [dataclasses.asdict(row) for row in training_statistics(tokenizer, counts[0])]
        return {
            **_about(found, tokenizer),
            **mixture.read,
            "superwords": len(tokenizer.superword_ids()),
            "training": tokenizer.provenance["phase2"],
            "early": early,
        }

    inputs = {"phase1": prefix.sha256, "corpus": mixture.hash}
    chosen = {
        "rules": dataclasses.asdict(rules),
        "tie_break": config.bpe.tie_break,
        "vocab_size": vocab_size,
        "transition": AUTO if competing else transition,
    }
    with context.reporter.stage("superbpe"):
        record = _record(context, "superbpe", chosen, inputs, build)
        tokenizer = load(record, context)
    artifact = _tokenizer(context, record)
    context.store.use(artifact)
    what = f"{artifact.name}, vocabulary {tokenizer.vocab_size:,}, {record.contents['superwords']:,} superwords"
    _say_if_short(context, record, tokenizer, vocab_size)
    context.done("superbpe", record, what)
    if record.fresh:
        for line in superword_summary(record.contents["training"], record.contents["early"]):
            context.reporter.say(f"  {line}", style="dim")
    return Trained("superbpe", "SuperBPE", tokenizer, artifact, record)


def _say_if_short(context: Context, record: Artifact, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Repeat training's warning where its result is reused."""
    if tokenizer.vocab_size < vocab_size and not record.fresh:
        context.reporter.say(
            f"warning: the corpus had pairs for {tokenizer.vocab_size} tokens only, not {vocab_size}", style="yellow"
        )


def load(record: Artifact, context: Context) -> Tokenizer:
    """Load the tokenizer that a record points to.

    Raises:
        UserError: If its folder was tampered with.
    """
    artifact = _tokenizer(context, record)
    tokenizer = Tokenizer.load(artifact.path)
    if tokenizer.sha256 != record.contents["sha256"]:
        raise UserError(
            f"{artifact.folder} does not hold the tokenizer that its name says; delete that folder and run the same "
            "command again"
        )
    return tokenizer


def _tokenizer(context: Context, record: Artifact) -> Artifact:
    """Return the tokenizer that a record of training points to."""
    artifact = context.store.find(record.contents["tokenizer"])
    if artifact is None:
        raise UserError(f"{context.store.root / record.contents['tokenizer']} was deleted; run the same command again")
    return artifact


def _record(context: Context, stage: str, config: Mapping[str, Any], inputs: Mapping[str, str], build: Any) -> Artifact:
    """Make the record of a training, anew if the tokenizer that it points to was deleted."""
    record = context.store.make(stage, config=config, inputs=inputs, build=build)
    if not record.fresh and not _points(context, record):
        with context.store.lock(record.name):
            if (context.store.root / record.name).exists():
                context.store.remove(record.name)
        record = context.store.make(stage, config=config, inputs=inputs, build=build)
    return record


def _points(context: Context, record: Artifact) -> bool:
    return (context.store.root / str(record.contents["tokenizer"])).is_dir()


def _lists(context: Context, family: str, needed: int) -> tuple[Artifact | None, Artifact | None]:
    """Return the shortest merge list of a family that serves, if any, and the longest one that does not."""
    serve, shorter = [], []
    for name in context.store.names(f"{family}-"):
        record = context.store.find(name)
        if record is None:
            continue
        if not _points(context, record):
            context.store.remove(name)
        elif record.contents["vocab_size"] >= needed or record.contents["exhausted"]:
            serve.append(record)
        else:
            shorter.append(record)

    def size(record: Artifact) -> int:
        return int(record.contents["vocab_size"])

    return min(serve, key=size, default=None), max(shorter, key=size, default=None)


def _keep(context: Context, tokenizer: Tokenizer, inputs: Mapping[str, str]) -> Artifact:
    def build(folder: Path) -> dict[str, Any]:
        tokenizer.save(folder)
        return {"vocab_size": tokenizer.vocab_size, "mode": tokenizer.mode, "sha256": tokenizer.sha256}

    identity = {"stage": "tokenizer", "inputs": dict(inputs), "format": FORMAT, "hash": tokenizer.sha256}
    return context.store.write(f"tokenizer-{tokenizer.sha256[:12]}", identity, build)


def _about(artifact: Artifact, tokenizer: Tokenizer) -> dict[str, Any]:
    return {"tokenizer": artifact.name, "sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size}

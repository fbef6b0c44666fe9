"""Shards: one split of the corpus, encoded by the tokenizer of one arm."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from experiments.cli.console import si
from experiments.cluster import connect
from experiments.cluster.parts import encoded_by
from experiments.results import ShardsFolder
from lm.data.sharding import ShardConfig, reading_threads, write_encoded, write_shards
from lm.data.shards import FORMAT_VERSION, Shards
from tokenizer.durable import remove_folder

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.interface import TokenizerLike

_SHARDS = "shards"


class Encoded(NamedTuple):
    """The tokenizer of an arm with the text that it encoded.

    Attributes:
        arm: The tokenizer.
        training: Shards of the training text.
        heldout: Shards of the held-out text.
    """

    arm: ArmTokenizer
    training: Artifact[ShardsFolder]
    heldout: Artifact[ShardsFolder]

    def open_training(self) -> Shards:
        """Memory-map the shards of the training text."""
        return open_shards(self.training, self.arm)


def encode(
    context: Context,
    settings: ShardConfig,
    text: Text,
    arm: ArmTokenizer,
    split: Literal["train", "heldout"],
    n_bytes: int | None = None,
) -> Artifact[ShardsFolder]:
    """Encode one split of the corpus; an interrupted run resumes after the last finished shard.

    Args:
        context: Context of the run.
        settings: Size of the shards.
        text: The corpus.
        arm: The tokenizer.
        split: The split.
        n_bytes: Size of the split, if known, for the estimate of the remaining time.
    """

    def build(folder: Path) -> ShardsFolder:
        manifest = _write(context, text.corpus, arm.tokenizer, split, folder, settings, n_bytes)
        return ShardsFolder.load({**manifest, "corpus": text.hash, "split": split})

    config, inputs = _identity(settings, text, arm, split)
    return context.make(
        f"shards {arm.key}",
        ShardsFolder,
        "shards",
        config=config,
        inputs=inputs,
        build=build,
        describe=lambda shards: (
            f"{split}: {si(shards.n_tokens)} tokens of {si(shards.n_bytes)}B, {shards.bytes_per_token:.3f} bytes per "
            "token"
        ),
        row=lambda shards: {f"{split}_bytes_per_token": shards.bytes_per_token},
        resumable=True,
    )


def exist(context: Context, settings: ShardConfig, text: Text, arm: ArmTokenizer) -> bool:
    """Return whether the training shards of an arm are finished."""
    name, _ = context.store.identify("shards", *_identity(settings, text, arm, "train"))
    return context.store.exists(name)


def open_shards(artifact: Artifact[ShardsFolder], arm: ArmTokenizer) -> Shards:
    """Memory-map the shards of an artifact; raise an error if another tokenizer wrote them."""
    return Shards.open(artifact.path / _SHARDS, arm.tokenizer, verify="never")  # `path` has verified them


def _identity(
    settings: ShardConfig, text: Text, arm: ArmTokenizer, split: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Identity of shards: settings, and the hashes of the inputs."""
    usual = dataclasses.asdict(ShardConfig())
    # Only non-default settings enter the identity, so that existing shards keep their names when a setting is added.
    changed = {key: value for key, value in dataclasses.asdict(settings).items() if value != usual[key]}
    if split == "heldout":
        changed |= text.heldout_identity()
    config = {"split": split, "version": FORMAT_VERSION, **changed}
    return config, {"tokenizer": arm.tokenizer.sha256, "corpus": text.hash}


def _write(
    context: Context,
    corpus: Corpus,
    tokenizer: TokenizerLike,
    split: Literal["train", "heldout"],
    folder: Path,
    settings: ShardConfig,
    n_bytes: int | None,
) -> dict[str, Any]:
    """Encode a split on this machine or on a cluster."""
    target, threads, progress = folder / _SHARDS, context.runner.threads, context.reporter.progress
    remove_folder(target, ignore_errors=True)  # of a killed run
    skipped = corpus.skipped.summary
    cluster = connect(context.runner)
    if cluster is None:
        batches = corpus.batches(split, readers=reading_threads(threads))
        return write_shards(
            target, tokenizer, batches, settings, threads=threads, progress=progress, n_bytes=n_bytes, skipped=skipped
        )
    with cluster.results(folder / "parts") as parts:
        source = encoded_by(cluster, corpus, split, tokenizer, parts)
        return write_encoded(target, tokenizer, source, settings, progress=progress, n_bytes=n_bytes, skipped=skipped)

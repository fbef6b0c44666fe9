"""Shards: one split of the corpus, encoded by the tokenizer of one arm."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.cluster.parts import encoded_by
from experiments.numbers import si
from experiments.results import ShardsFolder
from experiments.stages.tokenizers import ArmTokenizer
from lm.data.sharding import ShardConfig, reading_threads, write_encoded, write_shards
from lm.data.shards import FORMAT_VERSION, Shards
from tokenizer.durable import remove_folder
from tokenizer.files import check_free

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.results import Counts
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact

_SHARDS = "shards"


@dataclass(frozen=True, kw_only=True)
class EncodedArm(ArmTokenizer):
    """The tokenizer of an arm with the text that it encoded.

    Attributes:
        training: Shards of the training text; None if the models were trained elsewhere.
        heldout: Shards of the held-out text.
    """

    training: Artifact[ShardsFolder] | None
    heldout: Artifact[ShardsFolder]

    @classmethod
    def of(
        cls, arm: ArmTokenizer, training: Artifact[ShardsFolder] | None, heldout: Artifact[ShardsFolder]
    ) -> EncodedArm:
        """Add the encoded text to a tokenizer."""
        return cls(**vars(arm), training=training, heldout=heldout)

    @property
    def trained_on(self) -> Artifact[ShardsFolder]:
        """Shards of the training text of models that are trained here."""
        assert self.training is not None, "models from elsewhere are only scored"
        return self.training

    def open_training(self) -> Shards:
        """Memory-map the shards of the training text."""
        return open_shards(self.trained_on, self)


def encode(
    context: Context,
    settings: ShardConfig,
    text: Text,
    arm: ArmTokenizer,
    split: Literal["train", "heldout"],
    counts: Counts | None = None,
    heldout: ShardsFolder | None = None,
) -> Artifact[ShardsFolder]:
    """Encode one split of the corpus.

    Args:
        context: Context of the run.
        settings: Size of the shards.
        text: The corpus.
        arm: The tokenizer.
        split: The split.
        counts: Counts of the training text, if known, for the estimate of the remaining time.
        heldout: Held-out shards of the arm, whose bytes per token give the space that the training shards need.

    Raises:
        UserError: If the disk has too little free space.
    """
    cluster, corpus = context.cluster, text.corpus

    def build(folder: Path) -> ShardsFolder:
        target, threads = folder / _SHARDS, context.runner.threads
        remove_folder(target)  # of a run that was killed before its manifest was written
        if counts is not None and heldout is not None:
            _check_space(context, folder, counts, heldout)
        options: dict[str, Any] = {
            "progress": context.reporter.progress,
            "n_bytes": None if counts is None else counts.n_bytes,
            "skipped": corpus.skipped.summary,
        }
        if cluster is None:
            batches = corpus.batches(split, readers=reading_threads(threads))
            manifest = write_shards(target, arm.tokenizer, batches, settings, threads=threads, **options)
        else:
            with cluster.results(folder / "parts") as parts:
                source = encoded_by(cluster, corpus, split, arm.tokenizer, parts)
                manifest = write_encoded(target, arm.tokenizer, source, settings, **options)
        return ShardsFolder.load({**manifest, "corpus": text.hash, "split": split})

    # Only non-default settings enter the identity, so that existing shards keep their names when a setting is added.
    default = dataclasses.asdict(ShardConfig())
    changed = {key: value for key, value in dataclasses.asdict(settings).items() if value != default[key]}
    if split == "heldout":
        changed |= text.heldout_identity()
    return context.make(
        f"shards {arm.key}",
        ShardsFolder,
        "shards",
        config={"split": split, "version": FORMAT_VERSION, **changed},
        inputs={"tokenizer": arm.tokenizer.sha256, "corpus": text.hash},
        build=build,
        describe=lambda shards: f"{split}: {si(shards.n_tokens)} tokens of {shards.bytes_per_token:.3f} bytes",
        row=lambda shards: {f"{split}_bytes_per_token": shards.bytes_per_token},
        resumable=True,
    )


def _check_space(context: Context, folder: Path, counts: Counts, heldout: ShardsFolder) -> None:
    """Raise a UserError if the disk has no space for the rest of an arm's training shards."""
    n_tokens = counts.n_bytes / heldout.bytes_per_token + counts.n_documents
    copies = 1 if context.runner.name == "local" else 2  # the parts that a cluster encodes are second copies
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed = round(copies * n_tokens * np.dtype(heldout.dtype).itemsize) - written
    remedy = "free some space, set artifacts to a folder on a larger disk, or use less text (corpus.sample)"
    check_free(context.store.root, needed, "training shards", remedy)


def open_shards(artifact: Artifact[ShardsFolder], arm: ArmTokenizer) -> Shards:
    """Memory-map the shards of an artifact; raise an error if another tokenizer wrote them."""
    return Shards.open(artifact.path / _SHARDS, arm.tokenizer, verify="never")  # `path` has verified them

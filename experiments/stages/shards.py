"""Shards: one split of the corpus, encoded by the tokenizers of the arms."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from experiments.cluster.parts import write_shards
from experiments.cluster.tasks import TASKS, folder_of_tasks
from experiments.numbers import si
from experiments.results import ShardsFolder
from experiments.stages import contamination
from experiments.stages.heldout import reread
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Wanted
from lm.data.sharding import ShardConfig, join_parts, map_parts, write_part
from lm.data.shards import FORMAT_VERSION, Shards
from tokenizer.corpus.corpus import PART_BYTES
from tokenizer.corpus.overlap import Overlap, Search
from tokenizer.durable import remove_at_once
from tokenizer.files import check_free, digest
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.results import Contamination, Contents, Counts, HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.interface import TokenizerLike

_SHARDS = "shards"
_OVERLAP = ""
"""Key of the overlap, which no arm can have as its name."""


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
    arms: Mapping[str, ArmTokenizer],
    documents: Artifact[HeldoutDocuments],
    heldout_of: Mapping[str, Artifact[ShardsFolder]] | None = None,
    counts: Counts | None = None,
    ngram_words: int | None = None,
) -> tuple[dict[str, Artifact[ShardsFolder]], Artifact[Contamination] | None]:
    """Encode the held-out or the training documents with all tokenizers that have not encoded them, in one pass.

    The same pass looks for the held-out documents in the training documents.

    Args:
        context: Context of the run.
        settings: Size of the shards.
        text: The corpus.
        arms: The tokenizers by name.
        documents: The held-out documents.
        heldout_of: The held-out shards of each arm, whose bytes per token give the space that training shards need;
            None to encode the held-out documents themselves.
        counts: Counts of the training text, if known, for the space and for the estimate of the remaining time.
        ngram_words: Words of the n-grams to look for (`eval.contamination`); None or 0 for no search.

    Returns:
        The shards by name, and the overlap.

    Raises:
        UserError: If the disk has too little free space.
    """
    split: Literal["train", "heldout"] = "heldout" if heldout_of is None else "train"
    # Only non-default settings enter the identity, so that existing shards keep their names when a setting is added.
    default = dataclasses.asdict(ShardConfig())
    changed = {key: value for key, value in dataclasses.asdict(settings).items() if value != default[key]}
    if split == "heldout":
        changed |= text.heldout_identity()
    config = {"split": split, "version": FORMAT_VERSION, **changed}
    wanted = {
        name: Wanted(ShardsFolder, _SHARDS, config, {"tokenizer": arm.tokenizer.sha256, "corpus": text.hash})
        for name, arm in arms.items()
    }
    if ngram_words:
        wanted[_OVERLAP] = contamination.wanted(text, ngram_words)

    def build(folders: Mapping[str, Path]) -> dict[str, Contents]:
        encoding = {name: folder for name, folder in folders.items() if name != _OVERLAP}
        targets = {folder / _SHARDS: arms[name].tokenizer for name, folder in encoding.items()}
        search = Search(reread(documents), ngram_words) if ngram_words and _OVERLAP in folders else None
        if heldout_of is not None and counts is not None:
            _check_space(context, {folder: heldout_of[name].contents for name, folder in encoding.items()}, counts)
        corpus = reread(documents) if heldout_of is None else text.corpus
        made: dict[str, Contents] = {}
        cluster, results = context.cluster, folder_of_tasks(folders.values()) / TASKS
        with nullcontext(results) if cluster is None else cluster.results(results) as results:
            overlap = _read(context, corpus, split, settings, targets, search, results, counts)
            skipped = documents.contents.skipped if heldout_of is None else corpus.skipped.summary()
            for name, (target, tokenizer) in zip(encoding, targets.items(), strict=True):
                manifest = join_parts(target, tokenizer, settings, corpus.parts(split), skipped)
                made[name] = ShardsFolder.load({**manifest, "corpus": text.hash, "split": split})
            if search is not None and overlap is not None:
                made[_OVERLAP] = contamination.save(overlap, search.ngram_words, text, folders[_OVERLAP])
        for target in targets:  # after all are joined, so that a kill in between loses none
            remove_at_once(target.with_name("parts"))
        return made

    with context.reporter.stage(f"shards {', '.join(arm.key for arm in arms.values())}"):
        encoded = context.store.make_all(wanted, build, resumable=True)
    overlap = encoded.pop(_OVERLAP, None)
    if overlap is not None:
        contamination.show(context, overlap)
    for name, arm in arms.items():
        shards = encoded[name].contents
        what = f"{split}: {si(shards.n_tokens)} tokens of {shards.bytes_per_token:.3f} bytes"
        context.done(f"shards {arm.key}", encoded[name], what, {f"{split}_bytes_per_token": shards.bytes_per_token})
    return encoded, overlap


def _read(
    context: Context,
    corpus: Corpus,
    split: Split,
    settings: ShardConfig,
    targets: Mapping[Path, TokenizerLike],
    search: Search | None,
    results: Path,
    counts: Counts | None,
) -> Overlap | None:
    """Read a split once: encode it for all targets, and look for documents in it."""
    cluster, progress, write = context.cluster, context.reporter.progress, partial(write_part, targets, settings, split)
    if cluster is None:
        found = None if search is None else search.opened()
        look = {} if found is None else {"look": lambda batch, _: found.scan(batch, 1)}
        report = Throttle(progress, "shards", None if counts is None else counts.n_bytes)
        values = map_parts(partial(write, **look), corpus, split, thread_count(context.runner.threads), report)
        return None if found is None else Overlap(*found.found(), sum(value["n_bytes"] for value in values))
    key = digest(sorted(map(str, targets)))
    if search is None or search.documents.stored_bytes <= PART_BYTES:
        return write_shards(cluster, write, corpus, split, results, progress, key=key, search=search)
    # Each task reads all documents to look for, so these tasks read at least as much text.
    if targets:
        write_shards(cluster, write, corpus, split, results, progress, key=key)
    only_look, size = partial(write_part, {}, settings, split), search.documents.stored_bytes
    return write_shards(cluster, only_look, corpus, split, results, progress, search=search, part_bytes=size)


def _check_space(context: Context, heldout: Mapping[Path, ShardsFolder], counts: Counts) -> None:
    """Raise a UserError if the disk has no space for the rest of the training shards, which go into these folders."""
    needed = 0
    for folder, shards in heldout.items():
        n_tokens = counts.n_bytes / shards.bytes_per_token + counts.n_documents
        written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        needed += round(n_tokens * np.dtype(shards.dtype).itemsize) - written
    remedy = "free some space, set artifacts to a folder on a larger disk, or use less text (corpus.sample)"
    check_free(context.store.root, needed, "training shards", remedy)


def open_shards(artifact: Artifact[ShardsFolder], arm: ArmTokenizer) -> Shards:
    """Memory-map the shards of an artifact; raise an error if another tokenizer wrote them."""
    return Shards.open(artifact.path / _SHARDS, arm.tokenizer, verify="never")  # `path` has verified them

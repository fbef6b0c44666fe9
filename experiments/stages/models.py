"""Shards and language models of each arm."""

from __future__ import annotations

import dataclasses
import io
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from experiments.cli.console import si
from experiments.cluster import connect
from experiments.cluster.parts import encoded_by
from experiments.results import ShardsFolder, TrainedModel
from lm.data.sharding import ShardConfig, reading_threads, write_encoded, write_shards
from lm.data.shards import FORMAT_VERSION, MANIFEST, Shards
from lm.model import initialization
from lm.model.device import arithmetic, resolve_device
from lm.train.loop import train
from lm.train.summary import SUMMARY
from lm.train.trainer import CHECKPOINT
from tokenizer.durable import remove_folder, write_whole
from tokenizer.errors import UserError
from tokenizer.files import read_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.interface import TokenizerLike

_SHARDS = "shards"
METRICS = "metrics.jsonl"
_TOTALS = ("bytes", "tokens", "steps", "flops", "epochs", "parameters_total", "parameters_non_embedding")


def shard(
    context: Context,
    text: Text,
    arm: ArmTokenizer,
    split: Literal["train", "heldout"],
    n_bytes: int | None = None,
) -> Artifact[ShardsFolder]:
    """Encode one split of the corpus; an interrupted run resumes after the last finished shard.

    Args:
        context: Context of the run.
        text: The corpus.
        arm: The tokenizer.
        split: The split.
        n_bytes: Size of the split, if known, for the estimate of the remaining time.
    """
    layout = context.config.shards

    def build(folder: Path) -> ShardsFolder:
        manifest = _written(folder / _SHARDS, arm)
        if manifest is None:
            manifest = _write(context, text.corpus, arm.tokenizer, split, folder, layout, n_bytes)
        return ShardsFolder.load({**manifest, "corpus": text.hash, "split": split})

    config, inputs = _identity_of_shards(context, text, arm, split)
    stage = f"shards {arm.key}"
    with context.reporter.stage(stage):
        artifact = context.store.make(ShardsFolder, "shards", config=config, inputs=inputs, build=build, resumable=True)
    found = artifact.contents
    density = found.bytes_per_token
    what = f"{split}: {si(found.n_tokens)} tokens of {si(found.n_bytes)}B, {density:.3f} bytes per token"
    context.done(stage, artifact, what, {f"{split}_bytes_per_token": density})
    return artifact


def _identity_of_shards(
    context: Context, text: Text, arm: ArmTokenizer, split: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """What shards depend on: settings, and the hashes of the inputs."""
    usual = dataclasses.asdict(ShardConfig())
    # Only non-default settings enter the identity, so that existing shards keep their names when a setting is added.
    layout = {key: value for key, value in dataclasses.asdict(context.config.shards).items() if value != usual[key]}
    if split == "heldout":
        layout |= text.heldout_identity()
    config = {"split": split, "version": FORMAT_VERSION, **layout}
    return config, {"tokenizer": arm.tokenizer.sha256, "corpus": text.hash}


def shards_exist(context: Context, text: Text, arm: ArmTokenizer) -> bool:
    """Return whether the training shards of an arm are finished."""
    name, _ = context.store.identify("shards", *_identity_of_shards(context, text, arm, "train"))
    return context.store.exists(name)


def _write(
    context: Context,
    corpus: Corpus,
    tokenizer: TokenizerLike,
    split: Literal["train", "heldout"],
    folder: Path,
    layout: ShardConfig,
    n_bytes: int | None,
) -> dict[str, Any]:
    """Encode a split on this machine or on a cluster."""
    target, threads, progress = folder / _SHARDS, context.config.runner.threads, context.reporter.progress
    skipped = corpus.skipped.summary
    cluster = connect(context.config.runner)
    if cluster is None:
        batches = corpus.batches(split, readers=reading_threads(threads))
        return write_shards(
            target, tokenizer, batches, layout, threads=threads, progress=progress, n_bytes=n_bytes, skipped=skipped
        )
    with cluster.results(folder / "parts") as parts:
        source = partial(encoded_by, cluster, corpus, split, tokenizer, parts)
        return write_encoded(target, tokenizer, source, layout, progress=progress, n_bytes=n_bytes, skipped=skipped)


def _written(folder: Path, arm: ArmTokenizer) -> dict[str, Any] | None:
    """Return the manifest of shards that an earlier run finished; remove damaged shards."""
    if not folder.exists():
        return None
    try:
        Shards.open(folder, arm.tokenizer)
        return read_sealed(folder / MANIFEST)
    except UserError:
        remove_folder(folder)
        return None


def open_shards(artifact: Artifact[ShardsFolder], arm: ArmTokenizer) -> Shards:
    """Memory-map the shards of an artifact; raise an error if another tokenizer wrote them."""
    return Shards.open(artifact.path / _SHARDS, arm.tokenizer, verify="never")  # `path` has verified them


class Chain(NamedTuple):
    """The models of one arm and seed: one per rung of the ladder of budgets.

    Attributes:
        context: Context of the seed.
        arm: The tokenizer, under the name of the seed (`experiments.stages.comparison.of_seed`).
        shards: Shards of the training text.
        plans: Training settings of every rung, from `experiments.stages.budget.plan`, shortest first.
    """

    context: Context
    arm: ArmTokenizer
    shards: Artifact[ShardsFolder]
    plans: Sequence[TrainConfig]


def name_of(chain: Chain, number: int) -> str:
    """Name of the model of a rung, which counts from 1."""
    rung = f" rung {number}" if len(chain.plans) > 1 else ""
    return f"{chain.arm.key}{rung}"


def train_lms(
    chain: Chain, on_row: Callable[[str, Mapping[str, Any], int], None] | None = None
) -> list[Artifact[TrainedModel]]:
    """Train the models of a chain; an interrupted run resumes from its checkpoint.

    Rungs whose schedules allow it (`TrainConfig.trunk`) share a trunk: every rung costs only its decay, and the trunk
    as much as the longest run without its decay. This does not change the models.

    Args:
        chain: The models.
        on_row: Called with the name of the run, every row of its training metrics, and the steps of its trunk.
    """
    context, arm, shards, plans = chain
    made: list[Artifact[TrainedModel]] = []
    trunk: Artifact[TrainedModel] | None = None
    for number, config in enumerate(plans, 1):
        name = name_of(chain, number)
        # A model that exists needs no trunk, but an existing trunk is the beginning of the next.
        if (
            len(plans) > 1
            and config.trunk is not None
            and (exists(context, shards, config.trunk, "trunk") or not exists(context, shards, config))
        ):
            trunk = _train(context, arm, shards, config.trunk, f"trunk {name}", trunk, on_row)
        made.append(_train(context, arm, shards, config, f"lm {name}", trunk if config.trunk else None, on_row))
    return made


def identity(context: Context, train_config: TrainConfig) -> dict[str, Any]:
    """Settings that decide a model, apart from its shards."""
    device = resolve_device(train_config.device)
    settings = train_config.fixed() | arithmetic(train_config.precision, train_config.compile, device)
    model = dataclasses.asdict(context.config.lm.model)
    return {"model": model, "train": settings, "initialization": initialization.VERSION}


def exists(context: Context, shards: Artifact[ShardsFolder], train_config: TrainConfig, kind: str = "lm") -> bool:
    """Return whether the model of these settings, or its trunk, is finished."""
    name, _ = context.store.identify(kind, identity(context, train_config), {"shards": shards.hash})
    return context.store.find(name, TrainedModel) is not None


def _train(
    context: Context,
    arm: ArmTokenizer,
    shards: Artifact[ShardsFolder],
    train_config: TrainConfig,
    stage: str,
    trunk: Artifact[TrainedModel] | None,
    on_row: Callable[[str, Mapping[str, Any], int], None] | None,
) -> Artifact[TrainedModel]:
    """Train one model.

    Args:
        context: Context of the run.
        arm: The tokenizer.
        shards: Shards of the training text.
        train_config: Settings of this run.
        stage: `lm` or `trunk`, and a name for this model. A trunk keeps its last checkpoint.
        trunk: The run to start from, if any.
        on_row: Called with the name of the run, every row of its training metrics, and the steps of its trunk.
    """
    model, kind = context.config.lm.model, stage.partition(" ")[0]

    def build(folder: Path) -> TrainedModel:
        if trunk is not None and not ((folder / CHECKPOINT).exists() or (folder / SUMMARY).exists()):
            write_whole(folder / METRICS, (trunk.path / METRICS).read_bytes())
        _drop_half_line(folder / METRICS)
        # Line-buffered: after a kill, the log must contain every step before the checkpoint.
        with io.TextIOWrapper((folder / METRICS).open("ab"), encoding="utf-8", line_buffering=True) as file:

            def log(row: dict[str, Any]) -> None:
                file.write(json.dumps(row, allow_nan=False) + "\n")
                context.reporter.note(f"loss {row['loss']:.3f}")
                if on_row is not None:
                    on_row(stage, row, 0 if trunk is None else trunk.contents.summary.steps)
                context.tracker.log(f"lm/{stage.partition(' ')[2]}", row)

            summary = train(
                model,
                train_config,
                open_shards(shards, arm),
                folder,
                trunk=None if trunk is None else trunk.path,
                keep_checkpoint=kind == "trunk",
                log=log,
                progress=context.reporter.progress,
            )
        return TrainedModel(tokenizer=arm.tokenizer.sha256, summary=summary)

    with context.reporter.stage(stage):
        artifact = context.store.make(
            TrainedModel,
            kind,
            config=identity(context, train_config),
            inputs={"shards": shards.hash},
            build=build,
            resumable=True,
        )
    done(context, stage, artifact)
    return artifact


def done(context: Context, stage: str, artifact: Artifact[TrainedModel]) -> None:
    """Report that a model is trained."""
    found = artifact.contents.summary
    what = (
        f"{si(found.parameters_total)} parameters, {si(found.parameters_non_embedding)} without embeddings; "
        f"{found.steps:,} steps, {si(found.bytes)}B of text in {si(found.tokens)} tokens, "
        f"{si(found.flops)} FLOPs, "
        f"loss {loss_curve(artifact, 20)[-1].bits_per_byte:.3f} bits per byte over the last twentieth"
    )
    context.done(stage, artifact, what, {key: getattr(found, key) for key in _TOTALS})


def _drop_half_line(path: Path) -> None:
    """Truncate an incomplete last line, left by a killed process."""
    if path.exists():
        end = path.read_bytes().rfind(b"\n") + 1
        with path.open("rb+") as file:
            file.truncate(end)


class LossPoint(NamedTuple):
    """A point of a loss curve: bytes read and FLOPs spent so far, and the loss since the previous point."""

    bytes_seen: int
    flops: int
    bits_per_byte: float


def loss_curve(artifact: Artifact[TrainedModel], points: int) -> list[LossPoint]:
    """Return the training loss curve of a model.

    Args:
        artifact: Artifact returned by `train_lms`.
        points: Maximum number of points; the steps between two points are averaged, weighted by their bytes.
    """
    rows: dict[int, dict[str, Any]] = {}
    for line in (artifact.path / METRICS).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows[row["step"]] = row  # a resumed run logs the steps after its checkpoint twice, with the same numbers
    steps = [rows[step] for step in sorted(rows)]
    size = max(1, -(-len(steps) // points))
    curve = []
    before = 0
    for start in range(0, len(steps), size):
        bits = total = 0.0
        for row in steps[start : start + size]:
            weight = row["bytes_seen"] - before
            before = row["bytes_seen"]
            bits, total = bits + weight * row["train_bits_per_byte"], total + weight
        if total:
            curve.append(LossPoint(before, steps[min(start + size, len(steps)) - 1]["flops"], bits / total))
    return curve

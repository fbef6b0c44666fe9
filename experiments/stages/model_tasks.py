"""Language models in tasks of a cluster: those of each arm, depth and seed are trained and scored side by side."""

from __future__ import annotations

import json
import socket
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.cli.console import Reporter
from experiments.cluster import connect
from experiments.cluster.tasks import Task
from experiments.logging.tracking import Tracker
from experiments.results import Folder, HeldoutDocuments, ShardsFolder, TokenizerFolder, TrainedModel
from experiments.stages import evaluation, models
from experiments.stages.context import Context
from experiments.stages.models import Chain
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Store
from lm.evaluate import distributed as distributed_evaluation
from lm.train import distributed, loop
from tokenizer import storage
from tokenizer.errors import UserError
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.cluster.tasks import Cluster
    from experiments.config import Config
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig
    from tokenizer.interface import TokenizerLike

_TASKS = ".tasks"


@dataclass(frozen=True)
class _Job:
    """A chain of models, as it is sent to another machine.

    Attributes:
        config: Configuration of its depth and seed.
        arm: Name of the arm.
        tokenizer: Its tokenizer.
        artifacts: Names of the folder of the tokenizer, the training shards, the held-out shards and the held-out
            documents.
        plans: Training settings of every rung, shortest first.
        depth: Name of the depth, if there are several.
    """

    config: Config
    arm: str
    tokenizer: TokenizerLike
    artifacts: tuple[str, str, str, str]
    plans: list[TrainConfig]
    depth: str


def place(context: Context) -> tuple[Cluster, int] | None:
    """Return the cluster that trains the models and the GPUs of each; None if this process trains them.

    Raises:
        UserError: If no machine has so many GPUs.
    """
    runner = context.config.runner
    if runner.name == "local" or distributed.current().size > 1:
        return None
    cluster = connect(replace(runner, timeout_s=None))
    assert cluster is not None
    most = cluster.gpus()
    gpus = min(most or 0, 1) or None if runner.gpus is None else runner.gpus
    if gpus is None:
        return None
    if most is not None and gpus > most and runner.address is None:
        raise UserError(
            f"runner.gpus={gpus}, but this machine has {most}; set runner.gpus=0 to train models on its cores"
        )
    return cluster, gpus


def train(
    context: Context,
    cluster: Cluster,
    gpus: int,
    chains: Sequence[Chain],
    heldout: Sequence[Artifact[ShardsFolder]],
    documents: Artifact[HeldoutDocuments],
) -> list[list[Artifact[TrainedModel]]]:
    """Train and score the models of all chains; return the models of each. The scores are then in the store.

    A task whose worker dies continues from the last checkpoint, if another worker sees the unfinished folder.

    Args:
        context: Context of the run.
        cluster: Where the tasks run.
        gpus: GPUs of each task.
        chains: The models.
        heldout: Held-out shards of each chain's arm.
        documents: Sources and scripts of the held-out documents.

    Raises:
        UserError: If a task raises one, or does not see the artifacts.
    """
    here = context.store
    runner = replace(context.config.runner, name="local", threads=cluster.threads, gpus=None)
    jobs = []
    for chain, scored in zip(chains, heldout, strict=True):
        config = replace(chain.context.config, runner=runner, artifacts=here.where, logger="none")
        plans = [replace(plan, threads=plan.threads or cluster.threads) for plan in chain.plans]
        names = (chain.arm.artifact.name, chain.shards.name, scored.name, documents.name)
        jobs.append(_Job(config, chain.arm.key, chain.arm.tokenizer, names, plans, chain.depth))
    tasks = [
        Task(f"models-{i:04}", None, partial(_run, job, gpus), job.plans[-1].train_bytes, gpus)
        for i, job in enumerate(jobs)
    ]
    folder = (here.root if context.config.runner.folder is None else Path(context.config.runner.folder)) / _TASKS
    made = []
    with context.reporter.stage(f"models of {len(jobs)} arms and seeds, side by side"):
        tick = Throttle(context.reporter.progress, "bytes of text trained on", sum(task.size for task in tasks))
        for chain, result in zip(chains, cluster.run(tasks, None, folder.resolve(), tick, patient=True), strict=True):
            for used in here.open_all(result.value["used"], Folder):
                here.use(used)
            found = here.open_all(list(result.value["models"]), TrainedModel)
            lms = [replace(one, fresh=fresh) for one, fresh in zip(found, result.value["models"].values(), strict=True)]
            for number, artifact in enumerate(lms, 1):
                _log(chain.context, models.name_of(chain, number), artifact)
            made.append(lms)
    storage.disk.remove_folder(folder)
    return made


def _log(context: Context, name: str, artifact: Artifact[TrainedModel]) -> None:
    """Report a model, and log its training metrics."""
    models.done(context, f"lm {name}", artifact)
    for line in (artifact.path / models.METRICS).read_text(encoding="utf-8").splitlines():
        context.tracker.log(f"lm/{name}", json.loads(line))


def _run(job: _Job, gpus: int, _shared: None, _data: Path) -> dict[str, Any]:
    """Train and score on this machine, with one process per GPU."""
    if gpus <= 1:
        return _train_and_score(job)
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(1, 1, gpus, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
    outcome: dict[str, Any] = elastic_launch(settings, _process)(job)[0]
    if "error" in outcome:
        raise UserError(outcome["error"])
    return outcome


def _process(job: _Job) -> dict[str, Any]:
    """What one of several processes does; returns the result of the first."""
    outcome: dict[str, Any] = {}

    def first() -> int:
        outcome.update(_train_and_score(job))
        return 0

    def join(other: dict[str, Any]) -> None:
        (distributed_evaluation if distributed_evaluation.is_ours(other) else loop).join(other)

    try:
        distributed.launch(first, join)
    except UserError as error:  # raised in every process
        outcome["error"] = str(error)
    return outcome


def _train_and_score(job: _Job) -> dict[str, Any]:
    used: dict[str, None] = {}
    quiet = Reporter(Console(quiet=True), bars=False)
    store = Store.at(
        job.config.artifacts,
        job.config.artifacts_cache,
        job.config.artifacts_cache_gb,
        on_use=lambda artifact: used.setdefault(artifact.name),
        verify=job.config.verify,
    )
    kinds = (TokenizerFolder, ShardsFolder, ShardsFolder, HeldoutDocuments)
    found: list[Any] = [store.find(name, kind) for name, kind in zip(job.artifacts, kinds, strict=True)]
    if None in found:
        raise UserError(
            f"{socket.gethostname()} does not see {store.where}/{job.artifacts[found.index(None)]}; all machines of "
            "the cluster must see the artifacts: set artifacts to a shared folder or a bucket"
        )
    tokenizer, shards, heldout, documents = found
    arm = ArmTokenizer(job.arm, job.arm, job.tokenizer, tokenizer)
    with tempfile.TemporaryDirectory() as folder, Tracker(Path(folder), "none", "", {}) as tracker:
        context = Context(job.config, store, quiet, tracker)
        lms = models.train_lms(Chain(context, arm, shards, job.plans, job.depth))
        for model in lms:
            evaluation.score(context, arm, model, heldout, documents)
    return {"models": {model.name: model.fresh for model in lms}, "used": list(used)}

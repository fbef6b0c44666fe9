"""Language models in tasks of a cluster: the chains of all runs are trained side by side."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rich.console import Console

from experiments.cli.console import Reporter
from experiments.cluster import connect
from experiments.cluster.results import Task
from experiments.cluster.tasks import LostError
from experiments.logging.tracking import Tracker
from experiments.results import Folder, HeldoutDocuments, ShardsFolder, TokenizerFolder, TrainedModel, Tuning
from experiments.runs import Run, chains
from experiments.stages import evaluate, models, tuning
from experiments.stages.context import Context
from experiments.stages.shards import Encoded
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Store
from lm.train import distributed
from tokenizer.errors import UserError
from tokenizer.files import temporary_folder
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from experiments.cluster.results import Beat, Blocks
    from experiments.cluster.tasks import Cluster
    from experiments.config import RunnerConfig
    from experiments.stages.tuning import TuningJob
    from experiments.store.artifacts import Artifact
    from lm.evaluate.config import EvalConfig
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig
    from tokenizer.files import Verify
    from tokenizer.interface import TokenizerLike

    Work = Callable[[Context, Encoded, Artifact[HeldoutDocuments], Beat], dict[str, Any]]
    """Trains models on the shards of an arm. Calls the last argument with the bytes of text that are done."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class _Job:
    """The work of a task.

    Attributes:
        store: Folder of the artifacts, and when they are compared with their checksums.
        runner: How text is processed on the machine of the task.
        arm: Name of the arm.
        tokenizer: Its tokenizer.
        inputs: Names of the artifacts of the tokenizer, of the training and the held-out shards, and of the held-out
            documents.
        work: Trains the models.
    """

    store: tuple[Path, Verify]
    runner: RunnerConfig
    arm: str
    tokenizer: TokenizerLike
    inputs: list[str]
    work: Work


@dataclass(frozen=True)
class ModelTasks:
    """Trains models in tasks of a cluster. A task whose worker dies continues from the last checkpoint.

    Attributes:
        cluster: Where the tasks run.
        gpus: GPUs of each task.
        verify: When artifacts are compared with their checksums.
        documents: Sources and scripts of the held-out documents.
    """

    cluster: Cluster
    gpus: int
    verify: Verify
    documents: Artifact[HeldoutDocuments]

    def train(
        self,
        context: Context,
        arms: Mapping[str, Encoded],
        shapes: Mapping[int, ModelConfig],
        plans: Mapping[Run, TrainConfig],
        scoring: EvalConfig,
    ) -> dict[Run, Artifact[TrainedModel]]:
        """Train and score the models of all runs. The scores are then in the store.

        Args:
            context: Context of the run.
            arms: Tokenizers and shards by name.
            shapes: Shape of the models of each size.
            plans: Training settings of every run.
            scoring: How the models are scored.

        Raises:
            UserError: If a task raises one, or does not see the artifacts.
        """
        groups, work = chains(list(plans)), []
        for chain in groups:
            settings = {run: replace(plans[run], threads=plans[run].threads or self.cluster.threads) for run in chain}
            n_bytes = sum(plan.train_bytes for plan in settings.values())
            train = partial(_train, shapes[chain[0].size], settings, scoring, plans[chain[0]].device)
            work.append((arms[chain[0].arm], train, n_bytes))
        trained: dict[Run, Artifact[TrainedModel]] = {}
        for chain, outcome in zip(groups, self._run(context, "models", work), strict=True):
            names = outcome["models"]
            for run, model in zip(chain, context.store.open_all(list(names), TrainedModel), strict=True):
                trained[run] = replace(model, fresh=names[model.name])
                models.report(context, models.Training(run, plans[run]), trained[run])
                for line in (model.path / models.METRICS).read_text(encoding="utf-8").splitlines():
                    context.tracker.log(f"lm/{run}", json.loads(line))
        return trained

    def tune(self, context: Context, arms: Mapping[str, Encoded], jobs: Sequence[TuningJob]) -> dict[str, Tuning]:
        """Tune the learning rates of all arms (`experiments.stages.tuning.tune_arm`).

        Args:
            context: Context of the run.
            arms: Tokenizers and shards by name.
            jobs: Result of `experiments.stages.tuning.jobs`.
        """
        work = []
        for job in jobs:
            config = replace(job.config, threads=job.config.threads or self.cluster.threads)
            tune = partial(_tune, replace(job, config=config))
            work.append((arms[job.name], tune, config.train_bytes * len(job.factors)))
        outcomes = self._run(context, "tuning", work)
        return {job.name: Tuning.load(outcome["tuning"]) for job, outcome in zip(jobs, outcomes, strict=True)}

    def _run(self, context: Context, what: str, work: Sequence[tuple[Encoded, Work, int]]) -> list[dict[str, Any]]:
        """Work on the shards of arms, given the bytes to train on; report the artifacts that were made or used."""
        store = context.store.root.resolve(), self.verify
        runner = replace(context.runner, name="local", threads=self.cluster.threads, gpus=None)
        tasks = []
        for i, (arm, train, n_bytes) in enumerate(work):
            inputs = [artifact.name for artifact in (arm.arm.artifact, arm.training, arm.heldout, self.documents)]
            job = _Job(store, runner, arm.arm.key, arm.arm.tokenizer, inputs, train)
            tasks.append(Task(f"{what}-{i:04}", None, job, n_bytes))
        # A name of its own: runs that share the artifacts may be on the cluster at the same time.
        unique = context.store.root / f".tasks-{uuid4().hex[:12]}"
        tick = Throttle(context.reporter.progress, "bytes of text trained on", sum(task.size for task in tasks))
        outcomes = []
        with context.reporter.stage(f"{what} side by side"), self.cluster.results(unique, resume=False) as folder:
            run = self.cluster.run(partial(_work, self.gpus), tasks, folder, tick, gpus=self.gpus)
            with closing(run) as results:
                for result in results:
                    for used in context.store.open_all(result.value["used"], Folder):
                        context.store.on_use(used)
                    outcomes.append(result.value)
        return outcomes


def place(runner: RunnerConfig, documents: Artifact[HeldoutDocuments], verify: Verify) -> ModelTasks | None:
    """Return the cluster that trains the models; None if this process trains them.

    Args:
        runner: Where models are trained.
        documents: As in `ModelTasks`, like the other arguments.
        verify: When artifacts are compared with their checksums.

    Raises:
        UserError: If this machine has fewer GPUs than a model takes.
    """
    cluster = None if distributed.current().size > 1 else connect(runner)
    if cluster is None:
        return None
    most = int(max((machine.get("GPU", 0) for machine in cluster.machines().values()), default=0))
    if runner.gpus is None:
        return ModelTasks(cluster, 1, verify, documents) if most else None
    if runner.gpus > most and runner.address is None:
        raise UserError(
            f"runner.gpus={runner.gpus}, but this machine has {most}; set runner.gpus=0 to train models on its cores"
        )
    return ModelTasks(cluster, runner.gpus, verify, documents)


def _train(
    model: ModelConfig,
    plans: Mapping[Run, TrainConfig],
    scoring: EvalConfig,
    device: str,
    context: Context,
    arm: Encoded,
    documents: Artifact[HeldoutDocuments],
    beat: Beat,
) -> dict[str, Any]:
    """Train and score the models of a chain of runs."""
    before = dict(zip(plans, accumulate([0, *(plan.train_bytes for plan in plans.values())]), strict=False))

    def count(training: models.Training, row: Mapping[str, Any], _trunk_steps: int) -> None:
        beat(before[training.run] + row["bytes_seen"])

    trained = models.train_chain(context, model, arm, list(plans), plans, count)
    for run, artifact in trained.items():
        evaluate.score(context, scoring, device, run, artifact, arm, documents)
    return {"models": {artifact.name: artifact.fresh for artifact in trained.values()}}


def _tune(
    job: TuningJob, context: Context, arm: Encoded, _documents: Artifact[HeldoutDocuments], _beat: Beat
) -> dict[str, Any]:
    return {"tuning": tuning.tune_arm(context, job, arm).save()}


class _Reporter(Reporter):
    """Prints nothing; progress of any kind is a sign of life of the task."""

    def __init__(self, beat: Beat) -> None:
        super().__init__(Console(quiet=True), alone=False)
        self._beat = beat

    def progress(self, what: str, done: int, total: int | None) -> None:
        """See `Reporter.progress`."""
        del what, done, total
        self._beat(0)


def _work(gpus: int, job: _Job, beat: Beat) -> Blocks:
    """Do a job on this machine, with one process per GPU."""
    yield from ()
    if gpus <= 1:
        return _outcome(job, beat)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(1, 1, gpus, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
    try:
        outcome: dict[str, Any] = elastic_launch(settings, _process)(job, beat)[0]
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise LostError(f"process {rank} was ended by signal {-failure.exitcode}") from None
        raise
    if "error" in outcome:
        raise UserError(outcome["error"])
    return outcome


def _process(job: _Job, beat: Beat) -> dict[str, Any]:
    """Do the work of one of several processes; returns the result of the first."""
    if sys.platform == "linux":  # SIGTERM when the task's process is killed, so that no process keeps its GPU
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    outcome: dict[str, Any] = {}

    def first() -> int:
        outcome.update(_outcome(job, beat))
        return 0

    try:
        distributed.launch(first)
    except UserError as error:  # raised in every process
        outcome["error"] = str(error)
    return outcome


def _outcome(job: _Job, beat: Beat) -> dict[str, Any]:
    """Do a job in this process; returns its result, with the names of the artifacts that were made or used."""
    used: dict[str, None] = {}
    root, verify = job.store
    store = Store(root, on_use=lambda artifact: used.setdefault(artifact.name), verify=verify)
    kinds = (TokenizerFolder, ShardsFolder, ShardsFolder, HeldoutDocuments)
    inputs: list[Any] = [store.find(name, kind) for name, kind in zip(job.inputs, kinds, strict=True)]
    if None in inputs:
        raise UserError(
            f"{socket.gethostname()} does not see {root}/{job.inputs[inputs.index(None)]}; all machines of the cluster "
            "must see the artifacts: set artifacts to a shared folder"
        )
    tokenizer, training, heldout, documents = inputs
    arm = Encoded(ArmTokenizer(job.arm, job.arm, job.tokenizer, tokenizer), training, heldout)
    with temporary_folder(None) as folder, Tracker(folder, "none", "", {}) as tracker:
        outcome = job.work(Context(store, _Reporter(beat), tracker, job.runner), arm, documents, beat)
    return {**outcome, "used": list(used)}

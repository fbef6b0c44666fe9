"""Language models in tasks of a cluster: the chains of all runs are trained side by side."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.cluster.tasks import Task, connect
from experiments.logging.tracking import Tracker
from experiments.progress import Reporter
from experiments.results import Folder, TrainedModel, Tuning
from experiments.runs import Run, chains
from experiments.stages import evaluate, models, tuning
from experiments.stages.context import Context
from experiments.stages.shards import EncodedArm
from lm.train import distributed
from tokenizer.errors import UserError
from tokenizer.files import temporary_folder
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from experiments.cluster.tasks import Beat, Blocks, Cluster
    from experiments.config import RunnerConfig
    from experiments.results import HeldoutDocuments
    from experiments.stages.tuning import TuningJob
    from experiments.store.artifacts import Artifact, Store
    from lm.evaluate.config import EvalConfig
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig

    TrainArm = Callable[[Context, EncodedArm, Beat], Any]
    """Trains models of an arm. Calls the last argument with the bytes that are done."""


@dataclass(frozen=True)
class ModelTasks:
    """Trains models in tasks of a cluster. A task whose worker dies continues from the last checkpoint.

    Attributes:
        cluster: Where the tasks run.
        gpus: GPUs of each task, 0 or 1.
    """

    cluster: Cluster
    gpus: int

    def train(
        self,
        context: Context,
        arms: Mapping[str, EncodedArm],
        shapes: Mapping[int, ModelConfig],
        plans: Mapping[Run, TrainConfig],
        scoring: EvalConfig,
        documents: Artifact[HeldoutDocuments],
    ) -> dict[Run, Artifact[TrainedModel]]:
        """Train and score the models of all runs. The scores are then in the store.

        Args:
            context: Context of the run.
            arms: Tokenizers and shards by name.
            shapes: Shape of the models of each size.
            plans: Training settings of every run.
            scoring: How the models are scored.
            documents: Sources and scripts of the held-out documents.

        Raises:
            UserError: If a task raises one, or does not see the folder of the artifacts.
        """
        groups = chains(list(plans))
        work = []
        for chain in groups:
            settings = {run: plans[run] for run in chain}
            train = partial(_train, shapes[chain[0].size], settings, scoring, documents)
            work.append((arms[chain[0].arm], train, sum(plan.train_bytes for plan in settings.values())))
        trained: dict[Run, Artifact[TrainedModel]] = {}
        for chain, fresh in zip(groups, self._run(context, "models", work), strict=True):
            for run, model in zip(chain, context.store.open_all(list(fresh), TrainedModel), strict=True):
                trained[run] = replace(model, fresh=fresh[model.name])
                models.report(context, models.Training(run, plans[run]), trained[run])
                for line in (model.path / models.METRICS).read_text(encoding="utf-8").splitlines():
                    context.tracker.log(f"lm/{run}", json.loads(line))
        return trained

    def tune(self, context: Context, arms: Mapping[str, EncodedArm], jobs: Sequence[TuningJob]) -> dict[str, Tuning]:
        """Tune the learning rates of all arms (`experiments.stages.tuning.tune_arm`).

        Args:
            context: Context of the run.
            arms: Tokenizers and shards by name.
            jobs: The tuning runs of one size, by arm.
        """
        work = [(arms[job.name], partial(_tune, job), job.config.train_bytes * len(job.factors)) for job in jobs]
        outcomes = self._run(context, "tuning", work)
        return {job.name: Tuning.load(outcome) for job, outcome in zip(jobs, outcomes, strict=True)}

    def _run(self, context: Context, what: str, work: Sequence[tuple[EncodedArm, TrainArm, int]]) -> list[Any]:
        """Work on the shards of arms, given the bytes to train on; report the artifacts that were made or used."""
        runner = replace(context.runner, name="local", threads=self.cluster.threads, gpus=None)
        do = partial(_work, context.store, runner)
        tasks = [Task(f"{what}-{i:04}", None, (arm, train), n_bytes) for i, (arm, train, n_bytes) in enumerate(work)]
        tick = Throttle(context.reporter.progress, "bytes of text trained on", sum(task.size for task in tasks))
        outcomes = []
        # A folder of its own: runs that share the artifacts may be on the cluster at the same time.
        with (
            context.reporter.stage(f"{what} side by side"),
            TemporaryDirectory(prefix=".tasks-", dir=context.store.root, ignore_cleanup_errors=True) as folder,
            closing(self.cluster.run(do, tasks, Path(folder), tick, gpus=self.gpus)) as results,
        ):
            for result in results:
                outcomes.append(result.value["outcome"])
                for artifact in context.store.open_all(result.value["used"], Folder):
                    context.store.use(artifact)
        return outcomes


def place(runner: RunnerConfig) -> ModelTasks | None:
    """Return the cluster that trains the models; None if this process trains them."""
    if distributed.current().size > 1 or (cluster := connect(runner)) is None:
        return None
    gpus = runner.gpus
    has_gpu = any(has.get("GPU", 0) >= 1 for has in cluster.machines())
    if gpus and runner.address is None and not has_gpu:
        raise UserError(f"runner.gpus={gpus}, but this machine has no GPU; name a cluster by runner.address")
    if gpus is None and not has_gpu:
        return None
    return ModelTasks(cluster, 1 if gpus is None else gpus)


def _train(
    model: ModelConfig,
    plans: Mapping[Run, TrainConfig],
    scoring: EvalConfig,
    documents: Artifact[HeldoutDocuments],
    context: Context,
    arm: EncodedArm,
    beat: Beat,
) -> dict[str, bool]:
    """Train and score the models of a chain of runs; returns the names of their artifacts, and which are new."""
    plans = {run: replace(plan, threads=plan.threads or context.runner.threads) for run, plan in plans.items()}
    before = dict(zip(plans, accumulate([0, *(plan.train_bytes for plan in plans.values())]), strict=False))
    trained = models.train_chain(
        context, model, arm, list(plans), plans, lambda at, row: beat(before[at.run] + row["bytes_seen"])
    )
    for run, artifact in trained.items():
        evaluate.score(context, scoring, artifact, arm, documents, name=str(run), device=plans[run].device)
    return {artifact.name: artifact.fresh for artifact in trained.values()}


def _tune(job: TuningJob, context: Context, arm: EncodedArm, _beat: Beat) -> dict[str, Any]:
    config = replace(job.config, threads=job.config.threads or context.runner.threads)
    return tuning.tune_arm(context, replace(job, config=config), arm).save()


def _work(store: Store, runner: RunnerConfig, job: tuple[EncodedArm, TrainArm], beat: Beat) -> Blocks:
    """Train models; returns the result, and the names of the artifacts that were made or used."""
    yield from ()
    arm, train = job
    reporter = Reporter(Console(quiet=True), alone=False)
    reporter.progress = lambda *_: beat(0)  # type: ignore[method-assign]  # progress of any kind is a sign of life
    used: dict[str, None] = {}
    store = replace(store, on_use=lambda artifact: used.setdefault(artifact.name))
    with temporary_folder(None) as folder, Tracker(folder, "none", "", {}) as tracker:
        outcome = train(Context(store, reporter, tracker, runner), arm, beat)
    return {"outcome": outcome, "used": list(used)}

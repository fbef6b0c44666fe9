"""Language models in tasks of a cluster: the models of all arms and seeds are trained side by side."""

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
from experiments.stages import evaluation, models, tuning
from experiments.stages.context import Context
from experiments.stages.models import Chain
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Store
from lm.train import distributed
from tokenizer.errors import UserError
from tokenizer.files import temporary_folder
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.cluster.results import Beat, Blocks
    from experiments.cluster.tasks import Cluster
    from experiments.config import Config
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig
    from tokenizer.interface import TokenizerLike

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class _Job:
    """What a task does: train a chain of models and score them, or tune the learning rates of an arm.

    Attributes:
        config: Configuration of its seed.
        arm: Name of the arm.
        tokenizer: Its tokenizer.
        inputs: Names of the artifacts of the tokenizer and the training shards; to score models, of the held-out shards
            and documents too.
        plans: Training settings of every rung, shortest first.
        factors: Factors on the learning rates to try; empty for training.
    """

    config: Config
    arm: str
    tokenizer: TokenizerLike
    inputs: list[str]
    plans: list[TrainConfig]
    factors: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of text to train on."""
        return sum(plan.train_bytes for plan in self.plans) * max(len(self.factors), 1)


@dataclass(frozen=True)
class ModelTasks:
    """Trains models in tasks of a cluster. A task whose worker dies continues from the last checkpoint.

    Attributes:
        cluster: Where the tasks run.
        gpus: GPUs of each task.
    """

    cluster: Cluster
    gpus: int

    def train(
        self,
        context: Context,
        chains: Sequence[Chain],
        heldout: Sequence[Artifact[ShardsFolder]],
        documents: Artifact[HeldoutDocuments],
    ) -> list[list[Artifact[TrainedModel]]]:
        """Train and score the models of all chains; return the models of each. The scores are then in the store.

        Args:
            context: Context of the run.
            chains: The models.
            heldout: Held-out shards of each chain's arm.
            documents: Sources and scripts of the held-out documents.

        Raises:
            UserError: If a task raises one, or does not see the artifacts.
        """
        jobs = [self._job(chain, scored, documents) for chain, scored in zip(chains, heldout, strict=True)]
        made = []
        for chain, found in zip(chains, self._run(context, "models", jobs), strict=True):
            opened = context.store.open_all(list(found["models"]), TrainedModel)
            lms = [replace(one, fresh=fresh) for one, fresh in zip(opened, found["models"].values(), strict=True)]
            for number, model in enumerate(lms, 1):
                name = models.name_of(chain, number)
                models.done(chain.context, f"lm {name}", model)
                for line in (model.path / models.METRICS).read_text(encoding="utf-8").splitlines():
                    chain.context.tracker.log(f"lm/{name}", json.loads(line))
            made.append(lms)
        return made

    def tune(self, context: Context, chains: Sequence[Chain], factors: Sequence[float]) -> list[Tuning]:
        """Tune the learning rates of all arms (`experiments.stages.tuning.tune_arm`).

        Args:
            context: Context of the tuning runs.
            chains: The arms, with one plan each.
            factors: Factors on the learning rates.
        """
        jobs = [replace(self._job(chain), factors=tuple(factors)) for chain in chains]
        return [Tuning.load(found["tuning"]) for found in self._run(context, "tuning", jobs)]

    def _job(self, chain: Chain, *scored_on: Artifact[Any]) -> _Job:
        config, threads = chain.context.config, self.cluster.threads
        runner = replace(config.runner, name="local", threads=threads, gpus=None)
        inputs: list[Artifact[Any]] = [chain.arm.artifact, chain.shards, *scored_on]
        return _Job(
            replace(config, runner=runner, artifacts=chain.context.store.where, logger="none"),
            chain.arm.key,
            chain.arm.tokenizer,
            [artifact.name for artifact in inputs],
            [replace(plan, threads=plan.threads or threads) for plan in chain.plans],
        )

    def _run(self, context: Context, what: str, jobs: Sequence[_Job]) -> list[dict[str, Any]]:
        """Run jobs; report the artifacts that they made or used, and return the results."""
        tasks = [Task(f"{what}-{i:04}", None, job, job.size) for i, job in enumerate(jobs)]
        # A name of its own: runs that share the artifacts may be on the cluster at the same time.
        unique = context.store.root / f".tasks-{uuid4().hex[:12]}"
        tick = Throttle(context.reporter.progress, "bytes of text trained on", sum(task.size for task in tasks))
        work, found = partial(_work, self.gpus), []
        with context.reporter.stage(f"{what} side by side"), self.cluster.results(unique, resume=False) as folder:
            run = self.cluster.run(work, tasks, folder, tick, gpus=self.gpus, checkpoints=True)
            with closing(run) as results:
                for result in results:
                    for used in context.store.open_all(result.value["used"], Folder):
                        context.store.use(used)
                    found.append(result.value)
        return found


def place(context: Context) -> ModelTasks | None:
    """Return the cluster that trains the models; None if this process trains them.

    Raises:
        UserError: If this machine has fewer GPUs than a model takes.
    """
    runner = context.config.runner
    cluster = None if distributed.current().size > 1 else connect(runner)
    if cluster is None:
        return None
    most = int(max((machine.get("GPU", 0) for machine in cluster.machines().values()), default=0))
    if runner.gpus is None:
        return ModelTasks(cluster, 1) if most else None
    if runner.gpus > most and runner.address is None:
        raise UserError(
            f"runner.gpus={runner.gpus}, but this machine has {most}; set runner.gpus=0 to train models on its cores"
        )
    return ModelTasks(cluster, runner.gpus)


class _Reporter(Reporter):
    """Prints nothing; shows the task's signs of life that the work makes progress.

    Args:
        beat: To call with the bytes of text that the task has trained on.
    """

    def __init__(self, beat: Beat) -> None:
        super().__init__(Console(quiet=True), alone=False)
        self._beat, self.done = beat, 0

    def progress(self, what: str, done: int, total: int | None) -> None:
        """See `Reporter.progress`."""
        del what, done, total
        self._beat(self.done)


def _work(gpus: int, job: _Job, beat: Beat) -> Blocks:
    """Do a job on this machine, with one process per GPU."""
    yield from ()
    if gpus <= 1:
        return _made(job, beat)
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
        outcome.update(_made(job, beat))
        return 0

    try:
        distributed.launch(first)
    except UserError as error:  # raised in every process
        outcome["error"] = str(error)
    return outcome


def _made(job: _Job, beat: Beat) -> dict[str, Any]:
    used: dict[str, None] = {}
    config, reporter = job.config, _Reporter(beat)
    store = Store.at(
        config.artifacts,
        config.artifacts_cache,
        on_use=lambda artifact: used.setdefault(artifact.name),
        verify=config.verify,
    )
    kinds = (TokenizerFolder, ShardsFolder, ShardsFolder, HeldoutDocuments)
    found: list[Any] = [store.find(name, kind) for name, kind in zip(job.inputs, kinds, strict=False)]
    if None in found:
        raise UserError(
            f"{socket.gethostname()} does not see {store.where}/{job.inputs[found.index(None)]}; all machines of "
            "the cluster must see the artifacts: set artifacts to a shared folder or a bucket"
        )
    tokenizer, shards, *scored_on = found
    arm = ArmTokenizer(job.arm, job.arm, job.tokenizer, tokenizer)

    def count(stage: str, row: Mapping[str, Any], _trunk_steps: int) -> None:
        reporter.done = before[stage.partition(" ")[2]] + row["bytes_seen"]

    with temporary_folder(None) as folder, Tracker(folder, "none", "", {}) as tracker:
        chain = Chain(Context(config, store, reporter, tracker), arm, shards, job.plans)
        if job.factors:
            tuned = tuning.tune_arm(chain.context, arm, shards, job.plans[0], job.factors)
            return {"tuning": tuned.save(), "used": list(used)}
        names = [models.name_of(chain, number + 1) for number in range(len(job.plans))]
        before = dict(zip(names, accumulate([0, *(plan.train_bytes for plan in job.plans)]), strict=False))
        lms = models.train_lms(chain, count)
        for model in lms:
            evaluation.score(chain.context, arm, model, *scored_on)
    return {"models": {model.name: model.fresh for model in lms}, "used": list(used)}

"""Language models in tasks of a cluster: the models of all arms, depths and seeds are trained side by side."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rich.console import Console

from experiments.cli.console import Reporter
from experiments.cluster import connect
from experiments.cluster.heartbeat import Heartbeat
from experiments.cluster.tasks import LostError, Task
from experiments.logging.tracking import Tracker
from experiments.results import Folder, HeldoutDocuments, ShardsFolder, TokenizerFolder, TrainedModel, Tuning
from experiments.stages import evaluation, models, tuning
from experiments.stages.context import Context
from experiments.stages.models import Chain
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Store
from lm.train import distributed
from tokenizer.durable import remove_folder
from tokenizer.errors import UserError
from tokenizer.files import temporary_folder
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
        config: Configuration of its depth and seed.
        arm: Name of the arm.
        tokenizer: Its tokenizer.
        artifacts: Names of the folder of the tokenizer and the training shards; to score models, of the held-out shards
            and documents too.
        plans: Training settings of every rung, shortest first.
        runs: Bytes of text before each training run, and those of the run, by the name of its stage (`_runs`).
        depth: Name of the depth, if there are several.
        factors: Factors on the learning rates to try; empty for training.
    """

    config: Config
    arm: str
    tokenizer: TokenizerLike
    artifacts: list[str]
    plans: list[TrainConfig]
    runs: dict[str, tuple[int, int]]
    depth: str = ""
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelTasks:
    """Trains models in tasks of a cluster.

    A task whose worker dies continues from the last checkpoint, if the next worker sees the unfinished folder.

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
            for number, artifact in enumerate(lms, 1):
                _log(chain.context, models.name_of(chain, number), artifact)
            made.append(lms)
        return made

    def tune(self, context: Context, chains: Sequence[Chain], factors: Sequence[float]) -> list[Tuning]:
        """Tune the learning rates of all arms (`experiments.stages.tuning.tune_arm`).

        Args:
            context: Context of the tuning runs.
            chains: The arms, with one plan each.
            factors: Factors on the learning rates.
        """
        jobs = []
        for chain in chains:
            each = chain.plans[0].train_bytes
            runs = {tuning.stage_name(chain.arm, factor): (i * each, each) for i, factor in enumerate(factors)}
            jobs.append(replace(self._job(chain), factors=tuple(factors), runs=runs))
        return [Tuning.load(found["tuning"]) for found in self._run(context, "tuning", jobs)]

    def _job(self, chain: Chain, *scored_on: Artifact[Any]) -> _Job:
        config = chain.context.config
        runner = replace(config.runner, name="local", threads=self.cluster.threads, gpus=None)
        inputs: list[Artifact[Any]] = [chain.arm.artifact, chain.shards, *scored_on]
        return _Job(
            replace(config, runner=runner, artifacts=chain.context.store.where, logger="none"),
            chain.arm.key,
            chain.arm.tokenizer,
            [artifact.name for artifact in inputs],
            [replace(plan, threads=plan.threads or self.cluster.threads) for plan in chain.plans],
            _runs(chain),
            chain.depth,
        )

    def _run(self, context: Context, what: str, jobs: Sequence[_Job]) -> list[dict[str, Any]]:
        """Run jobs; report the artifacts that they made or used, and return the results."""
        tasks = [
            Task(f"{what}-{i:04}", None, partial(_work, job, self.gpus), max(map(sum, job.runs.values())), self.gpus)
            for i, job in enumerate(jobs)
        ]
        silence, root = context.config.runner.timeout_s, context.store.root
        # A name of its own: runs that share the artifacts may be on the cluster at the same time.
        folder = (self.cluster.shared(root) or root.resolve()) / f".tasks-{uuid4().hex[:12]}"
        results = []
        try:
            with context.reporter.stage(f"{what} side by side"):
                tick = Throttle(context.reporter.progress, "bytes of text trained on", sum(task.size for task in tasks))
                with closing(self.cluster.run(tasks, None, folder, tick, patient=True, silence=silence)) as ended:
                    for result in ended:
                        for used in context.store.open_all(result.value["used"], Folder):
                            context.store.use(used)
                        results.append(result.value)
        finally:
            remove_folder(folder, ignore_errors=True)
        return results


def place(context: Context) -> ModelTasks | None:
    """Return the cluster that trains the models; None if this process trains them.

    Raises:
        UserError: If this machine has fewer GPUs than a model takes.
    """
    runner = context.config.runner
    if runner.name == "local" or distributed.current().size > 1:
        return None
    cluster = connect(replace(runner, timeout_s=None))  # no time limit for jobs of Slurm
    assert cluster is not None
    most = cluster.gpus()
    gpus = min(most or 0, 1) or None if runner.gpus is None else runner.gpus
    if gpus is None:
        return None
    if most is not None and gpus > most and runner.address is None:
        raise UserError(
            f"runner.gpus={gpus}, but this machine has {most}; set runner.gpus=0 to train models on its cores"
        )
    if most is not None and gpus > most:
        context.reporter.say(
            f"warning: runner.gpus={gpus}, but the machines of the cluster have {most} each at most; the models wait "
            "for a larger one",
            style="yellow",
        )
    return ModelTasks(cluster, gpus)


def _log(context: Context, name: str, artifact: Artifact[TrainedModel]) -> None:
    """Report a model, and log its training metrics."""
    models.done(context, f"lm {name}", artifact)
    for line in (artifact.path / models.METRICS).read_text(encoding="utf-8").splitlines():
        context.tracker.log(f"lm/{name}", json.loads(line))


def _runs(chain: Chain) -> dict[str, tuple[int, int]]:
    """Bytes of text that a chain has trained on before each run, and those of the run, by the name of its stage.

    The bytes of a trunk that a run starts from are subtracted from those before it, because its steps include them.
    """
    runs, total, trunk_bytes = {}, 0, 0
    for number, plan in enumerate(chain.plans, 1):
        name, start = models.name_of(chain, number), 0
        if len(chain.plans) > 1 and plan.trunk is not None:
            start = plan.trunk.train_bytes
            runs[f"trunk {name}"] = total - trunk_bytes, start
            total += start - trunk_bytes
            trunk_bytes = start
        runs[f"lm {name}"] = total - start, plan.train_bytes
        total += plan.train_bytes - start
    return runs


class _Reporter(Reporter):
    """Prints nothing, and reports the bytes of text that a task has trained on.

    Args:
        heartbeat: Where to report them.
        runs: As in `_Job`.
    """

    def __init__(self, heartbeat: Heartbeat, runs: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(Console(quiet=True), alone=False)
        self._heartbeat, self._runs, self._run, self._bytes = heartbeat, runs, (0, 0), 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """See `Reporter.stage`."""
        self._run = self._runs.get(name, (self._bytes, 0))
        self._heartbeat(self._bytes)
        with super().stage(name):
            yield
        self._bytes = sum(self._run)  # also of a model that existed

    def progress(self, what: str, done: int, total: int | None) -> None:
        """See `Reporter.progress`."""
        if what == "steps" and total:
            before, size = self._run
            self._bytes = before + size * done // total
        self._heartbeat(self._bytes)


def _work(job: _Job, gpus: int, _shared: None, data: Path) -> dict[str, Any]:
    """Do a job on this machine, with one process per GPU."""
    if gpus <= 1:
        return _do(job, data)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(1, 1, gpus, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
    try:
        outcome: dict[str, Any] = elastic_launch(settings, _process)(job, data)[0]
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise LostError(f"process {rank} was ended by signal {-failure.exitcode}") from None
        raise
    if "error" in outcome:
        raise UserError(outcome["error"])
    if "lost" in outcome:
        raise LostError(outcome["lost"])
    return outcome


def _process(job: _Job, data: Path) -> dict[str, Any]:
    """What one of several processes does; returns the result of the first."""
    if sys.platform == "linux":  # SIGTERM when the task's process is killed, so that no process keeps its GPU
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    outcome: dict[str, Any] = {}

    def first() -> int:
        try:
            outcome.update(_do(job, data))
        except LostError as error:
            outcome["lost"] = str(error)
        return 0

    try:
        distributed.launch(first)
    except UserError as error:  # raised in every process
        outcome["error"] = str(error)
    return outcome


def _do(job: _Job, data: Path) -> dict[str, Any]:
    try:
        return _made(job, _Reporter(Heartbeat(data), job.runs))
    except KeyboardInterrupt:
        raise LostError("it was asked to stop") from None


def _made(job: _Job, reporter: Reporter) -> dict[str, Any]:
    used: dict[str, None] = {}
    store = Store.at(
        job.config.artifacts,
        job.config.artifacts_cache,
        on_use=lambda artifact: used.setdefault(artifact.name),
        verify=job.config.verify,
    )
    kinds = (TokenizerFolder, ShardsFolder, ShardsFolder, HeldoutDocuments)
    found: list[Any] = [store.find(name, kind) for name, kind in zip(job.artifacts, kinds, strict=False)]
    if None in found:
        raise UserError(
            f"{socket.gethostname()} does not see {store.where}/{job.artifacts[found.index(None)]}; all machines of "
            "the cluster must see the artifacts: set artifacts to a shared folder or a bucket"
        )
    tokenizer, shards, *scored_on = found
    arm = ArmTokenizer(job.arm, job.arm, job.tokenizer, tokenizer)
    with temporary_folder(None) as folder, Tracker(folder, "none", "", {}) as tracker:
        context = Context(job.config, store, reporter, tracker)
        if job.factors:
            tuned = tuning.tune_arm(context, arm, shards, job.plans[0], job.factors)
            return {"tuning": tuned.save(), "used": list(used)}
        lms = models.train_lms(Chain(context, arm, shards, job.plans, job.depth))
        for model in lms:
            evaluation.score(context, arm, model, *scored_on)
    return {"models": {model.name: model.fresh for model in lms}, "used": list(used)}

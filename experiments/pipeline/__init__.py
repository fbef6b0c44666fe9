"""The whole experiment, from text to report: `python -m experiments.pipeline`.

A stage is skipped if its artifact exists. So the same command resumes after an interruption, and a changed setting
repeats only the stages that depend on it.
"""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.arms import resolve_arms
from experiments.cli.console import Reporter
from experiments.logging.tracking import Tracker, tables
from experiments.stages import documents, text
from experiments.stages.context import Context
from experiments.stages.make_tokenizers import make_tokenizers
from experiments.store import registry
from experiments.store.artifacts import Store
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from experiments.config import Config
    from experiments.logging.tracking import Labels
    from experiments.results import TrainedModel
    from experiments.stages.comparison import Result
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact

STAGES = ("count", "train_bpe", "train_superbpe", "shard_corpus", "train_lm", "evaluate", "report")


class Outcome(NamedTuple):
    """Result of a run: set from the stage `evaluate` on, with the page from `report` on.

    Attributes:
        result: Comparison at the full budget.
        page: Path of the report.
        rungs: Comparison at every budget of the ladder, smallest first; the last is `result`.
    """

    result: Result | None = None
    page: Path | None = None
    rungs: Sequence[Result] = ()


def run(
    config: Config,
    until: str,
    folder: Path,
    *,
    reporter: Reporter | None = None,
    on_artifact: Callable[[Artifact[Any]], None] | None = None,
    labels: Labels | None = None,
) -> Outcome:
    """Run the stages of an experiment, in order.

    Args:
        config: The experiment.
        until: The last stage to run, one of `STAGES`.
        folder: Folder for this run's own files: `metrics.jsonl`, wandb's files and the page of a ladder of budgets.
        reporter: Shows the progress; None for the terminal.
        on_artifact: Called with every artifact that the run makes or reuses.
        labels: Names of the run in wandb.

    Raises:
        UserError: If something is wrong that the user can fix.
    """
    shown = reporter or Reporter()

    def use(artifact: Artifact[Any]) -> None:
        tracker.uses(artifact)
        if on_artifact is not None:
            on_artifact(artifact)

    store = Store(
        Path(config.artifacts),
        on_wait=lambda name: shown.say(f"waiting: another process is making {name}"),
        on_use=use,
        verify=config.verify,
        progress=shown.progress,
    )

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        shown.say(f"warning: {message}", style="yellow")

    with (
        registry.running(store, folder),
        warnings.catch_warnings(),
        Tracker(folder, config.wandb, config.project, dataclasses.asdict(config), labels) as tracker,
    ):
        for name in store.clean():
            shown.say(f"removed leftovers of {name} from a killed process", style="dim")
        warnings.showwarning = warn  # omits the source line that Python would print
        return _run(Context(config, store, shown, tracker), STAGES.index(until), folder)


def _run(context: Context, last: int, folder: Path) -> Outcome:
    """Run the stages that do not need Torch first, because importing Torch takes seconds; then the others."""
    device = context.config.lm.train.device
    if last >= STAGES.index("train_lm") and device not in ("auto", "cpu"):
        from lm.model.device import resolve_device

        resolve_device(device)  # fails early if the device is missing
    arms = resolve_arms(context.config)
    corpus = text.prepare(context)
    tokenizers = make_tokenizers(context, corpus, arms, STAGES[: last + 1])
    if last < STAGES.index("shard_corpus"):
        return Outcome()
    with _torch_threads(context.config.runner.threads):
        return _models(context, last, corpus, tokenizers, folder)


def _models(context: Context, last: int, corpus: Text, tokenizers: Sequence[ArmTokenizer], folder: Path) -> Outcome:
    """Make the shards, models, scores and the report."""
    from experiments.stages import budget, evaluation, forecast, ladder, models, verdict
    from experiments.stages.comparison import ArmModels, of_seed

    described = documents.describe(context, corpus)
    verdict.warn_of_few(context, described.contents.n_documents, len(described.contents.names.get("source", [])))
    heldout = [models.shard(context, corpus, arm, "heldout") for arm in tokenizers]
    forecast.show_fertility(context, list(zip(tokenizers, heldout, strict=True)), described)
    # The counts of a mixture are from other text and do not give the corpus size.
    counted = next((arm.counts.contents for arm in tokenizers if arm.counts and arm.counts.contents.corpus), None)
    n_bytes = None if counted is None else counted.n_bytes
    training = [models.shard(context, corpus, arm, "train", n_bytes) for arm in tokenizers]
    if last < STAGES.index("train_lm"):
        return Outcome()
    pairs = list(zip(tokenizers, training, strict=True))
    rungs, seeds = context.rungs(), context.seeds()
    # Plan before training, so that errors appear early.
    plans = [[budget.plan(seeded, pairs) for seeded in rung.seeds()] for rung in rungs]
    costs = [forecast.cost(context, *pair, [rung[0][place] for rung in plans]) for place, pair in enumerate(pairs)]
    training_left = forecast.Training(context, costs * len(seeds))
    # Train seed by seed: all arms can then be compared long before the last seed is trained.
    by_seed: list[list[list[Artifact[TrainedModel]]]] = []
    for i, seeded in enumerate(seeds):
        by_seed.append([])
        for place, (arm, shards) in enumerate(pairs):
            made = models.train_lms(seeded, of_seed(arm, i), shards, [rung[i][place] for rung in plans])
            training_left.done(made)
            by_seed[-1].append(made)
    if last < STAGES.index("evaluate"):
        return Outcome()
    by_arm = list(zip(*by_seed, strict=True))  # the models of every seed and rung
    results = []
    for number, rung in enumerate(rungs):
        lms = [[seed[number] for seed in of_arm] for of_arm in by_arm]
        arms = [ArmModels(*made) for made in zip(tokenizers, training, heldout, lms, strict=True)]
        name = f"rung {number + 1}" if len(rungs) > 1 else ""
        results.append(evaluation.evaluate(rung, corpus, arms, described, name))
    result = results[-1]
    page = _report(context, corpus, result) if last >= STAGES.index("report") else None
    verdict.show(context, result)
    if len(results) > 1:
        ladder.show(context, results, folder)
    if page is not None:
        context.reporter.say(f"report: {page}")
    return Outcome(result, page, results)


def _report(context: Context, corpus: Text, result: Result) -> Path:
    from experiments.stages import reporting

    artifact = reporting.report(context, corpus, result)
    if context.config.wandb != "off":
        for name, (columns, rows) in tables((artifact.path / reporting.NUMBERS).read_bytes()).items():
            context.tracker.table(name, columns, rows)
    return artifact.path / reporting.PAGE


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    """Limit Torch to this number of threads in the block, because cells of a sweep share the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else thread_count(threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)

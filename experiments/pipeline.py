"""The whole experiment, from text to report: `python -m experiments.pipeline`.

A stage is skipped if its artifact exists. So the same command resumes after an interruption, and a changed setting
repeats only the stages that depend on it.

This is the only place that sees the whole configuration: each stage gets its inputs and its own settings.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.arms import resolve_arms
from experiments.cli.console import Reporter
from experiments.config import part, recorded
from experiments.logging.tracking import Tracker
from experiments.runs import list_runs
from experiments.settings import resolved
from experiments.stages import beforehand, contamination, corpus, heldout
from experiments.stages.context import Context
from experiments.stages.make_tokenizers import make_tokenizers
from experiments.store import registry
from experiments.store.artifacts import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from experiments.config import Config
    from experiments.logging.metrics import Labels
    from experiments.runs import Run
    from experiments.stages.comparison import Result
    from experiments.stages.corpus import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact

STAGES = {
    "count": "read and count the text",
    "train_bpe": "train BPE merges (phase 1)",
    "train_superbpe": "train superwords (phase 2)",
    "shard_corpus": "encode the text",
    "train_lm": "train language models",
    "evaluate": "evaluate the models on held-out text",
    "report": "write the report",
}
"""The stages, in order, with what they do."""


class Outcome(NamedTuple):
    """Result of a run: set from the stage `evaluate` on, with the page from `report` on.

    Attributes:
        result: Comparison of the largest models at the largest budget.
        page: Path of the report.
        rungs: Comparison at every size and budget, smallest first; `result` is the last.
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
        folder: Folder for this run's own files: `metrics.jsonl`, the logger's files, the page of a ladder of budgets.
        reporter: Shows the progress; None for the terminal.
        on_artifact: Called with every artifact that the run makes or reuses.
        labels: Names of the run in the logger.

    Raises:
        UserError: If something is wrong that the user can fix.
    """
    shown = reporter or Reporter()

    def use(artifact: Artifact[Any]) -> None:
        tracker.uses(artifact)
        if on_artifact is not None:
            on_artifact(artifact)

    store = Store.at(
        config.artifacts,
        config.artifacts_cache,
        config.artifacts_cache_gb,
        on_wait=lambda name: shown.say(f"waiting: another process is making {name}"),
        on_use=use,
        on_build=shown.building,
        verify=config.verify,
        progress=shown.progress,
    )

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        shown.say(f"warning: {message}", style="yellow")

    with (
        registry.running(store, folder),
        warnings.catch_warnings(),
        Tracker(folder, config.logger, config.project, recorded(config), labels) as tracker,
    ):
        for name in store.clean():
            shown.say(f"removed leftovers of {name} from a killed process", style="dim")
        warnings.showwarning = warn  # omits the source line that Python would print
        return _run(Context(store, shown, tracker, config.runner), config, until, folder)


def _run(context: Context, config: Config, until: str, folder: Path) -> Outcome:
    """Run the stages that do not need Torch first, because importing Torch takes seconds; then the others."""
    stages = list(STAGES)[: list(STAGES).index(until) + 1]
    if "train_lm" in stages and config.lm.train.device not in ("auto", "cpu"):
        from lm.model.device import resolve_device

        resolve_device(config.lm.train.device)  # fails early if the device is missing
    arms = resolve_arms(config)
    if not any(arm.recipe == "superbpe" for arm in arms):
        stages = [stage for stage in stages if stage != "train_superbpe"]
    seeds = range(config.lm.train.seed, config.lm.train.seed + config.lm.n_seeds)
    sizes = config.lm.sizes or [config.lm.model.n_layers]
    runs = list_runs([arm.name for arm in arms], sizes, seeds, config.budget.rungs())
    context.reporter.plan(
        {stage: STAGES[stage] for stage in stages},
        lambda first: beforehand.say(context, config, arms, runs, stages[stages.index(first) :]),
    )
    context.reporter.enter("count")
    text = corpus.prepare(context, config.corpus, config.budget if "train_lm" in stages else None)
    tokenizers = {
        arm.name: dataclasses.replace(made, settings=resolved(config, arm, made.artifact.contents.revision))
        for arm, made in make_tokenizers(context, text, arms, until)
    }
    if "shard_corpus" not in stages:
        return Outcome()
    with _torch_threads(config.runner.threads):
        return _models(context, config, stages, text, tokenizers, runs, folder)


def _models(
    context: Context,
    config: Config,
    stages: Sequence[str],
    text: Text,
    tokenizers: Mapping[str, ArmTokenizer],
    runs: Sequence[Run],
    folder: Path,
) -> Outcome:
    """Make the shards, models, scores and the report."""
    with context.reporter.stage("load PyTorch"):
        from experiments.stages import evaluate, model_tasks, plan, verdict

    lm, scoring = config.lm, part(EvalConfig, config.eval)
    context.reporter.enter("shard_corpus")
    documents = heldout.describe(context, text)
    verdict.warn_of_few(context, config, documents.contents)
    overlap = contamination.measure(context, text, config.eval.contamination)
    arms = _encoded(context, config, text, tokenizers, documents)
    if "train_lm" not in stages:
        return Outcome()
    # Plan before training, so that errors appear early.
    context.reporter.enter("train_lm")
    with context.reporter.stage("plan the training"):
        plans = plan.plan(runs, arms, lm, config.budget)
    elsewhere = model_tasks.place(context)
    plans, tuned = _tuned(context, config, arms, plans, elsewhere)
    if elsewhere is None:
        models = _train(context, lm, arms, plans)
    else:
        models = elsewhere.train(context, lm.model, arms, plans, scoring, documents)
    if "evaluate" not in stages:
        return Outcome()
    context.reporter.enter("evaluate")
    scores = {
        run: evaluate.score(context, scoring, lm.train.device, run, model, arms[run.arm], documents)
        for run, model in models.items()
    }
    results = evaluate.compare(context, text, arms, models, scores, config.budget)

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
from experiments.config import recorded
from experiments.logging.tracking import Tracker
from experiments.settings import of_models
from experiments.stages import TITLES, documents, text
from experiments.stages.context import Context
from experiments.stages.make_tokenizers import make_tokenizers
from experiments.store import registry
from experiments.store.artifacts import Store
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from experiments.config import Config
    from experiments.logging import Labels
    from experiments.results import ShardsFolder, TrainedModel, Tuning
    from experiments.stages.comparison import Result
    from experiments.stages.models import Chain
    from experiments.stages.outlook import Training
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig

    Pair = tuple[ArmTokenizer, Artifact[ShardsFolder]]
    """Tokenizer and training shards of an arm."""

STAGES = tuple(TITLES)


class Outcome(NamedTuple):
    """Result of a run: set from the stage `evaluate` on, with the page from `report` on.

    Attributes:
        result: Comparison at the full budget.
        page: Path of the report.
        rungs: Comparison at every budget of the ladder, smallest first; `result` is the last.
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
        warnings.showwarning = warn  # omits the source line that Python would print
        return _run(Context(config, store, shown, tracker), STAGES.index(until), folder)


def _run(context: Context, last: int, folder: Path) -> Outcome:
    """Run the stages that do not need Torch first, because importing Torch takes seconds; then the others."""
    device = context.config.lm.train.device
    if last >= STAGES.index("train_lm") and device not in ("auto", "cpu"):
        from lm.model.device import resolve_device

        resolve_device(device)  # fails early if the device is missing
    arms = resolve_arms(context.config)
    skipped = () if any(arm.recipe == "superbpe" for arm in arms) else ("train_superbpe",)
    stages = [stage for stage in STAGES[: last + 1] if stage not in skipped]
    context.reporter.plan({stage: TITLES[stage] for stage in stages})
    context.reporter.enter("count")
    corpus = text.prepare(context, trains=last >= STAGES.index("train_lm"))
    tokenizers = make_tokenizers(context, corpus, arms, STAGES[: last + 1])
    if last < STAGES.index("shard"):
        return Outcome()
    with _torch_threads(context.config.runner.threads):
        return _models(context, last, corpus, tokenizers, folder)


def _models(context: Context, last: int, corpus: Text, tokenizers: Sequence[ArmTokenizer], folder: Path) -> Outcome:
    """Make the shards, models, scores and the report."""
    with context.reporter.stage("load PyTorch"):
        from experiments.cluster.models import place
        from experiments.stages import contamination, evaluation, models, outlook, over_compute, terminal, tuning
        from experiments.stages.comparison import ArmModels

    context.reporter.enter("shard")
    described = documents.describe(context, corpus)
    terminal.warn_of_few(context, described.contents.n_documents, len(described.contents.names.get("source", [])))
    overlap = contamination.measure(context, corpus)
    heldout = [models.shard(context, corpus, arm, "heldout") for arm in tokenizers]
    encoded = list(zip(tokenizers, heldout, strict=True))
    terminal.show_fertility(context, encoded, described)
    # The counts of a mixture are from other text and do not give the corpus size.
    counted = next((arm.counts.contents for arm in tokenizers if arm.counts and arm.counts.contents.corpus), None)
    n_bytes = None if counted is None else counted.n_bytes
    if counted is not None:
        outlook.check_space(context, corpus, encoded, counted.n_bytes, counted.n_documents)
    training = [models.shard(context, corpus, arm, "train", n_bytes) for arm in tokenizers]
    if last < STAGES.index("train_lm"):
        return Outcome()
    pairs = list(zip(tokenizers, training, strict=True))
    # Plan before training, so that errors appear early.
    context.reporter.enter("train_lm")
    with context.reporter.stage("plan the training"):
        ladder = _planned(context, pairs)
    elsewhere = place(context)
    tuned = tuning.tune(ladder.rungs[-1], pairs, None if elsewhere is None else elsewhere.tune)
    chains = list(_chains(ladder, pairs, tuned))
    if elsewhere is None:
        progress = outlook.Training(context, [outlook.cost(chain) for chain in chains])
        made = [_train(chain, progress) for chain in chains]
    else:
        scored_on = [heldout[i % len(pairs)] for i in range(len(chains))]
        made = elsewhere.train(context, chains, scored_on, described)
    trained = _by_budget(made, len(pairs))
    if last < STAGES.index("evaluate"):
        return Outcome()
    context.reporter.enter("evaluate")
    results: list[Result] = []
    for number, (rung, lms) in enumerate(zip(ladder.rungs, trained, strict=True), 1):
        named = [dataclasses.replace(arm, settings=arm.settings | of_models(rung.config)) for arm in tokenizers]
        arms = [ArmModels(*made) for made in zip(named, training, heldout, lms, strict=True)]
        scored = evaluation.evaluate(rung, corpus, arms, described, f"rung {number}" if len(trained) > 1 else "")
        results.append(dataclasses.replace(scored, overlap=overlap, tuning=tuned if tuned[0].runs else ()))
    shown, result = ladder.rungs[-1], results[-1]
    context.reporter.enter("report")
    page = _report(shown, corpus, result) if last >= STAGES.index("report") else None
    terminal.show_result(shown, result, last=len(results) == 1)
    if len(results) > 1:
        over_compute.show(context, results, folder)
    if page is not None:
        context.reporter.say(f"report: {page}")
    return Outcome(result, page, results)


class _Ladder(NamedTuple):
    """The budgets of a run.

    Attributes:
        rungs: A context per budget, smallest first.
        plans: Training settings by budget, seed and arm.
    """

    rungs: list[Context]
    plans: list[list[list[TrainConfig]]]


def _planned(context: Context, pairs: Sequence[Pair]) -> _Ladder:
    from experiments.stages import budget

    rungs = budget.rungs(context, *pairs[0])
    return _Ladder(rungs, [[budget.plan(seeded, pairs) for seeded in rung.seeds()] for rung in rungs])


def _chains(ladder: _Ladder, pairs: Sequence[Pair], tuned: Sequence[Tuning]) -> Iterator[Chain]:
    """The models, seed by seed: all arms can then be compared long before the last seed is trained."""
    from experiments.stages.comparison import of_seed
    from experiments.stages.models import Chain

    for i, seeded in enumerate(ladder.rungs[-1].seeds()):
        for place, (arm, shards) in enumerate(pairs):
            plans = [rung[i][place].scaled(tuned[place].factor) for rung in ladder.plans]
            yield Chain(seeded, of_seed(arm, i), shards, plans)


def _train(chain: Chain, progress: Training) -> list[Artifact[TrainedModel]]:
    from experiments.stages.models import train_lms

    made = train_lms(chain, progress.row)
    progress.done()
    return made


def _by_budget(
    made: Sequence[Sequence[Artifact[TrainedModel]]], n_arms: int
) -> list[list[list[Artifact[TrainedModel]]]]:
    """The models by budget, arm and seed, from those by chain and budget."""
    return [[list(rung[place::n_arms]) for place in range(n_arms)] for rung in zip(*made, strict=True)]


def _report(context: Context, corpus: Text, result: Result) -> Path:
    from experiments.stages import reporting

    artifact = reporting.report(context, corpus, result)
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

"""The whole experiment, from text to report (`superbpe pipeline`).

A stage is skipped if its artifact exists. So the same command resumes after an interruption, and a changed setting
repeats only the stages that depend on it.

The configuration is taken apart here: a stage gets its inputs and its own settings.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.arms import resolve_arms
from experiments.config import part, recorded
from experiments.progress import Reporter
from experiments.runs import chains, list_runs
from experiments.settings import resolved
from experiments.stages import STAGES, corpus, heldout
from experiments.stages.context import open_context
from experiments.stages.count import first_pass
from experiments.stages.make_tokenizers import check, check_split, load_existing, make_tokenizers
from experiments.store.manifest import command_line
from lm.evaluate.config import EvalConfig
from tokenizer.files import read_json
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from experiments.arms import Arm
    from experiments.config import Config
    from experiments.findings.compared import Findings
    from experiments.findings.next_step import Step
    from experiments.logging.tracking import Labels
    from experiments.results import ComparisonRecord, Contamination, HeldoutDocuments, TrainedModel
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.shards import EncodedArm
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig


class Outcome(NamedTuple):
    """Findings of a run: set from the stage `evaluate` on, with the page from `report` on.

    Attributes:
        rungs: Comparison of the largest models at every budget, smallest first.
        step: Change to the run that would settle what the comparison leaves open.
    """

    page: Path | None = None
    rungs: Sequence[Findings] = ()
    records: Sequence[ComparisonRecord] = ()
    step: Step | None = None


def run(
    config: Config,
    until: str,
    folder: Path,
    *,
    reporter: Reporter | None = None,
    on_artifact: Callable[[Artifact[Any]], object] = lambda _: None,
    labels: Labels | None = None,
) -> Outcome:
    """Run the stages of an experiment, in order.

    Args:
        config: The experiment.
        until: The last stage to run, one of `experiments.stages.STAGES`.
        folder: Folder for this run's own files: `metrics.jsonl`, the logger's files, the page of a ladder of budgets.
        reporter: Shows the progress; None for the terminal.
        on_artifact: Called with every artifact that the run makes or reuses.
        labels: Names of the run in the logger.

    Raises:
        UserError: If something is wrong that the user can fix.
    """
    tracking = (config.logger, config.project, recorded(config), labels)
    options = {"on_use": on_artifact, "verify": config.verify}
    shown = reporter or Reporter()
    with open_context(folder, config.artifacts, config.runner, shown, *tracking, **options) as context:
        return _run(context, config, until, folder)


def _run(context: Context, config: Config, until: str, folder: Path) -> Outcome:
    """Run the stages that do not need Torch first, because importing Torch takes seconds; then the others."""
    stages = STAGES[: STAGES.index(until) + 1]
    if "train_lm" in stages and config.lm.train.device not in ("auto", "cpu"):
        from lm.model.device import resolve_device

        resolve_device(config.lm.train.device)  # fails early if the device is missing
    arms = resolve_arms(config)
    if "train_bpe" in stages:
        check(arms, stages)
    runs = list_runs([arm.name for arm in arms], config.lm.all_sizes, config.lm.seeds, config.budget)
    budget = config.budget if "train_lm" in stages else None
    text = corpus.prepare(context, config.corpus, budget)
    longest = config.eval.context_bytes if budget else math.inf
    existing = load_existing(context, arms, longest) if "train_bpe" in stages else {}
    untraced: dict[str, str] = {}
    if context.cluster is not None and config.runner.address is not None:  # otherwise all tasks run on this machine
        context.cluster.check_folder(context.store.root)
    wanted = "shard" in stages or bool(existing)

    def check_documents(documents: Artifact[HeldoutDocuments]) -> None:
        if budget:
            heldout.check_weights(heldout.kinds_of(documents.contents.names["source"]), config.eval.weights)
        for arm in arms:
            if arm.name in existing:
                untraced[arm.name] = check_split(arm, existing[arm.name].tokenizer, text, documents)

    trained = [arm for arm in arms if arm.trained]
    passed = first_pass(context, text, trained, documents=wanted, check=check_documents)
    tokenizers = make_tokenizers(
        context, text, arms, stages, existing, passed.counts, budget=budget, context_bytes=longest
    )
    if "shard" not in stages:
        return Outcome()
    from experiments.findings import precision  # slow to import, though without Torch

    scoring = part(EvalConfig, config.eval)
    documents = passed.documents
    assert documents is not None
    precision.announce(
        context,
        documents,
        scoring,
        n_arms=len(arms),
        n_seeds=config.lm.n_seeds,
        mode=config.budget.mode,
        heldout_sample=config.corpus.heldout_sample,
    )
    encoded, overlap = _encoded(context, config, text, tokenizers, documents)
    if "train_lm" not in stages:
        return Outcome()
    with context.reporter.stage("load PyTorch"):
        import torch  # noqa: F401 (takes seconds)
    with _torch_threads(config.runner.threads):
        return _models(
            context, config, stages, text, arms, encoded,
            runs=runs, folder=folder, documents=documents, overlap=overlap, untraced=untraced,
        )  # fmt: skip


def _models(
    context: Context,
    config: Config,
    stages: Collection[str],
    text: Text,
    arms: Sequence[Arm],
    encoded: Mapping[str, EncodedArm],
    *,
    runs: Sequence[Run],
    folder: Path,
    documents: Artifact[HeldoutDocuments],
    overlap: Artifact[Contamination] | None,
    untraced: Mapping[str, str],
) -> Outcome:
    """Make the models, their scores and the report."""
    from experiments.findings import terminal
    from experiments.findings.compared import compare_rungs
    from experiments.stages import evaluate, luck, plan, tuning
    from experiments.stages.model_tasks import place
    from lm.evaluate.comparison import FEWEST_SEEDS

    scoring = part(EvalConfig, config.eval)
    # Plan before training, so that errors appear early.
    with context.reporter.stage("plan the training"):
        plans = plan.plan(runs, encoded, config.lm, config.budget, config.deployment)
    elsewhere = place(config.runner)
    tuned = tuning.tune(
        context, encoded, config.lm, config.budget, scoring, None if elsewhere is None else elsewhere.tune
    )
    plans = {run: settings.scaled(tuned[run.size][run.arm].factor) for run, settings in plans.items()}
    shapes = {size: config.lm.model.with_layers(size) for size in config.lm.all_sizes}
    if elsewhere is None:
        models = _trained(context, encoded, shapes, plans)
    else:
        models = elsewhere.train(context, encoded, shapes, plans, scoring, documents)
    if "evaluate" not in stages:
        return Outcome()
    scores = {
        run: evaluate.score(
            context, scoring, model, encoded[run.arm], documents, name=str(run), device=plans[run].device
        )
        for run, model in models.items()
    }
    chosen = {
        size: [of_arm[name] for name in encoded]
        for size, of_arm in tuned.items()
        if any(one.runs for one in of_arm.values())
    }
    lucks = {}
    if config.eval.tokenizer_luck and len(arms) > 1 and config.lm.n_seeds >= FEWEST_SEEDS:
        lucks = luck.measure(context, text, arms, encoded, documents)
    results = compare_rungs(
        context, text, encoded, models, scores, config.budget, config.deployment, tuning=chosen, luck=lucks
    )
    largest = config.lm.all_sizes[-1]
    rungs = [
        _described(config, arms, result, shapes[size], overlap, untraced)
        for (size, _), result in results.items()
        if size == largest
    ]
    if len(shapes) > 1:
        most = runs[-1].budget
        terminal.show_sizes(context, {size: result for (size, budget), result in results.items() if budget == most})
    return _shown(context, config, stages, text, rungs, folder)


def _encoded(
    context: Context,
    config: Config,
    text: Text,
    tokenizers: Mapping[str, ArmTokenizer],
    documents: Artifact[HeldoutDocuments],
) -> tuple[dict[str, EncodedArm], Artifact[Contamination] | None]:
    """Encode the text with all tokenizers: the held-out documents first, which say how much space the others need."""
    from experiments.findings import terminal
    from experiments.stages.shards import EncodedArm, encode

    settings = config.shards
    heldout, _ = encode(context, settings, text, tokenizers, documents)
    terminal.show_fertility(context, [(arm.label, heldout[name].contents) for name, arm in tokenizers.items()])
    counts = next((arm.counts.contents for arm in tokenizers.values() if arm.counts), None)
    words = config.eval.contamination
    training, overlap = encode(
        context, settings, text, tokenizers, documents, heldout_of=heldout, counts=counts, ngram_words=words
    )
    encoded = {name: EncodedArm.of(arm, training[name], heldout[name]) for name, arm in tokenizers.items()}
    return encoded, overlap


def _trained(
    context: Context,
    encoded: Mapping[str, EncodedArm],
    shapes: Mapping[int, ModelConfig],
    plans: Mapping[Run, TrainConfig],
) -> dict[Run, Artifact[TrainedModel]]:
    """Train the models of all runs, one after the other, in this process and those that it leads."""
    from experiments.stages import time_left
    from experiments.stages.models import train_chain

    groups = chains(list(plans))
    flops = [time_left.flops_left(context, shapes[one[0].size], encoded[one[0].arm], one, plans) for one in groups]
    left = time_left.TimeLeft(context, flops)
    models: dict[Run, Artifact[TrainedModel]] = {}
    for chain in groups:
        models |= train_chain(context, shapes[chain[0].size], encoded[chain[0].arm], chain, plans, left.row)
        left.done()
    return models


def _described(
    config: Config,
    arms: Sequence[Arm],
    result: Findings,
    model: ModelConfig,
    overlap: Artifact[Contamination] | None,
    untraced: Mapping[str, str],
) -> Findings:
    """Add what the pages say about a comparison: of each arm its settings and `untraced`, and the overlap."""
    named = []
    for arm, compared in zip(arms, result.arms, strict=True):
        settings = resolved(config, arm, model, compared.artifact.contents.revision)
        named.append(dataclasses.replace(compared, settings=settings, untraced=untraced.get(arm.name, "")))
    return dataclasses.replace(result, arms=named, overlap=overlap)


def _shown(
    context: Context, config: Config, stages: Collection[str], text: Text, rungs: Sequence[Findings], folder: Path
) -> Outcome:
    """Write the report about the largest budget, and print the results."""
    from experiments.findings import terminal
    from experiments.findings.compared import record
    from experiments.findings.next_step import next_step
    from experiments.report import artifact, over_compute

    page = numbers = None
    result = rungs[-1]
    records = [record(rung) for rung in rungs]
    if "report" in stages:
        folder_of_page = artifact.report(context, config.deployment, text, result, recorded(config)).path
        page = folder_of_page / artifact.PAGE
        numbers = read_json(folder_of_page / artifact.NUMBERS)
    terminal.show_result(context, result, config.budget.mode, last=len(rungs) == 1, numbers=numbers)
    step = next_step(list(result.tested.values()), result.arms[0].settings, command_line(), result.seed_seconds)
    if len(rungs) > 1:
        step = over_compute.show(context, rungs, config.deployment, config.budget.tolerance, folder)
    if page is not None:
        context.reporter.say(f"report: {page}")
    return Outcome(page, rungs, records, step)


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


if __name__ == "__main__":  # the same as `superbpe pipeline`, for launchers that start a module
    import sys

    from experiments.__main__ import main

    sys.argv[:1] = ["superbpe", "pipeline"]
    main()

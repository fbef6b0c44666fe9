"""The whole experiment, from text to report: `python -m experiments.pipeline`.

Every stage is skipped if its artifact exists, so the same command continues after an interruption, and a
changed setting repeats only the stages that it touches.
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.artifacts import Store
from experiments.cli import main
from experiments.console import Reporter
from experiments.stages import budget, evaluation, models, reporting, text, tokenizers
from experiments.stages.context import Context
from experiments.tracking import Tracker

if TYPE_CHECKING:
    from experiments.config import Config

STAGES = ("count", "train_bpe", "train_superbpe", "shard_corpus", "train_lm", "evaluate", "report")


def run(config: Config, until: str, folder: Path) -> None:
    """Run the stages of an experiment, in order.

    Args:
        config: The experiment.
        until: The last stage to run, one of `STAGES`.
        folder: Where this run's own files go: `metrics.jsonl`, wandb's.

    Raises:
        UserError: If the user can mend what is wrong.
    """
    reporter = Reporter()
    store = Store(Path(config.artifacts), on_wait=lambda name: reporter.say(f"waiting: another process makes {name}"))
    for name in store.clean():
        reporter.say(f"removed what a killed process left of {name}", style="dim")

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        reporter.say(f"warning: {message}", style="yellow")

    with (
        warnings.catch_warnings(),
        Tracker(folder, config.wandb, config.project, dataclasses.asdict(config)) as tracker,
    ):
        warnings.showwarning = warn  # without the line of code that Python adds
        _run(Context(config, store, reporter, tracker), STAGES.index(until))


def _run(context: Context, last: int) -> None:
    corpus = text.prepare(context)
    mixture = text.phase2_sources(context, corpus)  # before hours of work: its files are there
    counts = text.count(context, corpus)
    if last < STAGES.index("train_bpe"):
        return
    bpe, merges = tokenizers.phase1(context, counts)
    if last < STAGES.index("train_superbpe"):
        return
    superbpe = tokenizers.phase2(context, mixture, merges)
    if last < STAGES.index("shard_corpus"):
        return
    both = (bpe, superbpe)
    heldout = [models.shard(context, corpus, trained, "heldout") for trained in both]
    n_bytes = counts.contents["n_bytes"] if "corpus" in counts.contents else None  # a mixture counted other text
    training = [models.shard(context, corpus, trained, "train", n_bytes) for trained in both]
    if last < STAGES.index("train_lm"):
        return
    pairs = list(zip(both, training, strict=True))
    # Before hours of training rather than after.
    plans = budget.plan(context, pairs)
    lms = [
        models.train_lm(context, trained, shards, plan) for (trained, shards), plan in zip(pairs, plans, strict=True)
    ]
    if last < STAGES.index("evaluate"):
        return
    candidates = [
        evaluation.Candidate(trained, [counts, trained.record, shards], lm, held)
        for trained, shards, lm, held in zip(both, training, lms, heldout, strict=True)
    ]
    result = evaluation.evaluate(context, corpus, candidates)
    page = reporting.report(context, corpus, counts, result) if last >= STAGES.index("report") else None
    evaluation.show(context, result)
    if page is not None:
        context.reporter.say(f"report: {page.path / reporting.PAGE}")


if __name__ == "__main__":
    main("report")

"""Checks of a configuration before any work starts."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import typing

from experiments.arms import check_arms
from experiments.cluster import RUNNERS
from experiments.config import BUDGETS
from experiments.logging.tracking import LOGGERS, check_installed
from tokenizer.errors import UserError, check_choice, check_whole
from tokenizer.files import Verify
from tokenizer.progress import MOST_THREADS

if typing.TYPE_CHECKING:
    from experiments.config import Config


_GROUPS = ("runner", "bpe", "shards", "budget", "report")
"""Groups whose numbers must be at least 1, or at least 0 for those of `_MAY_BE_ZERO`."""
_MORE = (
    *("corpus.max_bytes", "corpus.batch_bytes", "corpus.document_limit_bytes"),
    *("lm.n_seeds", "lm.train.seed", "lm.train.checkpoint_seconds", "eval.contamination"),
)
_MAY_BE_ZERO = {
    *("runner.gpus", "budget.tolerance", "budget.max_epochs", "lm.train.seed", "lm.train.checkpoint_seconds"),
    *("eval.contamination", "report.n_samples"),
}
_REMEDIES = {
    "runner.memory_mb": ", or null for no limit",
    "lm.n_seeds": "; use 3 for a claim about tokenizers",
    "eval.contamination": ": a number of words such as 13, or null for no measurement",
}


def validate(config: Config) -> None:
    """Raise a UserError for every mistake that can be found before any text is read."""
    check_choice("logger", config.logger, LOGGERS)
    check_installed(config.logger)
    check_choice("verify", config.verify, typing.get_args(Verify))
    check_choice("corpus.source", config.corpus.source, ("files", "embedded"))
    check_choice("budget.mode", config.budget.mode, BUDGETS)
    check_choice("runner.name", config.runner.name, RUNNERS)
    in_groups = (f"{group}.{field.name}" for group in _GROUPS for field in dataclasses.fields(getattr(config, group)))
    for key in (*in_groups, *_MORE):
        value, least = operator.attrgetter(key)(config), 0 if key in _MAY_BE_ZERO else 1
        if isinstance(value, int | float) and not isinstance(value, bool) and not value >= least:
            raise UserError(f"{key}={value} must be at least {least}{_REMEDIES.get(key, '')}")
    for key, threads in (("runner.threads", config.runner.threads), ("lm.train.threads", config.lm.train.threads)):
        if threads is not None:
            check_whole(key, threads, 1, MOST_THREADS)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.lm.train.device):
        raise UserError(f"lm.train.device={config.lm.train.device} is unknown; use auto, cpu, cuda or cuda:NUMBER")
    _check_corpus(config)
    _check_budgets(config)
    check_arms(config)


def _check_corpus(config: Config) -> None:
    """Raise a UserError for settings of the corpus that contradict each other or are out of range."""
    given = [name for name in ("paths", "sources") if getattr(config.corpus, name)]
    if config.corpus.source == "files" and not given:
        raise UserError("no text: give corpus.paths=[FILES, FOLDERS, GLOBS OR URLS], or use corpus=embedded")
    if config.corpus.source == "embedded" and given:
        raise UserError(f"corpus.{given[0]} is given, but the corpus is the embedded one; add corpus=files")
    if len(given) > 1:
        raise UserError(f"corpus.{given[0]} and corpus.{given[1]} are both given; the text comes from one of them")
    config.corpus.check()
    if not config.corpus.heldout_fraction and not config.corpus.heldout_paths:
        raise UserError(
            "no documents are held out; set corpus.heldout_fraction (0.01, for example) or corpus.heldout_paths"
        )


def _check_budgets(config: Config) -> None:
    """Raise a UserError for mistakes in the sizes of models and runs."""
    budget, lm = config.budget, config.lm
    if budget.train_flops is None:
        for n_bytes in budget.rungs():
            _ = dataclasses.replace(lm.train, train_bytes=n_bytes).schedule  # checks the settings of every run
        return
    if not 1 <= budget.train_flops < math.inf:
        raise UserError(f"budget.train_flops={budget.train_flops:g} must be at least 1, or null for budget.train_bytes")
    budget.rungs()

"""Checks of a configuration before any work starts."""

from __future__ import annotations

import dataclasses
import math
import typing

from experiments.arms import check_arms
from experiments.config import BUDGETS, check_choice
from experiments.logging.tracking import LOGGERS, check_installed
from tokenizer.checksums import Verify
from tokenizer.errors import UserError

if typing.TYPE_CHECKING:
    from experiments.config import Config


def validate(config: Config) -> None:
    """Raise a UserError for every mistake that can be found before any text is read."""
    check_choice("logger", config.logger, LOGGERS)
    check_installed(config.logger)
    check_choice("verify", config.verify, typing.get_args(Verify))
    check_choice("corpus.source", config.corpus.source, ("files", "embedded"))
    check_choice("budget.mode", config.budget.mode, BUDGETS)
    check_choice("runner.name", config.runner.name, ("local",))
    if config.lm.n_seeds < 1:
        raise UserError(f"lm.n_seeds={config.lm.n_seeds} must be at least 1; use 3 for a claim about tokenizers")
    if config.corpus.source == "files" and not (config.corpus.paths or config.corpus.dataset):
        raise UserError(
            "no text: give corpus.paths=[FILES, FOLDERS OR GLOBS] or corpus.dataset=NAME, or use corpus=embedded"
        )
    if config.corpus.source == "embedded" and (config.corpus.paths or config.corpus.dataset):
        raise UserError(
            f"corpus.{'paths' if config.corpus.paths else 'dataset'} is given, but the corpus is the embedded one; "
            "add corpus=files (or corpus=hf, for a dataset)"
        )
    if config.runner.memory_mb is not None and config.runner.memory_mb < 1:
        raise UserError(f"runner.memory_mb={config.runner.memory_mb} must be at least 1, or null for no limit")
    _check_budgets(config)
    check_arms(config)


def _check_budgets(config: Config) -> None:
    """Raise a UserError for mistakes in the sizes of models and runs."""
    budget, lm = config.budget, config.lm
    for n_layers in lm.depths:
        lm.model.of_depth(n_layers)  # checks the shape
    if len(set(lm.depths)) > 1 and (budget.mode != "equal_flops" or budget.train_flops is None):
        raise UserError(
            f"lm.depths={lm.depths}: models of several depths are compared at equal training FLOPs; add "
            "budget=equal_flops budget.train_flops=FLOPS"
        )
    if budget.train_flops is None:
        for n_bytes in budget.rungs():
            _ = dataclasses.replace(lm.train, train_bytes=n_bytes).schedule  # checks the settings of every run
        return
    if not 1 <= budget.train_flops < math.inf:
        raise UserError(f"budget.train_flops={budget.train_flops:g} must be at least 1, or null for budget.train_bytes")
    if lm.train.context_sample_bytes is None and lm.train.context_tokens is None:
        raise UserError(
            "budget.train_flops needs contexts that do not depend on the budget; set lm.train.context_sample_bytes "
            "(1_000_000, for example), or lm.train.context_tokens"
        )
    budget.rungs()

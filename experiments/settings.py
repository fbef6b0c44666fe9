"""The resolved settings of an arm and of its models, which distinguish arms of several runs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from lm.train.config import FREE_TO_CHANGE

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.config import Config
    from lm.model.config import ModelConfig

# These do not affect the result, or another setting decides: `vocab_size`, `lm.train.train_bytes`.
_LEFT_OUT = {
    *("bpe.vocab_size", "superbpe.vocab_size", "superbpe.phase1_pattern", "superbpe.phase1_unit"),
    *("corpus.batch_bytes", "corpus.document_limit_bytes", "shards.tokens_per_shard"),
    *("budget.train_bytes", "budget.train_flops", "budget.ladder", "budget.tolerance", "lm.train.seed"),
    *(f"lm.train.{name}" for name in FREE_TO_CHANGE),
}


def resolved(config: Config, arm: Arm, model: ModelConfig, revision: str | None = None) -> dict[str, Any]:
    """Return the settings that decide an arm's tokenizer and its models, apart from the seed, with JSON values.

    Args:
        config: The experiment.
        arm: The arm.
        model: Shape of its models.
        revision: Commit of the repository that the tokenizer was loaded from.

    Returns:
        Values by flat key, such as `superbpe.max_words`. `vocab_size` is the size of the trained vocabulary, and
        `pattern` is a name or a regular expression.
    """
    values: dict[str, Any] = {"recipe": arm.recipe}
    if arm.source is not None:
        values |= {arm.recipe: arm.source, "revision": revision}
    else:
        values |= _flat("bpe", arm.bpe)
        for name in ("forbid", "forced_tokens", "min_pretoken_count", "parallel", "ratios"):
            if name not in arm.bpe.wanted:  # records of earlier versions lack them
                del values[f"bpe.{name}"]
    if arm.trained:
        values |= {
            "vocab_size": arm.vocab_size,
            "pattern": arm.pattern.regex if arm.pattern.name == "custom" else arm.pattern.name,
        }
    if arm.recipe == "superbpe":
        values |= _flat("superbpe", arm.superbpe)
    lm = config.lm
    if lm.tune_rates:
        values["lm.tune_rates"] = lm.tune_rates
    groups = {
        "corpus": config.corpus,
        "shards": config.shards,
        "lm.model": model,
        "lm.train": lm.train,
        "budget": config.budget,
    }
    for name, group in groups.items():
        values |= _flat(name, group)
    decisive = {key: value for key, value in values.items() if key not in _LEFT_OUT}
    settings: dict[str, Any] = json.loads(json.dumps(decisive))
    return settings


def _flat(name: str, part: Any) -> dict[str, Any]:
    return {f"{name}.{key}": value for key, value in dataclasses.asdict(part).items()}

"""The resolved settings of an arm and of its models, which distinguish arms of several runs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from lm.train.config import FREE_TO_CHANGE

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.config import Config

# These do not affect the result, or another setting decides: `vocab_size`, `lm.train.train_bytes`.
_LEFT_OUT = {
    *("bpe.vocab_size", "bpe.train_size", "superbpe.vocab_size"),
    *("corpus.batch_bytes", "corpus.document_limit_bytes", "shards.tokens_per_shard"),
    *("budget.train_bytes", "budget.train_flops", "budget.ladder", "budget.tolerance", "lm.train.seed"),
    *(f"lm.train.{name}" for name in FREE_TO_CHANGE),
}


def resolved(config: Config, arm: Arm, revision: str | None = None) -> dict[str, Any]:
    """Return the settings that decide an arm's tokenizer and its models, apart from the seed, with JSON values.

    Args:
        config: The experiment.
        arm: The arm.
        revision: Commit of the repository that the tokenizer was loaded from.

    Returns:
        Values by flat key, such as `superbpe.max_words`. `vocab_size` is the size of the trained vocabulary, `pattern`
        is a name or a regular expression, and only one of `superbpe.transition` and `superbpe.transition_merges` is
        there.
    """
    found: dict[str, Any] = {"recipe": arm.recipe}
    if arm.source is not None:
        found |= {arm.recipe: arm.source, "revision": revision}
    else:
        found |= _flat("bpe", arm.bpe)
    if arm.trained:
        found |= {"vocab_size": arm.vocab_size, "pattern": arm.pattern.regex or arm.pattern.name}
    if arm.recipe == "superbpe":
        found |= _flat("superbpe", arm.superbpe)
        keys = {"superbpe.transition", "superbpe.transition_merges"}
        del found[(keys - {arm.transition_key}).pop()]
    return _kept(found | _flat("corpus", config.corpus) | _flat("shards", config.shards)) | of_models(config)


def of_models(config: Config) -> dict[str, Any]:
    """Return the part of `resolved` that decides the models of one budget."""
    lm = config.lm
    tuned = {"lm.tune_rates": lm.tune_rates} if lm.tune_rates else {}
    return _kept(_flat("lm.model", lm.model) | _flat("lm.train", lm.train) | tuned | _flat("budget", config.budget))


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if key not in _LEFT_OUT}
    settings: dict[str, Any] = json.loads(json.dumps(kept))
    return settings


def _flat(name: str, part: Any) -> dict[str, Any]:
    return {f"{name}.{key}": value for key, value in dataclasses.asdict(part).items()}

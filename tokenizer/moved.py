"""Old module names, accepted with a warning until version 0.3."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

MOVED = {
    "lm.bytewise": "lm.bytelevel.byte_model",
    "lm.cache": "lm.model.kv_cache",
    "lm.checkpoint": "lm.model.weights",
    "lm.comparison": "lm.evaluate.comparison",
    "lm.cost": "lm.evaluate.cost",
    "lm.covering_tree": "lm.bytelevel.path_tree",
    "lm.covers": "lm.bytelevel.tokenization_paths",
    "lm.device": "lm.model.device",
    "lm.diagnostics": "lm.train.diagnostics",
    "lm.eval_config": "lm.evaluate.config",
    "lm.evaluation": "lm.evaluate.evaluation",
    "lm.export": "lm.hf.export",
    "lm.export_check": "lm.hf.export_check",
    "lm.generation": "lm.model.generation",
    "lm.harness": "lm.evaluate.harness",
    "lm.interrupt": "lm.train.interrupt",
    "lm.language_model": "lm.model.language_model",
    "lm.loss": "lm.model.loss",
    "lm.model_config": "lm.model.config",
    "lm.optim": "lm.train.optim",
    "lm.packing": "lm.model.packing",
    "lm.parallel": "lm.train.distributed",
    "lm.run": "lm.train.trainer",
    "lm.scores": "lm.evaluate.bits_per_byte",
    "lm.scoring": "lm.evaluate.scoring",
    "lm.scripts": "lm.data.scripts",
    "lm.shard_writer": "lm.data.shard_writer",
    "lm.sharding": "lm.data.sharding",
    "lm.shards": "lm.data.shards",
    "lm.shared_evaluation": "lm.evaluate.distributed",
    "lm.significance": "lm.evaluate.significance",
    "lm.stranger": "lm.hf.fresh_process",
    "lm.stream": "lm.data.stream",
    "lm.token_statistics": "lm.evaluate.token_statistics",
    "lm.train_config": "lm.train.config",
    "lm.training": "lm.train.loop",
    "lm.undertrained": "lm.evaluate.undertrained",
    "lm.windows": "lm.evaluate.windows",
    "lm.witnesses": "lm.bytelevel.continuations",
    "superbpe.contexts": "superbpe.inspection.contexts",
    "superbpe.history": "superbpe.inspection.history",
    "superbpe.kinds": "superbpe.inspection.kinds",
    "superbpe.measures": "superbpe.inspection.measures",
    "superbpe.tokens": "superbpe.inspection.tokens",
    "tokenizer.bpe": "tokenizer.tokenizer",
    "tokenizer.checkpoint": "tokenizer.train.checkpoint",
    "tokenizer.counting": "tokenizer.train.counting",
    "tokenizer.embedded": "tokenizer.corpus.embedded",
    "tokenizer.formats.alphabet": "tokenizer.alphabet",
    "tokenizer.hf_batches": "tokenizer.hf.batches",
    "tokenizer.hf_encoding": "tokenizer.hf.encoding",
    "tokenizer.origins": "tokenizer.corpus.origins",
    "tokenizer.pretrained.external": "tokenizer.external.tokenizer",
    "tokenizer.pretrained.hub": "tokenizer.external.hub",
    "tokenizer.pretrained.software": "tokenizer.external.software",
    "tokenizer.rows": "tokenizer.corpus.rows",
    "tokenizer.summary": "tokenizer.train.summary",
    "tokenizer.training": "tokenizer.train.bpe",
    "tokenizer.vocabulary": "tokenizer.spelling",
}
"""Old module name to new module name."""


class _OldNames(MetaPathFinder, Loader):
    """Import a moved module by its old name. Python calls it only for modules that do not exist."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {MOVED[spec.name]}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which was imported by its new name, its own spec back."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def accept_old_names() -> None:
    """Make old module names importable."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())


def attribute(package: str, module: str, name: str) -> Any:
    """Look up an attribute that was in a package's old module; for the `__getattr__` of that package.

    Raises:
        AttributeError: the module does not have the attribute either.
    """
    value = None if name.startswith("__") else getattr(importlib.import_module(module), name, None)
    if value is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warnings.warn(f"import {name} from {module} instead of {package}", DeprecationWarning, stacklevel=3)
    return value

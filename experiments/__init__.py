"""Experiments: the command `superbpe`, the stages of an experiment, their artifacts and reports.

The work of the main commands as functions:

>>> from experiments import choose_tokenizers, compare_runs, inspect_vocabulary, measure_fertility, run_pipeline
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.api import compare_runs as compare_runs
    from experiments.api import inspect_vocabulary as inspect_vocabulary
    from experiments.api import run_pipeline as run_pipeline
    from experiments.fertility.choice import choose_tokenizers as choose_tokenizers
    from experiments.fertility.fertility import measure_fertility as measure_fertility
    from experiments.given_models import score_models as score_models

# How long waiting threads (GNU OpenMP) spin before they sleep; it must be set before Torch is imported. With the
# default, another busy process can stall a training step for seconds. This low value costs nothing on an idle machine,
# while sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs 25 % there (2 cores, the demo's model).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

_MODULES = {
    "choose_tokenizers": "fertility.choice",
    "compare_runs": "api",
    "inspect_vocabulary": "api",
    "measure_fertility": "fertility.fertility",
    "run_pipeline": "api",
    "score_models": "given_models",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a function's module when the function is first used, so that importing one module stays cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f"experiments.{_MODULES[name]}"), name)
    return value

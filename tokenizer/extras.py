"""Names the extra to install when a package of ours imports a package that is not installed."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

DISTRIBUTION = "superbpe-framework"
EXTRA_OF = {
    "accelerate": "eval",
    "aiohttp": "cloud",
    "altair": "pages",
    "datasets": "hf",
    "filelock": "experiments",
    "fsspec": "cloud",
    "gguf": "hf",
    "huggingface_hub": "hf",
    "hydra": "experiments",
    "jinja2": "pages",
    "lm_eval": "eval",
    "markupsafe": "pages",
    "omegaconf": "experiments",
    "pyarrow": "parquet",
    "ray": "ray",
    "safetensors": "lm",
    "scipy": "lm",
    "submitit": "sweep",
    "sentencepiece": "hf",
    "sortedcontainers": "experiments",
    "tiktoken": "hf",
    "tokenizers": "hf",
    "torch": "lm",
    "transformers": "hf",
    "vl_convert": "pages",
    "wandb": "experiments",
    "zstandard": "experiments",
}
"""Smallest extra of pyproject.toml that installs each importable package."""
PACKAGES = {"tokenizer", "superbpe", "lm", "configs", "experiments"}
"""Packages of this distribution."""


class MissingExtra(UserError, ModuleNotFoundError):
    """A package is missing that an extra installs."""


class _Extras(MetaPathFinder):
    """Raise `MissingExtra` for an import statement of ours. Python calls it only for modules that do not exist."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in EXTRA_OF and _importer() in PACKAGES:
            raise MissingExtra(
                f"the package {name} is not installed; install it with: pip install '{DISTRIBUTION}[{EXTRA_OF[name]}]'"
            )
        return None


def _importer() -> str:
    """Package whose import statement is running; `importlib.util.find_spec` and other packages only probe."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith("<frozen importlib._bootstrap") and frame.f_back:
        frame = frame.f_back
    # A module run with `python -m` is called `__main__`; its package keeps its name.
    return str(frame.f_globals.get("__package__") or "").partition(".")[0]


def name_missing_extras() -> None:
    """Make imports of missing packages name the extra."""
    if not any(isinstance(finder, _Extras) for finder in sys.meta_path):
        sys.meta_path.append(_Extras())

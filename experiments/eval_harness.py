"""lm-eval's own command line with our models: `superbpe lm-eval run --model superbpe --model_args path=FOLDER ...`.

lm-eval has no entry points for models of other packages, so the name "superbpe" is known once this module is imported.
All other arguments are lm-eval's. `path` is a model's folder, as for `python -m experiments.generate`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lm_eval.api.registry import register_model

from experiments.cli.console import exit_code
from experiments.store.trained_models import open_model
from lm.evaluate.harness import HarnessModel, Scoring
from lm.model.language_model import LanguageModel


@register_model("superbpe")
class SavedModel(HarnessModel):
    """A model for lm-eval by name.

    Args:
        path: Folder of the model.
        tokenizer: Folder or file of the tokenizer, if it is neither in `path` nor among the same artifacts.
        scoring: As in `HarnessModel`.
        device: "auto", "cpu" or "cuda".
        batch_size: Maximum number of texts that are generated at once; "auto" for the default.
        max_batch_size: Unused; part of lm-eval's interface.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str | None = None,
        scoring: Scoring = "bytes",
        device: str | None = None,
        batch_size: int | str = "auto",
        max_batch_size: int | None = None,
    ) -> None:
        folder = None if tokenizer is None else Path(tokenizer)
        if device in (None, "cuda:0"):  # lm-eval's default, with and without CUDA
            device = "auto"
        lm = LanguageModel(*open_model(Path(path), folder, device=device))
        rows = {"batch_rows": int(batch_size)} if str(batch_size).isdecimal() else {}
        options: dict[str, Any] = {"scoring": scoring, **rows}
        super().__init__(lm, **options)


def run(argv: list[str] | None = None) -> int:
    """Run lm-eval's command; return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    before, sys.argv = sys.argv, ["lm-eval", *arguments]
    try:
        from lm_eval.__main__ import cli_evaluate

        return exit_code(cli_evaluate, "lm-eval writes no results")
    finally:
        sys.argv = before


if __name__ == "__main__":
    sys.exit(run())

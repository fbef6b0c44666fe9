"""The command line of every stage: Hydra, with errors for people.

A user's mistake ends in one line with its remedy and exit code 2; Ctrl-C in a line that says how to continue
and exit code 130; anything else is our mistake and keeps its traceback (exit code 1).
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from rich.text import Text

from experiments.compose import check, largest_size, to_config
from experiments.console import complain, console, stderr
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def main(stage: str) -> None:
    """Run every stage up to `stage` as the command line says, and exit.

    Under `torchrun` the first process does so, and the others join in when it trains a model.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        sys.exit(run(stage, sys.argv[1:]))
    from lm import parallel, training  # Torch takes a second to load

    try:
        code = parallel.launch(lambda: run(stage, sys.argv[1:]), training.join)
    except UserError as error:
        complain(error)
        code = 2
    sys.exit(code)


def run(stage: str, argv: list[str]) -> int:
    """Run every stage up to `stage`; return the exit code.

    Args:
        stage: One of `experiments.pipeline.STAGES`.
        argv: The command line: overrides, and Hydra's own flags such as `--multirun` and `--cfg job`.
    """
    arguments = get_args_parser().parse_intermixed_args(argv)
    # Hydra itself understands flags only before or after all overrides, not among them.
    argv = [word for word in argv if word not in arguments.overrides] + arguments.overrides
    failures: list[BaseException] = []
    try:
        swept = check(arguments.overrides, arguments.config_name, arguments.config_dir, sweep=arguments.multirun)
        if "bpe.vocab_size" in swept:
            argv = [*argv, *largest_size(swept["bpe.vocab_size"], arguments.overrides)]
        _hydra(stage, argv, list(swept), failures)
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        stderr.print("\ninterrupted: the same command continues where this one stopped", style="yellow")
        return 130
    if failures and arguments.multirun:
        stderr.print(f"{len(failures)} of the runs failed; the same command repeats only what is missing", style="red")
    if not failures:
        return 0
    return 2 if all(isinstance(failure, UserError) for failure in failures) else 1


def _hydra(stage: str, argv: list[str], swept: list[str], failures: list[BaseException]) -> None:
    """Let Hydra run the job, once or once per cell of a sweep."""
    parent = os.getpid()

    def job(cfg: DictConfig) -> None:  # launchers pickle it by value: everything else is in `_job`
        _job(cfg, stage, parent, swept, failures)

    # Hydra otherwise turns every exception into its own message and exit code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    before = sys.argv
    sys.argv = [before[0], *argv]
    try:
        decorated: Any = hydra.main(version_base="1.3", config_path="pkg://configs", config_name="config")(job)
        decorated()
    except PermissionError as error:
        raise UserError(
            f"cannot write {error.filename} here; go elsewhere, or name a folder with hydra.run.dir=FOLDER"
        ) from None
    finally:
        sys.argv = before


def _job(cfg: DictConfig, stage: str, parent: int, swept: list[str], failures: list[BaseException]) -> None:
    from experiments import pipeline  # which imports this module

    cell = [text for text in HydraConfig.get().overrides.task if text.partition("=")[0] in swept]
    if cell:
        console.rule(Text(" ".join(cell)), align="left")
    try:
        pipeline.run(to_config(cfg), stage, Path(HydraConfig.get().runtime.output_dir))
    except Exception as error:
        # Reported here, not by Hydra, so that the other cells of a sweep go on and a mistake shows no
        # traceback.
        if isinstance(error, UserError):
            complain(error)
        else:
            traceback.print_exc()
        if os.getpid() != parent:  # a launcher's worker process: the parent learns of it from Hydra
            raise
        failures.append(error)

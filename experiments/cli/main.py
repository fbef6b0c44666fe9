"""The command line of every stage: Hydra, with readable errors.

A user error prints one line with its remedy (exit code 2). Ctrl-C prints how to resume (exit code 130), and so does
SIGTERM (143). Any other exception is a bug and keeps its traceback (exit code 1).
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from rich.text import Text

from experiments.cli import sweep
from experiments.cli.compose import check, current_names, hydra_settings, keys, known_keys, largest_size, to_config
from experiments.cli.console import Reporter, complain, console, finish, spell, stderr, storage_error
from experiments.cli.help import show_help
from experiments.cli.signals import describe, restore, stoppable, unmasked
from experiments.logging.metrics import Labels
from experiments.store import runs
from experiments.store.manifest import COMMAND, command_line
from experiments.store.runs import Recorder, Run
from tokenizer.errors import UserError
from tokenizer.urls import is_remote, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from omegaconf import DictConfig

# The command that continues after a stage.
_NEXT = {
    "count": "train-bpe",
    "train_bpe": "train-superbpe",
    "train_superbpe": "shard",
    "shard_corpus": "train-lm",
    "train_lm": "evaluate",
    "evaluate": "pipeline",
}
# Flags that make Hydra print something instead of running the job.
_PRINTS = ("hydra_help", "cfg", "info", "shell_completion")


def main(stage: str, experiment: str | None = None) -> None:
    """Run every stage up to `stage` as configured on the command line, and exit.

    Under `torchrun`, rank 0 runs the stages; the other ranks take part in training and evaluation.

    Args:
        stage: One of `experiments.pipeline.STAGES`.
        experiment: Experiment to run if the command line names none; None for the default.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        sys.exit(run(stage, sys.argv[1:], experiment))
    from lm.evaluate import distributed as distributed_evaluation  # Torch takes a second to load
    from lm.train import distributed, loop  # Torch takes a second to load

    restore()  # rank 0 handles signals while it runs a stage; the other ranks end on them

    def join(job: dict[str, Any]) -> None:
        (distributed_evaluation if distributed_evaluation.is_ours(job) else loop).join(job)

    try:
        code = distributed.launch(lambda: run(stage, sys.argv[1:], experiment), join)
    except UserError as error:
        complain(error)
        code = 2
    sys.exit(code)


def run(stage: str, argv: list[str], experiment: str | None = None) -> int:
    """Run every stage up to `stage`; return the exit code.

    Args:
        stage: As for `main`.
        argv: The command line: overrides, and Hydra's own flags such as `--multirun` and `--cfg job`.
        experiment: As for `main`.
    """
    spell(_keys_of_the_corpus)
    if experiment is not None and not any(word.startswith("experiment=") for word in argv):
        argv = [*argv, f"experiment={experiment}"]
    try:
        arguments = _arguments(argv)
    except UserError as error:
        complain(error)
        return 2
    if arguments.help:
        show_help(experiment or stage)
        return 0
    arguments.overrides, notes = current_names(written := arguments.overrides)
    for note in notes:
        stderr.print(f"warning: {note}", style="yellow", soft_wrap=True)
    # Hydra accepts flags only before or after all overrides, not between them.
    argv = [word for word in argv if word not in written] + arguments.overrides
    try:
        with stoppable():
            return _run(stage, arguments, argv)
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt as stop:
        how, code = describe(stop)
        stderr.print(f"\n{how}: the same command continues where this one stopped", style="yellow")
        return code


def _keys_of_the_corpus() -> dict[str, str]:
    """Keys of the corpus by the keyword arguments of the library; without names that other groups have, too."""
    names = [key.rpartition(".")[2] for key in keys() if not key.startswith("arms.")]
    once = (key for key in keys() if key.startswith("corpus.") and names.count(key.partition(".")[2]) == 1)
    return {f"{key.partition('.')[2]}=": f"{key}=" for key in once}


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Parse Hydra's flags. Settings written as flags (`--key=value`) are the most likely mistake."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        flags = [word for word in argv if word.startswith("--") and word in message]
        raise UserError(f"{message}; settings are written KEY=VALUE, without dashes{_meant(flags)}")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(argv)


def _meant(flags: Sequence[str]) -> str:
    """Name the settings that unknown flags such as `--transition` probably mean."""
    names = [flag.lstrip("-").partition("=")[0].replace("-", "_") for flag in flags]
    found = [key for name in names for key in known_keys() if key.rpartition(".")[2] == name]
    return f": {' or '.join(f'{key}=…' for key in found)}" if found else "; --help shows the main ones"


def _run(stage: str, arguments: argparse.Namespace, argv: list[str]) -> int:
    multirun = arguments.multirun or "hydra.mode=MULTIRUN" in arguments.overrides
    swept = check(arguments.overrides, arguments.config_name, arguments.config_dir, sweep=multirun)
    if "bpe.vocab_size" in swept:
        argv = [*argv, *largest_size(swept["bpe.vocab_size"], arguments.overrides)]
    codes: list[int] = []
    if not multirun or any(getattr(arguments, flag) for flag in _PRINTS):
        _hydra(stage, argv, [], codes)
        return max(codes, default=0, key=_gravity)
    settings = hydra_settings(arguments.overrides, arguments.config_name, arguments.config_dir)
    folder, n_cells = settings.folder, sweep.number_of_cells(swept)
    shares = sweep.share_out(
        settings.launcher,
        settings.launcher_name,
        n_cells,
        settings.threads,
        explicit=any(text.startswith("hydra.launcher.n_jobs=") for text in arguments.overrides),
    )
    if shares.warning:
        stderr.print(f"warning: {shares.warning}", style="yellow")
    sweep.begin(folder)
    gave_up, stopped = None, False
    try:
        # The folder's name contains the time, so it is fixed here: `runs.find` has to know where the records are.
        _hydra(stage, [*argv, *shares.overrides, f"hydra.sweep.dir='{folder}'"], list(swept), codes)
    except Exception as error:
        gave_up = error  # cells do not raise, so the launcher failed; for instance, its process was killed
        if isinstance(error, UserError) or not runs.find(folder):
            raise
    except KeyboardInterrupt:
        stopped = True
        raise
    finally:
        cells = sweep.finish(folder, n_cells, stopped=stopped)
    if gave_up is not None:
        reason = " ".join(str(gave_up).split())
        stderr.print(f"the launcher failed: {type(gave_up).__name__}: {reason}", style="red", soft_wrap=True)
        return 1
    return max((cell.exit_code for cell in cells if cell.exit_code is not None), default=0, key=_gravity)


def _gravity(code: int) -> int:
    """Order exit codes by severity: a bug (1) is worse than a user error (2)."""
    return {0: 0, 2: 1}.get(code, 2)


def _hydra(stage: str, argv: list[str], swept: list[str], codes: list[int]) -> None:
    """Run the job with Hydra, once or once per cell of a sweep."""
    parent, command = os.getpid(), command_line()

    def job(cfg: DictConfig) -> None:  # launchers pickle this function by value, so it only calls `_job`
        if elsewhere := os.getpid() != parent:
            os.environ[COMMAND] = command
        codes.append(_job(cfg, stage, swept, elsewhere=elsewhere))

    # Otherwise Hydra replaces every exception by its own message and exit code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    before, handlers = sys.argv, logging.root.handlers[:]
    sys.argv = [before[0], *argv]
    try:
        decorated: Any = hydra.main(version_base="1.3", config_path="pkg://configs", config_name="config")(job)
        decorated()
    except OSError as error:
        known = storage_error(error, "the folder of this run")
        if known is None and isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError):
            known = UserError(f"cannot make the folder {error.filename} ({error.strerror})")
        if known is None:
            raise
        raise UserError(f"{known}. To use another folder, add hydra.run.dir=FOLDER") from None
    finally:
        sys.argv = before
        logging.root.handlers[:] = handlers  # remove the run's handlers, which write into its folder


def _job(cfg: DictConfig, stage: str, swept: list[str], *, elsewhere: bool) -> int:
    """Run one cell, write its record, and return its exit code.

    Only `KeyboardInterrupt` is raised: a failed cell must not stop the others, and launchers do not handle exceptions.
    """
    from experiments import pipeline  # slow to import, and not needed for `--help`

    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    # As written: the value of ${oc.env:NAME} may be secret.
    overrides: list[str] = OmegaConf.to_container(hydra_config.overrides.task, resolve=False)  # type: ignore[assignment]
    cell = [text for text in overrides if text.partition("=")[0].lstrip("+") in swept]
    number = hydra_config.job.num if swept else None
    if cell and not elsewhere:
        console.rule(Text(" ".join(cell)), align="left")
    store = shown(cfg.artifacts) if is_remote(cfg.artifacts) else str(Path(cfg.artifacts).resolve())
    recorder = Recorder(Run(str(folder), stage, overrides, cell, number, store=store), folder)
    try:
        config = to_config(cfg, overrides)
        recorder.run.budgets, recorder.run.budget_unit = config.budget.rungs(), config.budget.unit
        # Processes that share a terminal do not draw progress bars.
        reporter = Reporter(prefix=f"[{number}] ", bars=False) if elsewhere else Reporter()
        for handler in logging.root.handlers:
            if isinstance(handler, logging.FileHandler):
                reporter.say(f"log: {handler.baseFilename}", style="dim")
        with unmasked():
            outcome = pipeline.run(
                config,
                stage,
                folder,
                reporter=reporter,
                on_artifact=recorder.uses,
                labels=_labels(folder, stage, cell),
            )
        recorder.done(outcome.result, outcome.page, outcome.rungs)
        if number is None:
            finish(folder, then=[_NEXT[stage], *overrides] if stage in _NEXT else ["robustness", folder])
    except Exception as problem:
        error = (isinstance(problem, OSError) and storage_error(problem, str(folder))) or problem
        # Handled here and not by Hydra: the other cells of a sweep continue, and a user error has no traceback.
        recorder.failed(error)
        if isinstance(error, UserError):
            complain(error)
        else:
            traceback.print_exc()
    except KeyboardInterrupt:
        recorder.interrupted()
        raise
    return recorder.run.exit_code or 0


def _labels(folder: Path, stage: str, cell: list[str]) -> Labels:
    """Name a run: cells of a sweep form a group and are named by their values, a single run by its folder."""
    group = folder.parent if cell else folder
    job_type = "pipeline" if stage == "report" else stage
    return Labels(f"{group.parent.name}/{group.name}", " ".join(cell) or group.name, job_type)

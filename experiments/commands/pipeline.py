"""`superbpe pipeline KEY=VALUE...`: stages of an experiment, from text to report, or `--until` one of them.

Trains the tokenizers of all arms on a corpus and language models for each, compares them by loss per byte, and writes a
report. Stages whose results exist are skipped, so after an interruption the same command resumes.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from rich.text import Text

from experiments.cli import sweep
from experiments.cli.arguments import Parser
from experiments.cli.console import complain, complain_of_bug, finish, spell, spelled, system_error
from experiments.cli.process import stoppable
from experiments.compose import check, choices, first_cell, helped, keys, normalized, to_config
from experiments.logging.tracking import Labels
from experiments.progress import Reporter, console
from experiments.shell import setting
from experiments.stages import STAGES
from experiments.store import records
from experiments.store.manifest import COMMAND, command_line
from experiments.store.records import Record
from tokenizer.errors import UserError, did_you_mean, missing_extra, quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hydra.conf import HydraConf
    from omegaconf import DictConfig

    from experiments.findings.compared import Findings

_EXAMPLES = """\
examples:
  superbpe pipeline                         # the demonstration on the embedded corpus
  superbpe pipeline experiment=bakeoff      # two tokenizers, two budgets, three seeds
  superbpe pipeline experiment=small corpus=files 'corpus.paths=[data/*.jsonl.zst]'
  superbpe pipeline --until train-superbpe superbpe=uw-2025 superbpe.transition=0.8
  superbpe pipeline --multirun superbpe.transition=0.7,0.8,0.9 hydra/launcher=joblib"""


class _PipelineParser(Parser):
    """Settings written as flags (`--key=value`) are the most likely mistake."""

    def spelling(self) -> dict[str, str]:
        """Keys of the configuration by the keyword arguments of the library; without names that several groups have."""
        names = [key.rpartition(".")[2] for key in keys()]
        return {f"{name}=": f"{key}=" for key in keys() if names.count(name := key.rpartition(".")[2]) == 1}

    def error(self, message: str) -> NoReturn:
        """Print the message, with the settings that unknown flags such as `--transition` probably mean, and exit."""
        flags = [word.partition("=")[0] for word in self._words if word.startswith("--")]
        names = [flag[2:].replace("-", "_") for flag in flags if flag not in self._option_string_actions]
        if meant := [f"{key}=…" for name in names for key in (*keys(), "experiment") if key.rpartition(".")[2] == name]:
            complain(UserError(f"settings are written KEY=VALUE, without dashes: {' or '.join(meant)}"))
            self.exit(2)
        super().error(message)

    def format_help(self) -> str:
        """The flags, the main settings and examples."""
        settings = {"experiment": "a complete set of settings", **dict(helped())}
        width = max(map(len, settings)) + 1
        lines = [_explained(key, text, width) for key, text in settings.items()]
        return "\n".join([super().format_help(), "main settings:", *lines, "", _EXAMPLES, ""])


def _explained(key: str, text: str, width: int) -> str:
    values = choices(key)
    return textwrap.fill(
        f"{text}{': ' if values else ''}{', '.join(values)}",
        get_terminal_size().columns - 1,
        initial_indent=f"  {key + '=':<{width}}  ",
        subsequent_indent=" " * (width + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def parser() -> Parser:
    """Arguments of the command."""
    options = _PipelineParser("pipeline", __doc__, "the same command continues where this one stopped")
    add = options.add_argument
    stages = [stage.replace("_", "-") for stage in STAGES]
    add("overrides", nargs="*", metavar="KEY=VALUE", help="settings, see below")
    add("--until", choices=stages, default=stages[-1], metavar="STAGE", help=f"last stage to run: {', '.join(stages)}")
    add("--multirun", "-m", action="store_true", help="run KEY=A,B,C once per value, and print a table at the end")
    add("--cfg", choices=("job", "hydra", "all"), help="print every setting with its value instead of running")
    add("--package", metavar="GROUP", help="as --cfg job, for this group only")
    add("--config-dir", metavar="FOLDER", help="folder with your own configurations")
    return options


def run(arguments: argparse.Namespace) -> int:
    """Run the stages, once or for every cell of a sweep; return the exit code.

    Raises:
        UserError: The settings are wrong; a mistake that shows during the run is printed and recorded.
    """
    if "${" in (here := str(Path.cwd())):
        raise UserError(f"Hydra cannot run in {here}, because it replaces ${{…}}; run the command in another folder")
    overrides, stage = normalized(arguments.overrides), arguments.until.replace("-", "_")
    if arguments.package is not None and arguments.cfg is None:
        arguments.cfg = "job"
    swept = check(arguments.overrides, arguments.config_dir, sweep=arguments.multirun)
    if arguments.cfg and swept:
        raise UserError(f"--cfg prints the settings of one run, but {next(iter(swept))} has several values; name one")
    if arguments.package is not None:
        settings = first_cell(arguments.overrides, arguments.config_dir)
        if not OmegaConf.is_dict(OmegaConf.select(settings, arguments.package)):
            near = did_you_mean(arguments.package, map(str, settings))
            raise UserError(f"--package {quoted(arguments.package)} is not a group of settings{near}")
    flags = [f"--{name}={value}" for name in ("cfg", "package") if (value := getattr(arguments, name)) is not None]
    if arguments.config_dir is not None:
        flags.append(f"--config-dir={Path(arguments.config_dir).resolve()}")
    codes: list[int] = []
    if not arguments.multirun or arguments.cfg:
        _hydra(stage, [*flags, *overrides], [], codes)
        return max(codes, default=0, key=_gravity)
    settings = first_cell(arguments.overrides, arguments.config_dir)
    folder, n_cells = Path(settings.hydra.sweep.dir).resolve(), math.prod(map(len, swept.values()))
    shares = sweep.share_out(
        settings.hydra.launcher,
        settings.hydra.runtime.choices["hydra/launcher"],
        n_cells,
        settings.runner.threads,
    )
    for earlier in records.cells(folder):  # of a sweep into the same folder
        (Path(earlier.folder) / records.FILE).unlink()
    # The folder's name contains the time, so it is fixed here: `records.cells` has to know where the records are.
    argv = [*flags, "--multirun", *overrides, *shares, setting("hydra.sweep.dir", str(folder))]
    failure, stopped = None, False
    try:
        _hydra(stage, argv, list(swept), codes)
    except Exception as error:
        failure = error  # cells do not raise, so the launcher failed; for instance, its process was killed
        if isinstance(error, UserError) or not records.cells(folder):
            raise
    except KeyboardInterrupt:
        stopped = True
        raise
    finally:
        cells = sweep.summarize(folder, n_cells, stopped=stopped)
    if failure is not None:
        reason = " ".join(str(failure).split())
        complain(UserError(f"the launcher failed: {type(failure).__name__}: {reason}"))
        return 1
    return max((cell.exit_code for cell in cells if cell.exit_code is not None), default=0, key=_gravity)


def _gravity(code: int) -> int:
    """Order exit codes by severity: a bug (1) is worse than a user error (2)."""
    return {0: 0, 2: 1}.get(code, 2)


def _hydra(stage: str, argv: list[str], swept: list[str], codes: list[int]) -> None:
    """Run the job with Hydra, once or once per cell of a sweep."""
    parent, command, inherited = os.getpid(), command_line(), os.environ.get(COMMAND)

    def job(cfg: DictConfig) -> None:  # launchers pickle this function by value, so it only calls `_job`
        os.environ[COMMAND] = command  # Hydra needs another `sys.argv`
        codes.append(_job(cfg, stage, swept, elsewhere=os.getpid() != parent))

    # Otherwise Hydra replaces every exception by its own message and exit code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    before, handlers = sys.argv, logging.root.handlers[:]
    sys.argv = [before[0], *argv]
    try:
        decorated: Any = hydra.main(version_base="1.3", config_path="pkg://configs", config_name="config")(job)
        decorated()
    except (OSError, RuntimeError) as error:
        mistake = system_error(error, "the folder of this run")
        if mistake is None and isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError):
            mistake = UserError(f"cannot make the folder {error.filename} ({error.strerror})")
        if mistake is None:
            raise
        raise UserError(f"{mistake}. To use another folder, add hydra.run.dir=FOLDER") from None
    finally:
        sys.argv = before
        os.environ.pop(COMMAND, None)
        os.environ.update({COMMAND: inherited} if inherited else {})
        logging.root.handlers[:] = handlers  # remove the run's handlers, which write into its folder


def _job(cfg: DictConfig, stage: str, swept: list[str], *, elsewhere: bool) -> int:
    """Run one cell, write its record, and return its exit code.

    Only `KeyboardInterrupt` is raised: a failed cell must not stop the others, and launchers do not handle exceptions.
    """
    from experiments import pipeline  # slow to import, and not needed for `--help`

    if elsewhere:
        spell(parser().spelling())
    # The log is an extra: if its disk is full, the files that matter fail too, and say so in one line.
    logging.raiseExceptions = False
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    # As written: the value of ${oc.env:NAME} may be secret.
    overrides: list[str] = OmegaConf.to_container(hydra_config.overrides.task, resolve=False)  # type: ignore[assignment]
    cell = [text for text in overrides if text.partition("=")[0].lstrip("+") in swept]
    number = hydra_config.job.num if swept else None
    if cell and not elsewhere:
        console.rule(Text(" ".join(cell)), align="left")
    record = None
    try:
        home = hydra_config.sweep.dir if swept else None
        record = Record(str(folder), overrides, cell, number, store=records.recorded_place(cfg.artifacts), sweep=home)
        record.save()
        config = to_config(cfg, overrides)
        reporter = Reporter(prefix=f"[{number}] ", alone=False) if elsewhere else Reporter()
        for handler in logging.root.handlers:
            if isinstance(handler, logging.FileHandler):
                reporter.say(f"log: {handler.baseFilename}", style="dim")
        with stoppable():
            outcome = pipeline.run(
                config,
                stage,
                folder,
                reporter=reporter,
                on_artifact=record.uses,
                labels=_labels(folder, stage, cell),
            )
        record.done(outcome.records, outcome.page)
        if number is None:
            then = outcome.step.follow(reporter) if outcome.step else ()
            finish(folder, then=then or _next(stage, outcome.rungs, hydra_config, overrides))
    except Exception as problem:
        error = system_error(problem, str(folder)) or problem
        with suppress(ModuleNotFoundError):  # a package that no extra installs
            error = missing_extra(error) if isinstance(error, ModuleNotFoundError) else error
        if isinstance(error, UserError):
            error = UserError(spelled(str(error)))
        # Handled here and not by Hydra: the other cells of a sweep continue, and a user error has no traceback.
        if record is not None:
            record.failed(error)
        if not isinstance(error, UserError):
            complain_of_bug(problem)
            return 1
        complain(error)
        return 2
    except KeyboardInterrupt as stop:
        if record is not None:
            record.failed(stop)
        raise
    return 0


def _next(stage: str, results: Sequence[Findings], run: HydraConf, overrides: Sequence[str]) -> list[Path | str]:
    """Words of the command that continues after a stage."""
    if stage == "report":
        return ["generate", results[-1].arms[0].lm.path, "--prompt", "TEXT"]
    following = STAGES[STAGES.index(stage) + 1]
    until = [] if following == "report" else ["--until", following.replace("_", "-")]
    sources = [source.path for source in run.runtime.config_sources if source.provider == "command-line"]
    return ["pipeline", *until, *(f"--config-dir={path.removeprefix('file://')}" for path in sources), *overrides]


def _labels(folder: Path, stage: str, cell: list[str]) -> Labels:
    """Name a run: cells of a sweep form a group and are named by their values, a single run by its folder."""
    group = folder.parent if cell else folder
    job_type = "pipeline" if stage == "report" else stage
    return Labels(f"{group.parent.name}/{group.name}", " ".join(cell) or group.name, job_type)

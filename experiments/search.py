"""Search for settings instead of trying all: `python -m experiments.search --trials 20 KEY=interval(0.5,0.95)`.

Settings to search are written as Hydra writes sweeps: `KEY=A,B,C`, `KEY=range(2000,8000,1000)`, `KEY=interval(0.5,0.9)`
(whole numbers if both ends are), `KEY=tag(log,interval(1e6,1e8))` for a logarithmic scale. Optuna chooses the next
values by what came out so far; every trial is a run like any other and shares its artifacts. The same command continues
a search that was stopped, up to the number of trials.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from hydra.core.override_parser.types import IntervalSweep

from experiments.cli import main as cli
from experiments.cli import sweep
from experiments.cli.compose import check, parse
from experiments.cli.console import console, exit_code
from experiments.store import runs
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_STUDY = "study.jsonl"


def run(argv: list[str] | None = None) -> int:
    """Search; return the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.search",
        description="Searches settings by Optuna: KEY=A,B,C, KEY=range(A,B,STEP), KEY=interval(A,B) or "
        "KEY=tag(log,interval(A,B)); other KEY=VALUE stay as they are.",
    )
    options.add_argument("overrides", nargs="+", metavar="KEY=VALUE")
    options.add_argument("--trials", type=int, required=True, help="how many, those of earlier sittings included")
    options.add_argument("--out", type=Path, default=Path("outputs/search"), help="folder of the search and its runs")
    options.add_argument(
        "--goal",
        default="superbpe.bits_per_byte",
        metavar="TOKENIZER.NUMBER",
        help="a column of sweep.csv (%(default)s)",
    )
    options.add_argument("--maximize", action="store_true", help="more of it is better, such as of bytes_per_token")
    options.add_argument("--seed", type=int, default=0, help="of the sampler (%(default)s)")
    options.add_argument("--stage", default="evaluate", choices=["evaluate", "report"], help="how far runs go")
    arguments = options.parse_intermixed_args(argv)
    codes: list[int] = []
    code = exit_code(lambda: codes.append(_search(arguments)), "the same command continues")
    return code or codes[0]


def _search(arguments: argparse.Namespace) -> int:
    try:
        optuna: Any = importlib.import_module("optuna")  # an extra
    except ImportError:
        raise UserError("experiments.search needs Optuna: pip install 'superbpe-framework[search]'") from None
    overrides = parse(arguments.overrides)
    space = {o.key_or_group: o for o in overrides if o.is_sweep_override()}
    fixed = [o.input_line or "" for o in overrides if not o.is_sweep_override()]
    if not space:
        raise UserError("nothing to search: give a setting several values, as superbpe.transition=interval(0.5,0.95)")
    for key in ("hydra.run.dir", "hydra.sweep.dir"):
        if any(text.startswith(f"{key}=") for text in fixed):
            raise UserError(f"{key} is chosen by the search; name its folder with --out")
    # Before hours of work: every value, and the ends of intervals, must be possible.
    check([*fixed, *(f"{key}={','.join(_ends(override))}" for key, override in space.items())], sweep=True)
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another search is at work in {folder}; wait for it, or name another folder with --out"
        ) from None
    with lock:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = optuna.storages.journal.JournalFileBackend(str(folder / _STUDY))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal),
            study_name="search",
            load_if_exists=True,
            direction="maximize" if arguments.maximize else "minimize",
            sampler=optuna.samplers.TPESampler(seed=arguments.seed),
        )
        _same_or_refuse(study, folder, {"settings": sorted(arguments.overrides), "goal": arguments.goal})
        return _go_on(optuna, study, arguments, space, fixed, folder)


def _same_or_refuse(study: Any, folder: Path, asked: dict[str, Any]) -> None:
    found = study.user_attrs.get("asked")
    if found is None:
        study.set_user_attr("asked", asked)
    elif found != asked:
        raise UserError(
            f"{folder} holds another search ({' '.join(found['settings'])}); name another folder with --out"
        )


def _go_on(
    optuna: Any,
    study: Any,
    arguments: argparse.Namespace,
    space: dict[str, Override],
    fixed: list[str],
    folder: Path,
) -> int:
    states = optuna.trial.TrialState
    for trial in study.get_trials(states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)
        study.enqueue_trial(trial.params)  # what a stopped process was at: its artifacts are there
    code = 0
    # Failed trials count too, so that a search of impossible settings ends; interrupted ones were repeated.
    while len(study.get_trials(states=(states.COMPLETE, states.PRUNED))) < arguments.trials:
        trial = study.ask()
        values = {key: _suggest(trial, key, override) for key, override in space.items()}
        place = folder / str(trial.number)
        argv = [*fixed, *(f"{key}={value}" for key, value in values.items()), f"hydra.run.dir='{place}'"]
        code = cli.run(arguments.stage, argv, cli.Trial(trial.number, list(values)))
        if code > 2:  # Ctrl-C, SIGTERM
            break
        value = None
        if code == 0:
            found = sweep.flat(runs.load(place / runs.RECORD))
            if not isinstance(value := found.get(arguments.goal), (int, float)) or not math.isfinite(value):
                numbers = ", ".join(key for key, number in found.items() if "." in key and isinstance(number, float))
                study.tell(trial, state=states.FAIL)
                raise UserError(f"--goal {arguments.goal} is no number of a run; there are: {numbers}")
        study.tell(trial, value, state=states.PRUNED if value is None else states.COMPLETE)
    sweep.finish(folder, len(list(folder.glob(f"*/{runs.RECORD}"))))
    if done := study.get_trials(states=(states.COMPLETE,)):
        best = study.best_trial
        chosen = " ".join(f"{key}={value}" for key, value in best.params.items())
        told = f"best of {len(done)} trials: {arguments.goal}={best.value:.4f} with {chosen}"
        console.print(f"{told} ({folder / str(best.number)})", style="bold", soft_wrap=True)
    return code if code > 2 or not done else 0


def _ends(override: Override) -> list[str]:
    """Return the values that stand for all of an override's."""
    value = override.value()
    if isinstance(value, IntervalSweep):
        return [str(value.start), str(value.end)]
    return list(override.sweep_string_iterator())


def _suggest(trial: Any, key: str, override: Override) -> Any:
    value = override.value()
    if not isinstance(value, IntervalSweep):
        return trial.suggest_categorical(key, list(override.sweep_string_iterator()))
    ends: tuple[Any, Any] = (value.start, value.end)
    suggest = trial.suggest_int if all(isinstance(end, int) for end in ends) else trial.suggest_float
    return suggest(key, *ends, log="log" in value.tags)


if __name__ == "__main__":
    sys.exit(run())

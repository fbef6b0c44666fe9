"""`superbpe downstream MODEL... --tasks NAMES --out FOLDER`: evaluate models on lm-eval tasks.

MODEL is an `lm-*` artifact, a folder of artifacts for all models in it, or a model from elsewhere, as for `superbpe
score`, whose tokenizer is byte-level BPE. `--tasks` names tasks of lm-eval's library,
whose data come from the hub; `--tasks list` lists them. `--tasks FOLDER` runs all tasks in a folder of YAML files.
HF_HUB_OFFLINE=1 and HF_DATASETS_OFFLINE=1 use cached data only.

Answers are scored as bytes, so token boundaries do not matter. Prints a table and writes `downstream.json`: for each
task, model and metric the value, its standard error, and the share of requests in which a token spans the boundary
between prompt and answer. `gold_bits_per_byte` is the mean over the items of the bits per byte of the right answer.

`--lm-eval run --model superbpe --model_args path=FOLDER ...` is lm-eval's own command line with our models.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections import Counter
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cli.arguments import OUT, Parser, add_loading, loading, out_folder, whole
from experiments.cli.console import finish
from experiments.given_models import WEIGHTS, GivenModel, Loading, OpenedModel, check_starts, is_elsewhere
from experiments.numbers import percent
from experiments.progress import Reporter, Table, console, stderr
from experiments.store.trained_models import find_models, load_models, open_model
from lm.bits import bits_per_byte
from tokenizer.durable import write_json
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lm.model.language_model import LanguageModel

RESULTS = "downstream.json"


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("downstream", __doc__, "no results are written")
    add = options.add_argument
    add("models", nargs="*", metavar="MODEL", help="folder lm-* or of artifacts, or a model as for score; at least one")
    add("--out", type=Path, metavar="FOLDER", help=f"{OUT}; required, except for --tasks list")
    add("--tasks", metavar="NAMES", help="tasks of lm-eval, as A,B; a folder of tasks (YAML); or list; required")
    add("--limit", type=whole(), help="use at most this many items of each task")
    add_loading(options)
    add("--lm-eval", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="run only lm-eval's own command line")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Evaluate the models and print a table."""
    needed = {"a MODEL to evaluate": arguments.models, "--tasks NAMES": arguments.tasks, "--out FOLDER": arguments.out}
    missing = [name for name, value in needed.items() if not value]
    if missing and arguments.lm_eval is None and arguments.tasks != "list":
        raise UserError(f"missing: {', '.join(missing)}")
    # Before the imports, which take seconds.
    if Path(arguments.tasks or "").is_dir() and not any(Path(arguments.tasks or "").rglob("*.yaml")):
        raise UserError(f"{arguments.tasks} has no lm-eval tasks; put their YAML files there")
    find_models([place for place in arguments.models if not is_elsewhere(place)])
    if arguments.lm_eval is not None:
        _lm_eval(arguments.lm_eval)
        return
    if arguments.tasks == "list":
        tasks = _library().all_tasks  # groups too
        console.print("\n".join(tasks), soft_wrap=True)
        return
    with out_folder(arguments.out):
        models = opened(arguments.models, loading(arguments))
        import lm.evaluate.lm_eval  # noqa: F401  (fails early if lm-eval is missing)

        manager, names = _tasks(arguments.tasks)
        results = evaluate(models, manager, names, limit=arguments.limit)
        write_json(arguments.out / RESULTS, results)
        _show(results)
    finish(arguments.out / RESULTS)


class EvaluatedModel(NamedTuple):
    """A model to evaluate, and the name of the artifact by which `compare` finds it."""

    label: str
    name: str
    open: Callable[[], LanguageModel]


def opened(places: Sequence[str], how: Loading) -> list[EvaluatedModel]:
    """Find models, and open their tokenizers.

    Args:
        places: Folders `lm-*`, folders of artifacts, or models from elsewhere.
        how: How models from elsewhere are loaded.

    Raises:
        UserError: If there is no model, or its tokenizer is not byte-level BPE.
    """
    from tokenizer.tokenizer import byte_level_bpe

    trained = [place for place in places if not is_elsewhere(place)]
    own = load_models(trained, str(how.place())) if trained else []  # imports Torch
    found = [EvaluatedModel(saved.label, saved.artifact.name, partial(getattr, saved, "lm")) for saved in own]
    names = {place: Path(place.partition("@")[0]).name for place in places if is_elsewhere(place)}
    taken = Counter([*names.values(), *(each.label for each in found)])
    labels = {place: place if taken[name] > 1 else name for place, name in names.items()}
    check_starts(how, labels.values())
    for place, label in labels.items():
        model = OpenedModel(GivenModel(label, place), how, Path("artifacts", WEIGHTS))
        byte_level_bpe(model.tokenizer.tokenizer, f"{place} cannot be scored in bytes, which needs")
        found.append(EvaluatedModel(label, model.artifact_name, model.language_model))
    return found


def _tasks(chosen: str) -> tuple[Any, list[str]]:
    """lm-eval's `TaskManager`, and the names of the tasks: all tasks of a folder, or those that are named."""
    if Path(chosen).is_dir():
        manager = _library(Path(chosen))
        if not manager.all_subtasks:
            raise UserError(f"{chosen} has no lm-eval tasks; put their YAML files there")
        return manager, sorted(manager.all_subtasks)  # those of a group run once
    manager, names = _library(), [name for name in chosen.split(",") if name]
    for name in names:
        if name not in manager.all_tasks:
            raise UserError(
                f"unknown task {name!r}{did_you_mean(name, manager.all_tasks)}; --tasks list lists all, "
                "--tasks FOLDER takes a folder of tasks"
            )
    return manager, names


def _library(folder: Path | None = None) -> Any:
    """The tasks of a folder; without one, those of lm-eval."""
    from lm_eval.tasks import TaskManager

    if folder is None:
        Reporter(stderr).say("lm-eval reads its 14,000 files of tasks, which takes half a minute", style="dim")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return TaskManager(include_path=None if folder is None else str(folder), include_defaults=folder is None)


@cache
def register() -> None:
    """Let lm-eval know our models by the name `superbpe`; it has no entry points for models of other packages."""
    from lm_eval.api.registry import register_model

    from lm.evaluate.lm_eval import HarnessModel
    from lm.model.language_model import LanguageModel

    @register_model("superbpe")
    class SavedModel(HarnessModel):
        """A model for lm-eval; the arguments are those of `--model_args`, with the names of lm-eval."""

        def __init__(
            self,
            path: str,
            tokenizer: str | None = None,
            device: str | None = None,
            batch_size: int | str = "auto",
            max_batch_size: int | None = None,
        ) -> None:
            if device in (None, "cuda:0"):  # lm-eval's default, with and without CUDA
                device = "auto"
            folder = None if tokenizer is None else Path(tokenizer)
            if is_elsewhere(path):
                lm = opened([path], Loading(str(device)))[0].open()
            else:
                lm = LanguageModel(*open_model(Path(path), folder, device=device))
            rows = {"batch_rows": int(batch_size)} if str(batch_size).isdecimal() else {}
            super().__init__(lm, **rows)


def _lm_eval(words: Sequence[str]) -> None:
    """Run lm-eval's own command line with our models."""
    from lm_eval.__main__ import cli_evaluate

    register()
    before, sys.argv = sys.argv, ["lm-eval", *words]
    try:
        cli_evaluate()
    finally:
        sys.argv = before


def evaluate(
    models: Sequence[EvaluatedModel], manager: Any, names: Sequence[str], *, limit: int | None = None
) -> dict[str, Any]:
    """Run tasks on models.

    Args:
        models: The models.
        manager: lm-eval's `TaskManager`, which finds the tasks.
        names: Names of tasks or groups of tasks.
        limit: Maximum number of items per task.

    Returns:
        JSON-able: `models` (label, artifact, tokenizer, `HarnessModel.facts`), and `rows` with task, model, metric,
        value, stderr, n and straddle_share.

    Raises:
        UserError: If a task cannot be loaded, for example because its data are not reachable.
    """
    import datasets
    from lm_eval import simple_evaluate

    from lm.evaluate.lm_eval import HarnessModel

    datasets.disable_progress_bars()
    # lm-eval would fork processes for 1,000 resamples; after PyTorch's threads have started, they can hang.
    os.environ["DISABLE_MULTIPROC"] = "1"
    tasks: dict[str, Any] = {}
    for name in names:
        try:
            tasks |= manager.load([name])["tasks"]
        except Exception as error:  # a broken file may raise any error in lm-eval and its libraries
            why = " ".join(str(error).split())
            remedy = "; its data come from the Hugging Face hub: check the network, and unset HF_HUB_OFFLINE and "
            remedy += "HF_DATASETS_OFFLINE, or name a folder of tasks with local data, --tasks FOLDER"
            raise UserError(
                f"lm-eval cannot load the task {name} ({type(error).__name__}: {why})"
                + (remedy if isinstance(error, OSError) else "")
            ) from error
    about: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for candidate in models:
        facts, lm = {}, candidate.open()
        for task in names:
            Reporter(console).say(f"{candidate.label}: {task}", style="dim")  # each takes minutes
            harness = HarnessModel(lm)
            result = simple_evaluate(
                harness, tasks=[task], task_manager=manager, limit=limit, bootstrap_iters=1000, log_samples=True
            )
            facts[task] = harness.facts()
            for name in result["results"]:  # the tasks of a group, and the group
                rows += _rows(result, name, candidate.label, facts[task], tasks.get(name))
        of_model = {"label": candidate.label, "lm": candidate.name, "tokenizer_sha256": lm.tokenizer.sha256}
        about.append({**of_model, "tasks": facts})
    return {"models": about, "rows": rows}


def _rows(
    result: dict[str, Any], task: str, label: str, facts: dict[str, Any], definition: Any
) -> Iterator[dict[str, Any]]:
    values = result["results"][task]
    samples = result["samples"].get(task, [])
    n = len(samples) or sum(map(len, result["samples"].values()))  # a group has no samples of its own
    common = {"task": task, "model": label, "n": n, "straddle_share": facts["straddle_share"]}
    for key, value in values.items():
        metric, comma, _ = key.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        error = values.get(key.replace(metric, f"{metric}_stderr", 1))
        stderr = float(error) if isinstance(error, int | float) and math.isfinite(error) else None
        yield {**common, "metric": metric, "value": float(value), "stderr": stderr}
    by_item = {sample["doc_id"]: _gold_bits(definition, sample) for sample in samples}  # once for several filters
    bits = [value for value in by_item.values() if value is not None]
    if bits and len(bits) == len(by_item):
        stderr = stdev(bits) / math.sqrt(len(bits)) if len(bits) > 1 else None
        yield {**common, "metric": "gold_bits_per_byte", "value": fmean(bits), "stderr": stderr}


def _gold_bits(task: Any, sample: dict[str, Any]) -> float | None:
    """Bits per byte of the right answer of an item; None if it has none, or several."""
    kind, place = getattr(task, "OUTPUT_TYPE", None), 0
    if kind == "multiple_choice" and hasattr(task, "multiple_input"):
        choices = task.doc_to_choice(sample["doc"])
        gold = task.doc_to_text(sample["doc"]) if task.multiple_input else sample["target"]
        place = choices.index(gold) if gold in choices else gold
        if not isinstance(place, int) or not 0 <= place < len(choices):
            return None
    elif kind != "loglikelihood":
        return None
    _, answer = sample["arguments"][place]
    (nats, _), n_bytes = sample["resps"][place][0], len(answer.encode())
    return bits_per_byte(-nats, n_bytes) if n_bytes else None


def _show(results: dict[str, Any]) -> None:
    """Print the values of all models by task and metric, and how often tokens span the join of prompt and answer."""
    labels = [model["label"] for model in results["models"]]
    values: dict[tuple[str, str], list[str]] = {}
    straddles: dict[str, dict[str, str]] = {}
    for row in results["rows"]:
        error = "" if row["stderr"] is None else f" ± {row['stderr']:.4f}"
        values.setdefault((row["task"], row["metric"]), []).append(f"{row['value']:.4f}{error}")
        straddles.setdefault(row["task"], {})[row["model"]] = percent(row["straddle_share"])
    table = [[task, metric, *cells] for (task, metric), cells in values.items()]
    table += [[task, "straddles", *(shares[label] for label in labels)] for task, shares in straddles.items()]
    Reporter(console).table(Table("Downstream, scored by bytes", ["task", "metric", *labels], table))

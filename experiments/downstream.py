"""Evaluate models on lm-eval tasks, offline: `python -m experiments.downstream artifacts --out FOLDER`.

MODEL is an `lm-*` artifact, or a folder of artifacts for all models in it. Tasks are lm-eval's YAML files in
`--tasks FOLDER`, with local data. Without `--tasks`, two small tasks are made from held-out text: from `--text`, or
from the corpus among the artifacts.

Answers are scored as bytes, so token boundaries do not matter. Prints a table and writes `downstream.json`: for each
task, model and metric the value, its standard error, and the share of requests in which a token spans the boundary
between prompt and answer.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.console import Reporter, console, exit_code
from experiments.heldout_tasks import write_tasks
from experiments.store.artifacts import Store
from experiments.store.trained_models import Saved, load_models
from tokenizer import Corpus, CorpusConfig, storage
from tokenizer.durable import write_json
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = "downstream.json"
_SCORINGS = ("bytes", "tokens")  # those of lm.evaluate.harness, which takes seconds to import


def run(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.downstream", description="Evaluate models on lm-eval tasks, offline."
    )
    options.add_argument("models", nargs="+", metavar="MODEL", help="folder lm-*, or a folder of artifacts")
    options.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="folder for results and made tasks")
    options.add_argument("--tasks", type=Path, metavar="FOLDER", help="folder of tasks (YAML)")
    options.add_argument("--task", action="append", metavar="NAME", help="run only this task; can be repeated")
    options.add_argument("--text", nargs="+", metavar="FILE", help="held-out text to make tasks from, as corpus.paths")
    options.add_argument("--items", type=int, default=200, help="items of each made task (default 200)")
    options.add_argument("--seed", type=int, default=0, help="seed of the made tasks")
    options.add_argument("--limit", type=int, default=None, help="use at most this many items of each task")
    options.add_argument("--scoring", choices=_SCORINGS, default="bytes", help="bytes; or tokens, as lm-eval scores")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda")
    arguments = options.parse_args(argv)
    return exit_code(lambda: _run(arguments), "no results are written")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.items < 1:
        raise UserError(f"--items={arguments.items} must be at least 1")
    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit={arguments.limit} must be at least 1; leave it out for all items")
    if arguments.tasks is not None and not arguments.tasks.is_dir():
        raise UserError(f"--tasks={arguments.tasks} is not a folder; name a folder with lm-eval's YAML files")
    import lm.evaluate.harness  # noqa: F401  (fails early if lm-eval is missing)

    models = load_models(arguments.models, arguments.device)
    folder = arguments.tasks
    if folder is None:
        folder = arguments.out / "tasks"
        made = write_tasks(folder, _documents(arguments, models), n=arguments.items, seed=arguments.seed)
        what = ", ".join(f"{name}: {count} items" for name, count in made.items())
        Reporter(console).say(f"tasks: {folder} ({what})")
    results = evaluate(models, folder, arguments.task, scoring=arguments.scoring, limit=arguments.limit)
    _show(results)
    storage.disk.make_folder(arguments.out)
    write_json(arguments.out / RESULTS, results)
    Reporter(console).say(f"results: {arguments.out / RESULTS}")


def evaluate(
    models: Sequence[Saved], folder: Path, names: Sequence[str] | None, *, scoring: Any, limit: int | None = None
) -> dict[str, Any]:
    """Run tasks on models.

    Args:
        models: The models.
        folder: Folder of the tasks' YAML files.
        names: Names of the tasks; None for all tasks in the folder.
        scoring: "bytes" or "tokens", see `lm.evaluate.harness.HarnessModel`.
        limit: Maximum number of items per task.

    Returns:
        JSON-able: `models` (label, artifact, tokenizer, `HarnessModel.facts`), and `rows` with task, model, metric,
        value, stderr, n and straddle_share.

    Raises:
        UserError: If a task does not exist, or the folder has no tasks.
    """
    # Everything is local; otherwise the libraries would look for data sets online.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    import datasets
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from lm.evaluate.harness import HarnessModel

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = sorted(manager.all_tasks)
    if not found:
        raise UserError(f"{folder} has no lm-eval tasks; put their YAML files there")
    if unknown := set(names or []).difference(found):
        raise UserError(f"there is no task {sorted(unknown)[0]!r} in {folder} (there are: {', '.join(found)})")
    try:
        manager.load(list(names or found))
    except Exception as error:  # a broken file may raise any error in lm-eval and its libraries
        why = " ".join(str(error).split())
        raise UserError(f"lm-eval cannot load the tasks of {folder} ({type(error).__name__}: {why})") from error
    about: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for saved in models:
        facts = {}
        for task in names or found:
            Reporter(console).say(f"{saved.label}: {task}", style="dim")  # each takes minutes
            harness = HarnessModel(saved.lm, scoring=scoring)
            result = simple_evaluate(
                harness, tasks=[task], task_manager=manager, limit=limit, bootstrap_iters=1000, log_samples=True
            )
            facts[task] = harness.facts()
            rows += _rows(result, task, saved.label, facts[task])
        about.append(
            {
                "label": saved.label,
                "lm": saved.artifact.name,
                "tokenizer_sha256": saved.lm.tokenizer.sha256,
                "tasks": facts,
            }
        )
    return {"scoring": scoring, "models": about, "rows": rows}


def _rows(result: dict[str, Any], task: str, label: str, facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    values = result["results"][task]
    samples = result["samples"][task]
    common = {"task": task, "model": label, "n": len(samples), "straddle_share": facts["straddle_share"]}
    for key, value in values.items():
        metric, comma, _ = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        error = values.get(key.replace(metric, f"{metric}_stderr", 1))
        stderr = float(error) if isinstance(error, int | float) and math.isfinite(error) else None
        yield {**common, "metric": metric, "value": float(value), "stderr": stderr}
    nats, n_bytes = 0.0, 0
    for sample in samples:
        # Score only the correct answer of a multiple-choice item.
        if not all(len(argument) == 2 and isinstance(argument[1], str) for argument in sample["arguments"]):
            return
        right = sample["target"] if len(sample["arguments"]) > 1 else 0
        if not isinstance(right, int):
            return
        nats -= float(sample["filtered_resps"][right][0])
        n_bytes += len(sample["arguments"][right][1].encode())
    if n_bytes:
        yield {**common, "metric": "answer_bits_per_byte", "value": nats / math.log(2) / n_bytes, "stderr": None}


def _documents(arguments: argparse.Namespace, models: Sequence[Saved]) -> Iterator[str]:
    paths = arguments.text
    if paths is None:
        root = models[0].artifact.folder.parent
        found = [root / name / "heldout.jsonl.zst" for name in Store(root).names("corpus-")]
        if len(found) != 1:
            raise UserError(
                f"{root} contains {len(found)} corpora to make tasks from; name held-out text with --text FILE, or "
                "tasks with --tasks FOLDER"
            )
        paths = [str(found[0])]
    # No documents are held out here, so the training split is the whole text.
    yield from Corpus(CorpusConfig(paths=list(map(str, paths)))).documents()


def _show(results: dict[str, Any]) -> None:
    labels = [model["label"] for model in results["models"]]
    values = {(row["task"], row["metric"], row["model"]): row for row in results["rows"]}
    table = []
    for task, metric in dict.fromkeys((row["task"], row["metric"]) for row in results["rows"]):
        cells = []
        for label in labels:
            row = values[task, metric, label]
            error = "" if row["stderr"] is None else f" ± {row['stderr']:.4f}"
            cells.append(f"{row['value']:.4f}{error}")
        table.append([task, metric, *cells])
    for task in dict.fromkeys(row["task"] for row in results["rows"]):
        shares = [
            next(row for row in results["rows"] if (row["task"], row["model"]) == (task, label)) for label in labels
        ]
        table.append([task, "straddles", *(f"{row['straddle_share']:.1%}" for row in shares)])
    Reporter(console).table(f"Downstream, scored by {results['scoring']}", ["task", "metric", *labels], table)


if __name__ == "__main__":
    sys.exit(run())

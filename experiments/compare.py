"""Compare runs on one page: `python -m experiments.compare RUN...`.

RUN is the folder of a run or of a sweep (outputs/…, multirun/…). Writes `comparison.html`, a page that opens offline,
its numbers as `comparison.json` and `differences.csv`, and with `--figures` the charts for papers. Prints the table and
the verdict.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.console import Reporter, finish
from experiments.cli.options import Parser, command
from experiments.config import ReportConfig
from experiments.report.figures import FORMATS, save
from tokenizer import storage
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from experiments.stages.comparison import Result

PAGE, NUMBERS, DIFFERENCES = "comparison.html", "comparison.json", "differences.csv"


def parser() -> Parser:
    """Options of the command."""
    usual = ReportConfig()
    options = Parser("compare", (__doc__ or "").split("\n")[0])
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run or of a sweep")
    options.add_argument("--out", type=Path, default=Path("comparison"), metavar="FOLDER", help="(%(default)s)")
    options.add_argument("--title", default="Tokenizers compared", help="heading of the page")
    options.add_argument(
        "--reference", "--baseline", metavar="LABEL", help="tokenizer to compare the others with (the first BPE)"
    )
    options.add_argument("--labels", nargs="+", metavar="LABEL", help="names of the tokenizers, in the table's order")
    options.add_argument("--artifacts", metavar="FOLDER", help="where the runs' artifacts were moved to")
    options.add_argument("--downstream", type=Path, metavar="FILE", help="a downstream.json with these models' scores")
    options.add_argument(
        "--samples", type=int, default=usual.n_samples, help="prompts that every model continues (%(default)s)"
    )
    options.add_argument(
        "--figures", nargs="*", choices=FORMATS, metavar="FORMAT", help=f"write the charts: {', '.join(FORMATS)} (all)"
    )
    return options


def _run(arguments: argparse.Namespace) -> None:
    from experiments.report import combining as comparing  # imports Torch, which is slow and not needed for `--help`
    from experiments.report.comparison import figures, render
    from experiments.report.data import gather
    from experiments.report.figures import to_csv
    from experiments.stages.reporting import provenance
    from experiments.stages.verdict import detail, verdict

    if arguments.samples < 0:
        raise UserError(f"--samples {arguments.samples} must be at least 0")
    reporter = Reporter()
    done, others = comparing.find(arguments.runs)
    result, notes = comparing.combine(done, arguments.reference, arguments.artifacts)
    if arguments.downstream:
        result = comparing.with_downstream(result, arguments.downstream)
    if arguments.labels:
        result = comparing.rename(result, arguments.labels)
    settings = dataclasses.replace(ReportConfig(), title=arguments.title, n_samples=arguments.samples)
    numbers = gather(
        result,
        settings,
        demonstration=comparing.demonstration(result),
        provenance=provenance(result, [], corpus=comparing.folder_facts(done), config=""),
    )
    numbers["notes"] = [*notes, *comparing.unfinished(others)]
    storage.disk.make_folder(arguments.out)
    write_json(arguments.out / NUMBERS, numbers)
    write_whole(arguments.out / DIFFERENCES, to_csv(numbers["differences"]))
    write_whole(arguments.out / PAGE, render(numbers))
    if arguments.figures is not None:
        save(figures(numbers), arguments.out / "figures", arguments.figures or FORMATS)
    for note in numbers["notes"]:
        reporter.say(f"left out: {note}", style="yellow")
    _table(reporter, result)
    reporter.say(verdict(result), style="bold")
    reporter.say(detail(result))
    written = [arguments.out / name for name in (PAGE, NUMBERS, DIFFERENCES)]
    finish(*written, then=["robustness", arguments.runs[0]])


def _table(reporter: Reporter, result: Result) -> None:
    """One row per tokenizer."""
    from experiments.cli.console import si

    rows = []
    for each in result.arms:
        scores = each.scores
        interval = scores.bits_per_byte_interval
        rows.append(
            [
                each.label,
                f"{scores.bytes_per_token:.3f}",
                f"{scores.bits_per_byte:.4f}" + (f" ± {(interval[1] - interval[0]) / 2:.4f}" if interval else ""),
                si(each.lm.contents.summary.flops),
                si(scores.cost.decode_flops_per_byte),
            ]
        )
    head = ["", "bytes per token", "bits per byte", "training FLOPs", "inference FLOPs per byte"]
    reporter.table("Held-out text", head, rows)


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())

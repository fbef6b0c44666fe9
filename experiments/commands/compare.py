"""`superbpe compare RUN...`: compare runs on one page, or a run under other assumptions.

RUN is the folder of a run or of a sweep (outputs/…). Nothing is trained.

Without settings, it writes `comparison.html`, a page that opens offline, and its numbers, `comparison.json` and
`differences.csv`.

With settings of the model that will be deployed (deployment=dense-70b, deployment.rho=4.5), or of the weights
of the kinds of text ('eval.weights={code: 0.4, english: 0.6}'), it compares the arms of a ladder of budgets under
these assumptions, in `ladder.html` and `ladder.json`. A CSV table of points that were measured elsewhere, instead of a
run, gives the same page: a row for each arm, seed and budget, with the columns
arm,seed,flops,vocab_size,tokens_per_byte and the bits per byte of each kind or source of text
(`configs/points/public_bakeoff.csv` is an example). The first arm is the reference.

A CSV or Parquet table of losses, with the columns arm, document, bytes, nats and optionally seed, source, kind and
tokens, compares models that were scored elsewhere: a row for each arm, seed and document. It gives a table in the
terminal, `comparison.json` and `differences.csv`, and no page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.api import compare_runs
from experiments.cli.arguments import OUT, Parser, named, number, out_folder
from experiments.cli.console import finish
from experiments.progress import Reporter
from lm.tables import header
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("compare", __doc__)
    add = options.add_argument
    add("runs", nargs="*", metavar="RUN|CSV|KEY=VALUE", help="folders of runs or sweeps, or points.csv, and settings")
    add("--out", type=Path, metavar="FOLDER", help=f"{OUT} (default: comparison or ladder)")
    add("--reference", metavar="LABEL", help="tokenizer to compare the others with (default: the first BPE)")
    add("--artifacts", metavar="FOLDER", help="where the runs' artifacts were moved to")
    add("--tolerance", type=number(0), help="accepted relative difference of equal budgets (default: the runs' own)")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Write the page that the arguments choose."""
    settings = [word for word in arguments.runs if named(word)[0] is not None]
    runs = [Path(word) for word in arguments.runs if word not in settings]
    if not runs:
        raise UserError("name runs or sweeps of the same held-out text, as in: superbpe compare outputs/DAY/TIME")
    losses = runs[0].suffix == ".parquet" or bool({"document", "nats"} & {*header(runs[0])})
    table = runs[0].suffix == ".csv" and not losses
    if losses and settings:
        raise UserError(f"{settings[0]} is for a ladder of budgets, and {runs[0]} is a table of losses; leave it out")
    if arguments.reference is not None and (settings or table or losses):
        raise UserError(f"--reference {arguments.reference}: the first arm of {runs[0]} is the reference; leave it out")
    if (settings or table or losses) and len(runs) > 1:
        raise UserError(f"name one run, not {len(runs)}: {', '.join(map(str, runs))}")
    if (table or losses) and not runs[0].is_file():
        raise UserError(f"{runs[0]} does not exist; name a table of points or of losses, or the folder of a run")
    folder = "ladder" if table or settings else "comparison"
    with out_folder(arguments.out or Path(folder)) as out:
        if losses:
            from experiments.given_losses import compare_losses

            finish(*compare_losses(runs[0], out, Reporter()), then=[])
            return
        if not (table or settings):
            _compare(arguments, runs, out)
            return
        from experiments.report import over_compute

        then: Sequence[str | Path] = ["compare", runs[0], "deployment=dense-70b"] if table and not settings else []
        tolerance = arguments.tolerance
        if table:
            over_compute.compare_points(runs[0], settings, out, tolerance=tolerance)
        elif step := over_compute.reprice(runs[0], settings, out, artifacts=arguments.artifacts, tolerance=tolerance):
            then = step.follow(Reporter()) or then
        finish(out / over_compute.PAGE, out / over_compute.NUMBERS, then=then)


def _compare(arguments: argparse.Namespace, runs: list[Path], out: Path) -> None:
    reporter = Reporter()
    where = {"reference": arguments.reference, "artifacts": arguments.artifacts, "tolerance": arguments.tolerance}
    found = compare_runs(runs, **where, out=out)
    from experiments.findings.terminal import show_comparison

    then = show_comparison(reporter, found.result, found.numbers)
    for text in ["left out:", *(f"  {note}" for note in found.notes)] if found.notes else []:
        reporter.say(text, style="yellow")
    finish(*found.written, then=then)

"""Compares losses that were measured elsewhere: `superbpe compare losses.parquet`."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from experiments.findings.differences import ALL, differences_of
from experiments.numbers import percent_change, signed
from experiments.progress import Lines, Table
from lm.evaluate.bits_per_byte import KIND, SOURCE, Evaluation, Grouping
from lm.evaluate.comparison import compare_all, eligible
from lm.evaluate.config import EvalConfig
from lm.tables import Column, read_table
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError, counted, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.progress import Reporter

COLUMNS = {
    "arm": Column(),
    "document": Column(),
    "bytes": Column(int, 1),
    "nats": Column(float),
    "seed": Column(int, needed=False),
    "source": Column(needed=False),
    "kind": Column(needed=False),
    "tokens": Column(int, needed=False),
}
NUMBERS = "comparison.json"


def read_losses(path: Path) -> dict[str, list[Evaluation]]:
    """Read a table with a row for each arm, seed and document, as evaluations of each arm by seed.

    Columns: `arm`; `document`, its name; `bytes`, UTF-8 bytes of its text; `nats`, loss of all of its text; optionally
    `seed` (0), `source` and `kind` of the document, and `tokens`.

    Args:
        path: A CSV or Parquet file.

    Raises:
        UserError: If a column is missing, a value is wrong, or arms differ in their documents or the bytes of one.
    """
    rows: dict[str, dict[int, dict[str, dict[str, Any]]]] = {}
    for place, row in read_table(path, COLUMNS):
        seed = rows.setdefault(row["arm"], {}).setdefault(row["seed"] or 0, {})
        if row["document"] in seed:
            raise UserError(f"{place}: {row['arm']} has document {quoted(row['document'])} twice in one seed")
        seed[row["document"]] = row
    if len(rows) < 2:
        raise UserError(f"{path} has {counted(len(rows), 'arm')}; at least 2 are required")
    reference = next(iter(rows))
    seeds = sorted(rows[reference])
    first = rows[reference][min(rows[reference])]
    evaluations = {}
    for arm, by_seed in rows.items():
        if sorted(by_seed) != seeds:
            raise UserError(
                f"{path}: {arm} has the seeds {sorted(by_seed)}, and {reference} has {seeds}; give the same"
            )
        if not all(sum(row["nats"] for row in by_seed[seed].values()) for seed in seeds):
            raise UserError(f"{path}: the nats of {arm} are all 0, which no model reaches; check the column")
        evaluations[arm] = [_evaluation(path, arm, by_seed[seed], first) for seed in seeds]
    return evaluations


def _evaluation(path: Path, arm: str, rows: dict[str, dict[str, Any]], first: dict[str, dict[str, Any]]) -> Evaluation:
    if rows.keys() != first.keys():
        differing = next(iter(rows.keys() ^ first.keys()))
        raise UserError(f"{path}: not all arms have document {quoted(differing)}; leave it out, or add its losses")
    ordered = [rows[document] for document in first]
    for row, other in zip(ordered, first.values(), strict=True):
        for name in ("bytes", "source", "kind"):
            if row[name] != other[name]:
                raise UserError(
                    f"{path}: document {quoted(row['document'])} has {name} {row[name]} for {arm} and "
                    f"{other[name]} for {other['arm']}; losses of different texts cannot be compared"
                )
    n = len(ordered)
    groups = {
        group: Grouping.of([row[name] or "" for row in ordered])
        for group, name in ((SOURCE, "source"), (KIND, "kind"))
        if any(row[name] for row in ordered)
    }
    return Evaluation(
        config=EvalConfig(),
        tokenizer_sha256="",
        document_bytes=np.array([row["bytes"] for row in ordered], np.int64),
        document_tokens=np.array([row["tokens"] or 0 for row in ordered], np.int64),
        text_nats=np.array([row["nats"] for row in ordered], np.float64),
        eos_nats=np.full(n, np.nan),
        changed=np.zeros(n, bool),
        token_counts=np.zeros(0, np.int64),
        limited_bytes=0,
        short_context_bytes=0,
        groups=groups,
        document_hashes=np.array([xxhash.xxh3_64_intdigest(row["document"].encode()) for row in ordered], np.uint64),
    )


def compare_losses(path: Path, out: Path, reporter: Reporter) -> list[Path]:
    """Compare the arms of a table with the first one: print a table and write its numbers.

    Args:
        path: The table, as for `read_losses`.
        out: Folder for `comparison.json` and `differences.csv`.
        reporter: Prints the table.

    Raises:
        UserError: As for `read_losses`.
    """
    arms = read_losses(path)
    from experiments.report.comparison_page import DIFFERENCES  # imports Altair, which is slow
    from experiments.report.figures import to_csv

    out.mkdir(parents=True, exist_ok=True)
    names, runs = list(arms), list(arms.values())
    eligibility = eligible(runs, names)
    comparisons = compare_all(runs, eligibility)
    numbers = differences_of(names, runs, comparisons, eligibility.reasons)
    compared = [comparison.summary() for (i, _), comparison in comparisons.items() if i == 0]
    write_json(out / NUMBERS, {"source": str(path), "comparisons": compared, "differences": numbers})
    write_whole(out / DIFFERENCES, to_csv(numbers))
    reporter.table(_table(names, runs, numbers))
    for reason in filter(None, eligibility.reasons):
        reporter.say(f"no part of the verdict: {reason}", style="yellow")
    return [out / NUMBERS, out / DIFFERENCES]


def _table(names: Sequence[str], runs: Sequence[Sequence[Evaluation]], numbers: Sequence[dict[str, Any]]) -> Table:
    """The loss of each arm, and its difference from the reference, on all text and by kind."""
    loss = fmean(run.bits_per_byte for run in runs[0])
    given = all(run[0].document_tokens.any() for run in runs)
    density = runs[0][0].bytes_per_token
    rows = [[names[0], ALL, f"{density:.3f} B each" if given else "", f"{loss:.4f}", ""]]
    for row in sorted(numbers, key=lambda row: names.index(row["tokenizer"])):
        if row["reference"] != names[0] or row["tokenizer"] == names[0] or row["by"] not in (ALL, KIND):
            continue
        whole = row["by"] == ALL
        tokens = percent_change(density, row["bytes_per_token"]) if whole and given else ""
        interval = "" if row["low"] is None else f"{signed(row['low'], 2)} to {signed(row['high'], 2)}"
        change = Lines(f"{signed(row['percent'], 2)} %", interval, row["decision"], row["withheld"])
        first = [row["tokenizer"] if whole else "", ALL if whole else row["group"]]
        rows.append([*first, tokens, f"{row['bits_per_byte']:.4f}", change])
    return Table("Losses as given", ["", "text", "tokens", "bits per byte", f"against {names[0]}"], rows)

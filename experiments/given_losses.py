"""Compares losses that were measured elsewhere: `superbpe compare losses.parquet`."""

from __future__ import annotations

import math
from contextlib import suppress
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from experiments.findings.verdict import decision
from experiments.numbers import signed
from experiments.progress import Lines, Table
from experiments.report.figures import to_csv
from lm.evaluate.bits_per_byte import KIND, SOURCE, Evaluation
from lm.evaluate.comparison import compare_all, eligible
from lm.evaluate.config import EvalConfig
from lm.evaluate.texts import grouped
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError, counted, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.progress import Reporter
    from lm.evaluate.comparison import Comparison

REQUIRED = ("arm", "document", "bytes", "nats")
OPTIONAL = ("seed", "source", "kind", "tokens")
NUMBERS, DIFFERENCES = "comparison.json", "differences.csv"
ALL = "all"


def read_losses(path: Path) -> dict[str, list[Evaluation]]:
    """Read a table with a row for each arm, seed and document, as evaluations of each arm by seed.

    Columns: `arm`; `document`, its name; `bytes`, UTF-8 bytes of its text; `nats`, loss of all of its text; optionally
    `seed` (0), `source` and `kind` of the document, and `tokens`.

    Args:
        path: A CSV or Parquet file.

    Raises:
        UserError: If a column is missing, a value is wrong, or arms differ in their documents or the bytes of one.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from None
    if missing := [name for name in REQUIRED if name not in table.column_names]:
        raise UserError(f"{path} has no column {listed(missing)}; it needs {listed(REQUIRED)} and may have {OPTIONAL}")
    if repeated := [name for name in (*REQUIRED, *OPTIONAL) if table.column_names.count(name) > 1]:
        raise UserError(f"{path} has the column {listed(repeated)} more than once; remove one")
    columns = {name: table[name].to_pylist() for name in (*REQUIRED, *OPTIONAL) if name in table.column_names}
    rows: dict[str, dict[int, dict[Any, dict[str, Any]]]] = {}
    for number in range(table.num_rows):
        row = {name: values[number] for name, values in columns.items()}
        _check(path, number, row)
        seed = rows.setdefault(str(row["arm"]), {}).setdefault(int(row.get("seed") or 0), {})
        if row["document"] in seed:
            raise UserError(f"{path}: {row['arm']} has document {quoted(row['document'])} twice in one seed")
        seed[row["document"]] = row
    if len(rows) < 2:
        raise UserError(f"{path} has {counted(len(rows), 'arm')}; at least 2 are required")
    reference = next(iter(rows))
    seeds, first = sorted(rows[reference]), rows[reference][min(rows[reference])]
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


def _check(path: Path, number: int, row: dict[str, Any]) -> None:
    """Raise a UserError unless the names and numbers of a row are in order."""
    for name in ("arm", "document"):
        if row[name] in (None, ""):
            raise UserError(f"{path}, row {number + 1}: {name} is empty; give it a name")
    if not isinstance(row.get("seed") or 0, int):
        raise UserError(f"{path}, row {number + 1}: seed={quoted(row['seed'])} must be a whole number")
    for name, least in (("bytes", 1), ("nats", 0.0), ("tokens", 0)):
        value = row.get(name, least)
        if isinstance(value, str):  # as all values of a column with a word in it
            with suppress(ValueError):
                value = row[name] = float(value)
        if value is None:
            raise UserError(f"{path}, row {number + 1}: {name} is empty, or not a number")
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise UserError(f"{path}, row {number + 1}: {name}={quoted(value)} must be a number of at least {least:g}")


def _evaluation(path: Path, arm: str, rows: dict[Any, dict[str, Any]], first: dict[Any, dict[str, Any]]) -> Evaluation:
    if rows.keys() != first.keys():
        differing = next(iter(rows.keys() ^ first.keys()))
        raise UserError(f"{path}: not all arms have document {quoted(differing)}; leave it out, or add its losses")
    ordered = [rows[document] for document in first]
    for row, other in zip(ordered, first.values(), strict=True):
        for name in ("bytes", "source", "kind"):
            if row.get(name) != other.get(name):
                raise UserError(
                    f"{path}: document {quoted(row['document'])} has {name} {row.get(name)} for {arm} and "
                    f"{other.get(name)} for {other['arm']}; losses of different texts cannot be compared"
                )
    n = len(ordered)
    groups = {
        group: grouped([str(row[name]) for row in ordered])
        for group, name in ((SOURCE, "source"), (KIND, "kind"))
        if name in ordered[0]
    }
    return Evaluation(
        config=EvalConfig(),
        tokenizer_sha256="",
        document_bytes=np.array([row["bytes"] for row in ordered], np.int64),
        document_tokens=np.array([row.get("tokens") or 0 for row in ordered], np.int64),
        text_nats=np.array([row["nats"] for row in ordered], np.float64),
        eos_nats=np.full(n, np.nan),
        changed=np.zeros(n, bool),
        token_counts=np.zeros(0, np.int64),
        limited_bytes=0,
        short_context_bytes=0,
        context_bytes_sum=0,
        groups=groups,
        document_hashes=np.array(
            [xxhash.xxh3_64_intdigest(str(row["document"]).encode()) for row in ordered], np.uint64
        ),
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
    out.mkdir(parents=True, exist_ok=True)
    names, runs = list(arms), list(arms.values())
    eligibility = eligible(runs, names)
    comparisons = compare_all(runs, eligibility)
    compared = [comparisons[0, place] for place in range(1, len(runs))]
    base = runs[0][0]
    rows = [[names[0], ALL, _tokens(base, base), f"{fmean(run.bits_per_byte for run in runs[0]):.4f}", ""]]
    numbers = []
    for name, own, comparison in zip(names[1:], runs[1:], compared, strict=True):
        for kind, part in {ALL: comparison, **comparison.kinds}.items():
            tokens = _tokens(own[0], base) if kind == ALL else ""
            loss = f"{part.bits_per_byte_b:.4f}"
            rows.append([name if kind == ALL else "", kind, tokens, loss, _cell(part, (names[0], name))])
            numbers.append({"arm": name, "reference": names[0], "kind": kind, **_numbers(part, (names[0], name))})
    header = ["", "text", "tokens", "bits per byte", f"against {names[0]}"]
    reporter.table(Table("Losses as given", header, rows))
    for reason in filter(None, eligibility.reasons):
        reporter.say(f"no part of the verdict: {reason}", style="yellow")
    write_json(
        out / NUMBERS, {"source": str(path), "comparisons": [one.summary() for one in compared], "rows": numbers}
    )
    write_whole(out / DIFFERENCES, to_csv(numbers))
    return [out / NUMBERS, out / DIFFERENCES]


def _tokens(own: Evaluation, base: Evaluation) -> str:
    """Bytes per token of the reference, and the change of the tokens of another arm; empty if they are not given."""
    if not own.document_tokens.any() or not base.document_tokens.any():
        return ""
    if own is base:
        return f"{base.bytes_per_token:.3f} B each"
    return f"{signed(100 * (own.document_tokens.sum() / base.document_tokens.sum() - 1), 1)} %"


def _cell(compared: Comparison, labels: Sequence[str]) -> str:
    ends = compared.interval
    interval = f"{signed(ends[0], 2)} to {signed(ends[1], 2)}" if ends else ""
    found = decision(compared, labels)
    if compared.withheld and not compared.barred and compared.decided:
        found = f"{labels[compared.percent < 0]} model better; {compared.withheld}"
    return Lines(f"{signed(compared.percent, 2)} %", interval, found)


def _numbers(compared: Comparison, labels: Sequence[str]) -> dict[str, Any]:
    low, high = compared.interval or (None, None)
    return {
        "documents": compared.n_documents,
        "bits_per_byte": compared.bits_per_byte_b,
        "reference_bits_per_byte": compared.bits_per_byte_a,
        "percent": compared.percent,
        "low": low,
        "high": high,
        "p": compared.p_value,
        "decision": decision(compared, labels),
        "withheld": compared.withheld,
    }

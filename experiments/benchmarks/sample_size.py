"""How much text a tokenizer needs: `python -m experiments.benchmarks.sample_size FILES --heldout FILES`.

Tokenizers trained on samples of a text, compared with those of all of it, on held-out text. Both phases are measured
separately: phase 2 starts from the phase-1 tokenizer of all text, so its rows show what the sample costs phase 2 alone.
Samples are documents chosen by a hash, and a smaller sample is part of every larger one.

Growth curves come from the same runs: distinct pretokens, and the seams and fragments of phase 2, by amount of text,
with the exponent of Heaps' law (distinct = K times bytes to the power beta) between the last two sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import stderr
from superbpe import PHASE1, PRESETS, train_superbpe
from tokenizer import Tokenizer, count_pretokens, train_bpe
from tokenizer.corpus.corpus import Corpus
from tokenizer.durable import write_json


@dataclass(frozen=True)
class Fit:
    """A tokenizer of a sample beside the one of all text.

    Attributes:
        tokens: Held-out tokens.
        bytes_per_token: Held-out bytes per token.
        shared: Share of the other's tokens of the phase that this one has.
        used: The same, weighted by how often the other uses them in the held-out text.
        first_difference: Number of merges of the phase before the first that differs.
        seconds: CPU seconds of the training, with reading and counting.
        peak_mb: Peak memory of its process.
    """

    tokens: int
    bytes_per_token: float
    shared: float
    used: float
    first_difference: int
    seconds: float
    peak_mb: float


def corpus(options: argparse.Namespace, fraction: float = 1.0) -> Corpus:
    """Return a sample of the documents, beside all held-out documents."""
    whole = common.corpus(options.paths, options.field, options.max_bytes).config
    return Corpus(replace(whole, sample=fraction, heldout_paths=options.heldout))


def phase1(options: argparse.Namespace, fraction: float, folder: Path) -> dict[str, Any]:
    """Train phase 1 on a sample and save it."""
    unit = PHASE1[options.rules]["unit"]
    counts = count_pretokens(corpus(options, fraction), options.pattern, unit=unit, threads=1)
    train_bpe(counts, options.vocab_size).save(folder)
    return {"bytes": counts.n_bytes, "pretokens": counts.n_total, "distinct": counts.n_distinct}


def phase2(options: argparse.Namespace, fraction: float, start: Path, folder: Path) -> dict[str, Any]:
    """Train phase 2 on a sample and save it."""
    rules = options.rules
    start_of = Tokenizer.load(start)
    text = corpus(options, fraction)
    made = train_superbpe(
        start_of, text, vocab_size=options.vocab_size, rules=rules, transition=options.transition, threads=1
    )
    made.save(folder)
    found = made.provenance["phase2"]
    return {key: found[key] for key in ("fragments", "fragment_tokens", "threshold", "last_count")}


def heldout_ids(tokenizer: Tokenizer, options: argparse.Namespace) -> np.ndarray[Any, Any]:
    """Return the ids of all held-out documents."""
    batches = corpus(options).batches("heldout")
    return np.concatenate([tokenizer.encode_batch(batch)[0] for batch in batches])


def compare(folder: Path, whole: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Compare a saved tokenizer with the one of all text."""
    mine, other = Tokenizer.load(folder), Tokenizer.load(whole)
    n_bytes = sum(batch.n_bytes for batch in corpus(options).batches("heldout"))
    tokens = len(heldout_ids(mine, options))
    known, first = set(mine.vocab), phase_start(other)
    made = other.merge_ids[first:, 2]
    has = np.array([other.vocab[i] in known for i in made.tolist()])
    used = np.bincount(heldout_ids(other, options), minlength=other.vocab_size)[made]
    differs = [one != two for one, two in zip(mine.merges[first:], other.merges[first:], strict=False)]
    return {
        "tokens": tokens,
        "bytes_per_token": n_bytes / tokens,
        "shared": float(has.mean()),
        "used": float(used[has].sum() / used.sum()),
        "first_difference": differs.index(True) if True in differs else len(made),
    }


def phase_start(tokenizer: Tokenizer) -> int:
    """Return the number of merges before those of the tokenizer's last phase."""
    return tokenizer.n_phase1_merges if tokenizer.n_phase1_merges < len(tokenizer.merge_ids) else 0


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Train and compare the tokenizers of all samples; the largest first, as the others are compared with it."""
    rows: list[dict[str, Any]] = []
    for number, fraction in enumerate(sorted({1.0, *options.fractions}, reverse=True)):
        stderr.print(f"sample {fraction:g}", style="dim")
        one, two = folder / f"bpe-{number}", folder / f"superbpe-{number}"
        about, used1 = common.fresh(phase1, options, fraction, one)
        grown, used2 = common.fresh(phase2, options, fraction, folder / "bpe-0", two)
        fits = [
            asdict(Fit(**compare(path, whole, options), seconds=used["cpu"], peak_mb=used["peak_mb"]))
            for path, whole, used in ((one, folder / "bpe-0", used1), (two, folder / "superbpe-0", used2))
        ]
        rows.append({"fraction": fraction, **about, **grown, "phase 1": fits[0], "phase 2": fits[1]})
    return rows


def agreement(rows: Sequence[dict[str, Any]], phase: str) -> Table:
    """Table of one phase by amount of text."""
    table = Table(title=f"{phase.capitalize()} on samples, compared with all text")
    columns = ("MB", "bytes per token", "tokens", "shared vocabulary", "weighted by use", "first difference")
    for column in (*columns, "CPU s", "peak MB"):
        table.add_column(column, justify="right")
    whole = rows[0][phase]["tokens"]
    for row in rows:
        fit = Fit(**row[phase])
        table.add_row(
            f"{row['bytes'] / 1e6:.1f}",
            f"{fit.bytes_per_token:.3f}",
            f"{100 * (fit.tokens / whole - 1):+.2f} %",
            f"{100 * fit.shared:.1f} %",
            f"{100 * fit.used:.2f} %",
            f"{fit.first_difference:,}",
            f"{fit.seconds:.1f}",
            f"{fit.peak_mb:.0f}",
        )
    return table


def growth(rows: Sequence[dict[str, Any]]) -> Table:
    """Table of what grows with the text, with its exponents."""
    table = Table(title="Growth by amount of text; the exponents are those from the row above")
    names = ("distinct", "fragments", "fragment_tokens")
    for column in ("MB", *(word for name in names for word in (name.replace("_", " "), "exponent"))):
        table.add_column(column, justify="right")
    before: dict[str, Any] | None = None
    for row in reversed(rows):
        cells = [f"{row['bytes'] / 1e6:.1f}"]
        for name in names:
            exponent = "" if before is None else f"{heaps(before, row, name):.3f}"
            cells += [f"{row[name]:,}", exponent]
        table.add_row(*cells)
        before = row
    return table


def heaps(less: dict[str, Any], more: dict[str, Any], name: str) -> float:
    """Exponent of a power law through two rows."""
    return math.log(more[name] / less[name]) / math.log(more["bytes"] / less["bytes"])


def chart(rows: Sequence[dict[str, Any]]) -> Any:
    """Chart of the additional held-out tokens by amount of text."""
    import altair as alt

    values = [
        {"MB": row["bytes"] / 1e6, "phase": phase, "more": 100 * (row[phase]["tokens"] / rows[0][phase]["tokens"] - 1)}
        for row in rows[1:]
        for phase in ("phase 1", "phase 2")
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("MB:Q", title="MB of text the tokenizer is trained on", scale=alt.Scale(type="log")),
            y=alt.Y("more:Q", title="held-out tokens above those of all text, %"),
            color=alt.Color("phase:N", title=None),
        )
        .properties(width=420, height=260)
    )


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("How much text a tokenizer needs.")
    options.add_argument("--heldout", nargs="+", required=True, help="held-out text, disjoint from the text")
    options.add_argument("--vocab-size", type=common.positive, default=32_768)
    options.add_argument("--transition", type=float, default=0.8, help="a share, or a number of tokens (default 0.8)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS), help="(default uw-2025)")
    options.add_argument(
        "--fractions",
        nargs="+",
        type=float,
        default=[2.0**-n for n in range(1, 10)],
        help="samples, as shares of the text (default 1/2, 1/4 … 1/512)",
    )
    options.add_argument("--to", type=Path, required=True, help="folder for the tokenizers, rows.json and chart.svg")
    arguments = options.parse_args(argv)
    arguments.pattern = PHASE1[arguments.rules]["pattern"]
    return arguments


@common.command
def main(argv: list[str]) -> int:
    """Measure, print the tables and write them; return the exit code."""
    options = parse(argv)
    rows = measure(options, options.to)
    write_json(options.to / "rows.json", {"options": json.loads(json.dumps(vars(options), default=str)), "rows": rows})
    chart(rows).save(options.to / "chart.svg")
    for table in (agreement(rows, "phase 1"), agreement(rows, "phase 2"), growth(rows)):
        common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

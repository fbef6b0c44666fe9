"""Training of both phases: `python -m experiments.benchmarks.train_superbpe FILES`.

Two tables: ours against stock HF tokenizers, and ours by amount of text if `--max-bytes` has several values (`--plot`
draws it). Stock HF cannot resume from given merges. The closest it can do is to train from scratch on the phase-2
fence, which needs memory for every line, so by default it uses only the first 5 MB. Compare times per byte; this
assumes, in its favour, that its time grows linearly with the text.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks import common
from superbpe import PHASE1, PRESETS, train_superbpe
from superbpe.transition import resolve_transition
from tokenizer import UserError, count_pretokens, patterns, train_bpe

NAMES = {
    "MB": ("bytes", 1e6),
    "seconds": ("seconds", 1),
    "phase 1": ("phase 1", 1),
    "phase 2": ("phase 2", 1),
    "CPU s": ("cpu", 1),
    "peak MB": ("peak_mb", 1),
    "M tokens": ("tokens", 1e6),
    "M fragments": ("fragments", 1e6),
    "M cells": ("cells", 1e6),
}
"""Columns of the table by size: measurement of `ours` and unit."""


def ours(arguments: argparse.Namespace, max_bytes: int | None) -> dict[str, Any]:
    """Measure counting, phase 1, and both passes and the merges of phase 2, including all reading."""
    text = common.corpus(arguments.paths, arguments.field, max_bytes)
    started = time.perf_counter()
    counts = count_pretokens(text, arguments.pattern, unit=PHASE1[arguments.rules]["unit"], threads=arguments.threads)
    phase1 = train_bpe(counts, arguments.vocab_size)
    between = time.perf_counter()
    trained = train_superbpe(
        phase1,
        text.batches,
        vocab_size=arguments.vocab_size,
        transition=arguments.transition,
        rules=arguments.rules,
        threads=arguments.threads,
        memory_bytes=arguments.memory,
    )
    ended = time.perf_counter()
    found = trained.provenance["phase2"]
    return {
        "seconds": ended - started,
        "phase 1": between - started,
        "phase 2": ended - between,
        "bytes": counts.n_bytes,
        "tokens": found["phase1_tokens"],
        "fragments": found["fragments"],
        "cells": found["fragment_tokens"],
        "threshold": found["threshold"],
        "last count": found["last_count"],
        "stages": found["stages"],
        "dead seams": f"{found['dead_seams'] / max(found['seams'], 1):.0%}",
    }


def hugging_face(arguments: argparse.Namespace) -> dict[str, Any]:
    """`BpeTrainer` on lines cut at the phase-2 fence, from bytes."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    text = common.corpus(arguments.paths, arguments.field, arguments.hf_bytes)
    lines = [line for document in text.documents() for line in document.splitlines(keepends=True)]
    n_bytes = sum(len(line.encode()) for line in lines)
    started = time.perf_counter()
    trained = Tokenizer(models.BPE())
    fences = patterns.resolve(PRESETS[arguments.rules].fence).regex.split("\n")  # one regex per line
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(fence), "isolated") for fence in fences if fence),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(lines, trainer)
    return {"seconds": time.perf_counter() - started, "bytes": n_bytes}


def by_size(title: str, results: list[common.Result]) -> Table:
    """Table of our medians for each amount of text."""
    table = Table(title=title)
    columns = ("threshold", "last count", "stages", "dead seams")
    for column in (*NAMES, *columns):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            *(f"{result.median(key) / unit:.4g}" for key, unit in NAMES.values()),
            *(str(result.facts[column]) for column in columns),
        )
    return table


def growth_chart(results: list[common.Result]) -> Any:
    """Chart of seconds, peak memory and cells of the merge loop by amount of text."""
    import altair as alt

    rows = [{name: result.median(key) / unit for name, (key, unit) in NAMES.items()} for result in results]
    base = alt.Chart(alt.Data(values=rows)).mark_line(point=True)
    panels = [
        base.encode(x=alt.X("MB:Q", title="MB of text"), y=alt.Y(f"{name}:Q")).properties(width=220, height=200)
        for name in ("seconds", "peak MB", "M cells")
    ]
    return alt.hconcat(*panels)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Both training phases against stock HF tokenizers.", several_sizes=True)
    options.add_argument("--vocab-size", type=common.positive, default=50_000)
    options.add_argument(
        "--transition",
        type=float,
        default=40_000,
        help="a share, or a number of tokens (default 40000)",
    )
    options.add_argument("--pattern", help="phase 1's pattern (default: that of the rules)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS), help="(default uw-2025)")
    options.add_argument("--threads", type=common.positive, default=None, help="our threads (default: all cores)")
    options.add_argument(
        "--memory",
        type=common.size,
        default=None,
        metavar="SIZE",
        help="our limit in phase 2 (default: none)",
    )
    options.add_argument(
        "--hf-bytes", type=common.size, default="5MB", metavar="SIZE", help="text for HF (default 5MB)"
    )
    options.add_argument("--no-hf", action="store_true", help="leave HF out")
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw the table by size (.svg, .png, .html)")
    arguments = options.parse_args(argv)
    arguments.pattern = arguments.pattern or PHASE1[arguments.rules]["pattern"]
    return arguments


def _check(arguments: argparse.Namespace) -> None:
    """Check the arguments before any training."""
    common.corpus(arguments.paths, arguments.field, None)
    patterns.resolve(arguments.pattern)
    t = resolve_transition(arguments.vocab_size, arguments.transition)
    if t >= arguments.vocab_size:
        raise UserError(f"the transition {t} is not below the vocabulary size {arguments.vocab_size}")


@common.command
def main(argv: list[str]) -> int:
    """Run the contenders and print the tables."""
    arguments = parse(argv)
    job = f"vocabulary {arguments.vocab_size:,}, transition {arguments.transition:,g}, {arguments.rules}"
    sizes = sorted(arguments.max_bytes, key=lambda size: float("inf") if size is None else size)
    _check(arguments)
    runs = {
        f"ours, {'all' if size is None else f'{size / 1e6:g} MB'}": partial(
            common.run, partial(ours, max_bytes=size), arguments
        )
        for size in sizes
    }
    if not arguments.no_hf:
        runs["HF, from scratch"] = partial(common.run, hugging_face, arguments)
    results = common.in_turn(runs, arguments.rounds)
    mine = results[: len(sizes)]
    common.CONSOLE.print(by_size(f"BPE + SuperBPE, {job}; medians of {arguments.rounds}", mine))
    if not arguments.no_hf:
        common.CONSOLE.print(common.table(f"Largest text beside stock HF, {job}", [mine[-1], *results[len(sizes) :]]))
    if arguments.plot is not None:
        growth_chart(mine).save(arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

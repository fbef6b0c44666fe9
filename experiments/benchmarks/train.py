"""Training beside other trainers: `python -m experiments.benchmarks.train FILES`.

Three tables, chosen by `--tables`. `peers`: phase 1 beside other trainers, with merges compared. `sizes`: both phases
by amount of text (`--sizes`). `degenerate`: text that is constructed to be slow (`--degenerate-bytes`).

All trainers read the same text. Those that read only plain text get it from `--cache`, where it is written once. Some
read whole documents and others lines, which changes the merges; ours does both, so each peer is compared with the
matching variant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.benchmarks import harness
from experiments.benchmarks.harness import Job
from experiments.cli.arguments import size, whole
from superbpe import PHASE1, PRESETS
from superbpe.transition import resolve_transition
from tokenizer import UserError, patterns

TRAINERS = ("gigabpe", "gigatoken", "tokenizers")
BY_LINES = ("gigabpe", "tokenizers")
TABLES = ("peers", "sizes", "degenerate")

COLUMNS = ("seconds", "CPU s", "peak MB", "above bare")
PHASES = ("bytes", *COLUMNS, "counting", "merging", "phase 2", "distinct", "stages", "fragments", "fragment_tokens")
_CAPTION = "medians; seconds: the library call with reading, without imports; above bare: peak above the interpreter"


def row(job: Job, columns: Iterable[str]) -> dict[str, str]:
    """Cells of a job: its name and medians."""
    medians = {key: job.median(key) for key in columns}
    return {"": job.name} | {key: f"{n:.3g}" if n < 100 else f"{n:,.0f}" for key, n in medians.items()}


def ours(name: str, options: argparse.Namespace, **changes: Any) -> Job:
    """A job of our trainer on the files of the command line, phase 1 only, with some arguments changed."""
    arguments = {
        "corpus": {"paths": options.paths, "field": options.field, "max_bytes": options.max_bytes},
        "pattern": "gpt2",
        "unit": "document",
        "vocab_size": options.vocab_size,
        "rules": None,
        "transition": options.transition,
        "memory": options.memory,
    }
    return Job(name, "train ours", arguments | changes)


def others(options: argparse.Namespace, lines: Path, documents: Path, limit: float | None = None) -> list[Job]:
    """Jobs of the other trainers, each on the text by lines or with separators between documents, as it reads it."""
    settings = {"vocab_size": options.vocab_size, "regexes": [patterns.resolve("gpt2").regex]}
    settings["separator"] = harness.SEPARATOR
    jobs = []
    for name in options.peers:
        arguments = settings | {"paths": [str(lines if name in BY_LINES else documents)]}
        jobs.append(Job(f"{name} {harness.PEERS[name]}", f"train {name}", arguments, options.python, limit))
    return jobs


def beside_peers(options: argparse.Namespace) -> bool:
    """Print phase 1 beside its peers; return whether all merges are as expected."""
    lines, documents = harness.plain_text(
        harness.corpus(options.paths, options.field, options.max_bytes), options.cache
    )
    plain = {"paths": [str(documents)], "separator": harness.SEPARATOR}
    by_lines = ours("ours, plain text by lines", options, corpus=plain, unit="line")
    by_documents = ours("ours, plain text by documents", options, corpus=plain)
    jobs = [by_lines, by_documents, ours("ours, files as given", options), *others(options, lines, documents)]
    harness.in_turn(jobs, options.rounds)
    rows, right = [], True
    for job in jobs:
        like = by_lines if job is by_lines or job.name.startswith(BY_LINES) else by_documents
        same = harness.agreement(like.lines, job.lines)
        rows.append(row(job, COLUMNS) | {"times ours": f"{job.median('seconds') / like.median('seconds'):.2f}"})
        rows[-1]["merges as ours"] = f"first {same:,} of {len(job.lines):,}"
        # gigabpe starts with only the bytes that occur, not all 256, so it learns a few more merges.
        right &= same == len(like.lines)
    title = f"Phase 1, pattern gpt2, vocabulary {options.vocab_size:,}, {lines.stat().st_size / 1e6:.3g} MB"
    harness.print_table(title, rows, _CAPTION)
    return right


def by_size(options: argparse.Namespace) -> None:
    """Print the times and memory of both phases for each amount of text."""
    recipe = {"rules": options.rules, **PHASE1[options.rules]}
    text = {"paths": options.paths, "field": options.field}
    jobs = [ours(f"ours, {n or 'all'}", options, corpus=text | {"max_bytes": n}, **recipe) for n in options.sizes]
    harness.in_turn(jobs, options.rounds)
    title = f"Both phases, {options.rules}, vocabulary {options.vocab_size:,}, transition {options.transition:,}"
    harness.print_table(title, [row(job, PHASES) for job in jobs], _CAPTION)


def degenerate(options: argparse.Namespace) -> None:
    """Print seconds and memory on text that is constructed to be slow, for phase 1, both phases and other trainers."""
    n_bytes, rows = options.degenerate_bytes, []
    for name, path in harness.degenerate(options.cache, n_bytes).items():
        corpus = {"paths": [str(path)]}
        jobs = [ours("phase 1", options, corpus=corpus)]
        jobs += [ours("both phases", options, corpus=corpus, rules=options.rules)]
        jobs += others(options, path, path, limit=60)
        harness.in_turn(jobs, options.rounds)
        rows.append({"": name})
        for job in jobs:
            rows[-1][job.name] = job.refused or f"{job.median('seconds'):.1f} s, {job.median('peak MB'):,.0f} MB"
    title = f"Training on {n_bytes / 1e6:g} MB of text that is constructed to be slow, {options.vocab_size:,} tokens"
    harness.print_table(title, rows, _CAPTION)


@harness.command
def main(argv: list[str]) -> int:
    """Run the tables; return 1 if merges differ unexpectedly, 2 for a user error."""
    options = harness.parser("Training beside other trainers.", TRAINERS)
    options.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options.add_argument("--vocab-size", type=whole(), default=50_000)
    options.add_argument("--transition", type=float, default=40_000, help="a share, or tokens (default 40000)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS), help="(default uw-2025)")
    options.add_argument("--sizes", nargs="+", type=size, default=[None], help="10MB 100MB (default: all)")
    options.add_argument("--memory", type=size, metavar="SIZE", help="our limit in phase 2 (default: none)")
    options.add_argument("--degenerate-bytes", type=size, default="10MB", metavar="SIZE", help="(default 10MB)")
    arguments = harness.parse_peers(options, argv)
    arguments.transition = resolve_transition(arguments.vocab_size, arguments.transition)
    if arguments.transition >= arguments.vocab_size:
        raise UserError(
            f"the transition {arguments.transition} is not below the vocabulary size {arguments.vocab_size}"
        )
    harness.corpus(arguments.paths, arguments.field, None)  # fails early if a path is wrong
    right = "peers" not in arguments.tables or beside_peers(arguments)
    if "sizes" in arguments.tables:
        by_size(arguments)
    if "degenerate" in arguments.tables:
        degenerate(arguments)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

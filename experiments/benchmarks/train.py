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
from collections.abc import Callable, Mapping, Sequence
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
LINES, DOCUMENTS = "ours, plain text by lines", "ours, plain text by documents"

_CAPTION = "medians; seconds: the library call with reading, without imports; above bare: peak above the interpreter"


def _median(key: str, digits: int = 2) -> Callable[[Job], str]:
    return lambda job: f"{job.median(key):.{digits}f}" if key in job.facts else ""


def _facts(*keys: str) -> dict[str, Callable[[Job], str]]:
    return {key: lambda job, key=key: f"{job.facts.get(key, '')}" for key in keys}  # type: ignore[misc]


COLUMNS: dict[str, Callable[[Job], str]] = {
    "": lambda job: job.name,
    "MB": lambda job: f"{job.facts['bytes'] / 1e6:.3g}" if "bytes" in job.facts else "",
    "seconds": _median("seconds"),
    "CPU s": _median("cpu"),
    "peak MB": _median("peak_mb", 0),
    "above bare": lambda job: f"{job.median('peak_mb') - job.median('bare_mb'):.0f}",
}
PHASES: dict[str, Callable[[Job], str]] = {
    "counting": _median("counting"),
    "merging": _median("merging"),
    "phase 2": _median("phase 2"),
    "distinct": lambda job: f"{job.facts.get('distinct', 0):,}",
    "fragments": lambda job: f"{job.facts['fragments']:,}" if "fragments" in job.facts else "",
    "their tokens": lambda job: f"{job.facts['fragment_tokens']:,}" if "fragments" in job.facts else "",
}


def print_jobs(title: str, columns: Mapping[str, Callable[[Job], str]], jobs: Sequence[Job], caption: str) -> None:
    """Print a table with a row for each job."""
    harness.print_table(title, [{name: cell(job) for name, cell in columns.items()} for job in jobs], caption)


def ours(name: str, options: argparse.Namespace, **changes: Any) -> Job:
    """A job of our trainer on the files of the command line, phase 1 only, with some arguments changed."""
    arguments = {
        "corpus": {"paths": options.paths, "field": options.field, "max_bytes": options.max_bytes},
        "pattern": "gpt2",
        "unit": "document",
        "threads": options.threads,
        "vocab_size": options.vocab_size,
        "rules": None,
        "transition": options.transition,
        "memory": options.memory,
    }
    return Job(name, "train ours", arguments | changes)


def beside_peers(options: argparse.Namespace) -> bool:
    """Print phase 1 beside its peers; return whether all merges are as expected."""
    lines, documents = harness.plain_text(
        harness.corpus(options.paths, options.field, options.max_bytes), options.cache
    )
    plain = {"paths": [str(documents)], "separator": harness.SEPARATOR}
    jobs = [
        ours(LINES, options, corpus=plain, unit="line"),
        ours(DOCUMENTS, options, corpus=plain),
        ours("ours, files as given", options),
    ]
    peer = {"vocab_size": options.vocab_size, "regexes": [patterns.resolve("gpt2").regex]}
    for name in (name for name in options.peers if name in TRAINERS):
        arguments = peer | ({"paths": [str(lines)]} if name in BY_LINES else plain)
        jobs.append(Job(f"{name} {harness.PEERS[name]}", f"train {name}", arguments, options.python))
    harness.in_turn(jobs, options.rounds)
    named = {job.name.partition(" ")[0] if job.job != "train ours" else job.name: job for job in jobs}
    right = True
    for name, job in named.items():
        like = named[LINES if name in (*BY_LINES, LINES) else DOCUMENTS]
        same = harness.agreement(like.lines, job.lines)
        job.facts["times ours"] = f"{job.median('seconds') / like.median('seconds'):.2f}"
        job.facts["merges as ours"] = f"first {same:,} of {len(job.lines):,}"
        # gigabpe starts with only the bytes that occur, not all 256, so it learns a few more merges.
        right &= same == len(like.lines)
    columns = {name: cell for name, cell in COLUMNS.items() if name != "MB"} | _facts("times ours", "merges as ours")
    title = f"Phase 1, pattern gpt2, vocabulary {options.vocab_size:,}, {lines.stat().st_size / 1e6:.3g} MB"
    print_jobs(title, columns, jobs, _CAPTION)
    return right


def by_size(options: argparse.Namespace) -> None:
    """Print the times and memory of both phases for each amount of text."""
    phase1 = PHASE1[options.rules]
    recipe = {"pattern": options.pattern or phase1["pattern"], "unit": phase1["unit"], "rules": options.rules}
    text = {"paths": options.paths, "field": options.field}
    jobs = [ours(f"ours, {n or 'all'}", options, corpus=text | {"max_bytes": n}, **recipe) for n in options.sizes]
    harness.in_turn(jobs, options.rounds)
    title = f"Both phases, {options.rules}, vocabulary {options.vocab_size:,}, transition {options.transition:,g}"
    print_jobs(title, COLUMNS | PHASES, jobs, _CAPTION)


def degenerate(options: argparse.Namespace) -> None:
    """Print seconds and memory on text that is constructed to be slow, for phase 1, both phases and other trainers."""
    transition, n_bytes = resolve_transition(options.vocab_size, options.transition), options.degenerate_bytes
    rows = []
    for name, path in harness.degenerate(options.cache, n_bytes).items():
        peer = {"vocab_size": options.vocab_size, "regexes": [patterns.resolve("gpt2").regex], "paths": [str(path)]}
        peer["separator"] = harness.SEPARATOR
        changes: dict[str, Any] = {"transition": transition, "corpus": {"paths": [str(path)]}}
        jobs = [ours("phase 1", options, **changes), ours("both phases", options, rules=options.rules, **changes)]
        trainers = (trainer for trainer in options.peers if trainer in TRAINERS)
        jobs += [Job(trainer, f"train {trainer}", peer, options.python, limit=60) for trainer in trainers]
        harness.in_turn(jobs, options.rounds)
        shown = "{:.1f} s, {:,.0f} MB"
        rows.append({"": name})
        for job in jobs:
            rows[-1][job.name] = job.refused or shown.format(job.median("seconds"), job.median("peak_mb"))
    title = f"Training on {n_bytes / 1e6:g} MB of text that is constructed to be slow, {options.vocab_size:,} tokens"
    harness.print_table(title, rows, _CAPTION)


@harness.command
def main(argv: list[str]) -> int:
    """Run the tables; return 1 if merges differ unexpectedly, 2 for a user error."""
    options = harness.parser("Training beside other trainers.")
    options.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options.add_argument("--vocab-size", type=whole(), default=50_000)
    options.add_argument("--transition", type=float, default=40_000, help="a share, or tokens (default 40000)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS), help="(default uw-2025)")
    options.add_argument("--pattern", help="pattern of phase 1 in the table of sizes (default: that of the rules)")
    options.add_argument("--sizes", nargs="+", type=size, default=[None], help="10MB 100MB (default: all)")
    options.add_argument("--threads", type=whole(), default=None, help="our threads (default: all cores)")
    options.add_argument("--memory", type=size, metavar="SIZE", help="our limit in phase 2 (default: none)")
    options.add_argument("--degenerate-bytes", type=size, default="10MB", metavar="SIZE", help="(default 10MB)")
    harness.add_peers(options, TRAINERS)
    arguments = harness.parse_peers(options, argv)
    t = resolve_transition(arguments.vocab_size, arguments.transition)
    if t >= arguments.vocab_size:
        raise UserError(f"the transition {t} is not below the vocabulary size {arguments.vocab_size}")
    if arguments.pattern is not None:
        patterns.resolve(arguments.pattern)
    harness.corpus(arguments.paths, arguments.field, None)  # fails early if a path is wrong
    right = True
    if "peers" in arguments.tables:
        right = beside_peers(arguments)
    if "sizes" in arguments.tables:
        by_size(arguments)
    if "degenerate" in arguments.tables:
        degenerate(arguments)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

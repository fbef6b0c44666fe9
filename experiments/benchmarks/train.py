"""Training beside other trainers: `python -m experiments.benchmarks.train FILES`.

One table: phase 1 beside other trainers, with merges compared, and both phases of ours. All trainers read the same
text. Those that read only plain text get it from a temporary folder. Some read whole documents and others lines, which
changes the merges; ours does both, so each peer is compared with the matching variant.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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
COLUMNS = ("seconds", "CPU s", "peak MB", "above bare", "phase 2", "stages", "fragment_tokens")


def row(job: Job) -> dict[str, str]:
    """Cells of a job: its name and medians."""
    cells = {"": job.name}
    for key in COLUMNS:
        n = job.median(key) if key in job.facts else None
        cells[key] = "" if n is None else f"{n:.3g}" if n < 100 else f"{n:,.0f}"
    return cells


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


def beside_peers(options: argparse.Namespace, work: Path) -> bool:
    """Print the table; return whether all merges are as expected."""
    lines, documents = harness.plain_text(harness.corpus(options.paths, options.field, options.max_bytes), work)
    plain = {"paths": [str(documents)], "separator": harness.SEPARATOR}
    by_lines = ours("ours, plain text by lines", options, corpus=plain, unit="line")
    by_documents = ours("ours, plain text by documents", options, corpus=plain)
    both_phases = ours(f"ours, {options.rules}, both phases", options, rules=options.rules, **PHASE1[options.rules])
    jobs = [by_lines, by_documents, ours("ours, files as given", options)]
    settings = {"vocab_size": options.vocab_size, "regexes": [patterns.resolve("gpt2").regex]}
    for name in options.peers:
        paths = {"paths": [str(lines if name in BY_LINES else documents)], "separator": harness.SEPARATOR}
        jobs.append(Job(f"{name} {harness.PEERS[name]}", f"train {name}", settings | paths, options.python))
    harness.in_turn([*jobs, both_phases], options.rounds)
    rows, right = [], True
    for job in jobs:
        like = by_lines if job is by_lines or job.name.startswith(BY_LINES) else by_documents
        same = harness.agreement(like.lines, job.lines)
        rows.append(row(job) | {"times ours": f"{job.median('seconds') / like.median('seconds'):.2f}"})
        rows[-1]["merges as ours"] = f"first {same:,} of {len(job.lines):,}"
        # gigabpe starts with only the bytes that occur, not all 256, so it learns a few more merges.
        right &= same == len(like.lines)
    rows.append(row(both_phases) | {"times ours": "", "merges as ours": ""})
    title = f"Training, pattern gpt2, vocabulary {options.vocab_size:,}, {lines.stat().st_size / 1e6:.3g} MB"
    caption = "medians; seconds: the library call with reading, without imports; above bare: above the interpreter"
    harness.print_table(title, rows, caption)
    return right


@harness.command
def main(argv: list[str]) -> int:
    """Print the table; return 1 if merges differ unexpectedly, 2 for a user error."""
    options = harness.parser("Training beside other trainers.", TRAINERS)
    options.add_argument("--vocab-size", type=whole(), default=50_000)
    options.add_argument("--transition", type=float, default=40_000, help="a share, or tokens (default 40000)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS), help="(default uw-2025)")
    options.add_argument("--memory", type=size, metavar="SIZE", help="our limit in phase 2 (default: none)")
    arguments = harness.parse_peers(options, argv)
    arguments.transition = resolve_transition(arguments.vocab_size, arguments.transition)
    if arguments.transition >= arguments.vocab_size:
        raise UserError(
            f"the transition {arguments.transition} is not below the vocabulary size {arguments.vocab_size}"
        )
    with tempfile.TemporaryDirectory() as work:
        return 0 if beside_peers(arguments, Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

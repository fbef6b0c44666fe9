"""Each step from the textbook's BPE trainer to the Rust core: `python -m experiments.benchmarks.ladder FILES`.

The first table shows seconds by vocabulary size, with preprocessing apart (*From Hours to Seconds*), for each rung of
the ladder, the Rust core and HF `tokenizers`. It also shows the share of the time that finding the best pair takes, and
how far the merges of the approximate rung are from the exact ones. A rung stops after `--limit` seconds of merges; its
later cells are extrapolated and marked. The second table shows milliseconds per merge as training proceeds
(*Production BPE*).

Each table is also written as CSV, and as a plot in SVG and PNG. 94 MB take about ten minutes on two cores. The exit
code is 1 if exact trainers give different merges.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from experiments.benchmarks import common
from experiments.benchmarks.ladder import output, training


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    options = argparse.ArgumentParser(prog="experiments.benchmarks.ladder", description="The ladder of trainers.")
    options.add_argument("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs")
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    options.add_argument("--max-bytes", type=int, default=None, help="maximum bytes of text")
    options.add_argument("--limit", type=float, default=30, help="seconds of merges for each rung (default 30)")
    options.add_argument("--vocab-sizes", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    options.add_argument("--out", type=Path, default=Path("ladder"), help="folder for CSV and plots (default ladder)")
    parsed = options.parse_args(arguments)
    if min(parsed.vocab_sizes) <= 256:
        options.error(f"--vocab-sizes {min(parsed.vocab_sizes)} must be at least 257: 256 bytes and one merge")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write; return 1 if exact trainers give different merges."""
    parsed = parse(arguments)
    parsed.out.mkdir(parents=True, exist_ok=True)
    console = common.CONSOLE
    found = training.measure(parsed, Console(stderr=True))
    console.print(output.training_table(found, parsed.out), output.per_merge_table(found, parsed.out))
    console.print(f"the merges of all exact trainers: {'equal' if found.agree else 'THEY DIFFER'}")
    console.print(f"tables and plots are in {parsed.out}; {os.cpu_count()} cores")
    return 0 if found.agree else 1


if __name__ == "__main__":
    raise SystemExit(main())

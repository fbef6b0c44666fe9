"""The source documents' tables on your text: `python -m experiments.benchmarks.ladder FILES [--out FOLDER]`.

Parts:

- `training`: seconds by vocabulary size, a row for each rung of the ladder, the native core and HF `tokenizers`,
  preprocessing apart (*From Hours to Seconds*); and milliseconds for a merge as training proceeds (*Production BPE*).
  A rung stops after `--limit` seconds of merges; its later cells are extrapolated and marked. The share spent
  selecting is there too, and how far the approximate rung's merges are from the exact ones.
- `chunks`: counting pretokens in worker processes, in chunks that begin with a special token (the CS336 trainer).
- `heaps`: distinct pretokens against the length of the text, with Heaps' law fitted.

Writes each table as CSV and each plot as SVG and PNG. On 94 MB and two cores everything takes about a quarter of an
hour. Exits with 1 if two that should agree do not.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from experiments.benchmarks.ladder import output, pretokens, training

PARTS = ("training", "chunks", "heaps")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    options = argparse.ArgumentParser(prog="experiments.benchmarks.ladder", description="The ladder of trainers.")
    options.add_argument("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs")
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    options.add_argument("--max-bytes", type=int, default=None, help="use only so much text")
    options.add_argument("--limit", type=float, default=30, help="seconds of merges for each rung (default 30)")
    options.add_argument("--vocab-sizes", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    options.add_argument("--workers", type=int, default=4, help="processes that count chunks (default 4)")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default all)")
    options.add_argument("--out", type=Path, default=Path("ladder"), help="folder for CSV and plots (default ladder)")
    parsed = options.parse_args(arguments)
    if min(parsed.vocab_sizes) <= 256:
        options.error(f"--vocab-sizes {min(parsed.vocab_sizes)} leaves no merge beside the 256 bytes; use 257 or more")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints, writes; 1 if trainers, counts or engines disagree."""
    parsed = parse(arguments)
    parsed.out.mkdir(parents=True, exist_ok=True)
    console, progress = Console(width=max(Console().width, 160)), Console(stderr=True)
    agree = {}
    if "training" in parsed.parts:
        trained = training.measure(parsed, progress)
        console.print(output.training_table(trained, parsed.out), output.per_merge_table(trained, parsed.out))
        agree["the merges of all exact trainers"] = trained.agree
    if "chunks" in parsed.parts:
        rates, agree["the counts of all chunkings"], about = pretokens.chunks(parsed, progress)
        console.print(output.chunks_table(rates, parsed.out))
        word = next((token for token in about["longest_tokens"] if token.strip().isalpha()), "")
        console.print(
            f"vocabulary 10,000 with {pretokens.END}: {about['merges']:,} merges, the last of a pair that occurs "
            f"{about['last_count']} times; longest token {about['longest_bytes']} bytes, longest word {word!r}"
        )
    if "heaps" in parsed.parts:
        console.print(output.heaps_table(pretokens.heaps(parsed), parsed.out))
    for what, equal in agree.items():
        console.print(f"{what}: {'equal' if equal else 'THEY DIFFER'}")
    console.print(f"tables and plots are in {parsed.out}; {os.cpu_count()} cores")
    return 0 if all(agree.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

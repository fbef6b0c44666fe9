"""All speed benchmarks beside other software, and the floors: `python -m experiments.benchmarks FILES`.

A floor is a ratio to the best correct peer, or a time and a memory, that a change of the core must keep. Give text that
the code has not been tuned on, one kind per file. `--both-phases FILES` is the text for the time of both phases.
"""

from __future__ import annotations

import argparse
import sys

from experiments.benchmarks import encode, harness, train

PLAIN, SHORT, SUPERWORDS, LANGUAGES, TRAINING = 0.95, 0.85, 7.0, 3.5, 0.55
BOTH_SECONDS, BOTH_MB = 3.5, 300


def floors(options: argparse.Namespace) -> bool:
    """Run the benchmarks and print the floors; return whether merges and ids are right and all floors are kept."""
    jobs, right = train.beside_peers(options)
    rows: list[tuple[str, float, float]] = []
    if "gigabpe" in jobs:
        ratio = jobs[train.LINES].median("seconds") / jobs["gigabpe"].median("seconds")
        rows.append(("training, share of gigabpe's time, at most", ratio, TRAINING))
    both = argparse.Namespace(**vars(options) | {"paths": options.both_phases or options.paths, "sizes": [None]})
    (job,) = train.by_size(both)
    rows.append(("both phases, seconds, at most", job.median("seconds"), BOTH_SECONDS))
    rows.append(("both phases, peak MB, at most", job.median("peak_mb"), BOTH_MB))
    kinds = argparse.Namespace(**vars(options) | {"max_bytes": 2_000_000, "vocab_size": None})
    rates, equal = encode.by_kind(kinds)
    for (tokenizer, kind, length, call), (own, best, peer) in rates.items():
        superwords = LANGUAGES if kind in options.languages else SUPERWORDS
        least = superwords if tokenizer == "superwords" else SHORT if length == "short" else PLAIN
        if tokenizer != "superwords" or length == "long":
            rows.append((f"{tokenizer}, {kind}, {length}, {call}, times {peer}, at least", own / best, least))
    kept = {row: row[1] <= row[2] if row[0].endswith("most") else row[1] >= row[2] for row in rows}
    harness.print_table(
        "Floors",
        {
            "": lambda row: row[0],
            "measured": lambda row: f"{row[1]:.2f}",
            "floor": lambda row: f"{row[2]:g}",
            "kept": lambda row: "yes" if kept[row] else "NO",
        },
        rows,
        f"superwords in other languages ({' '.join(options.languages)}): {LANGUAGES} instead of {SUPERWORDS}",
    )
    return right and equal and all(kept.values())


@harness.command
def main(argv: list[str]) -> int:
    """Run everything; return 1 if something is wrong or a floor is not kept, 2 for a user error."""
    options = harness.parser("Speed beside other software, and the floors.")
    train.add_options(options)
    options.add_argument("--both-phases", nargs="+", metavar="FILE", help="text for both phases (default FILES)")
    options.add_argument("--languages", nargs="*", default=["languages-heldout"], help="kinds in other languages")
    options.add_argument("--tokenizers", nargs="+", default=list(encode.TOKENIZERS), help="see encode")
    options.add_argument("--length", type=harness.positive, default=500, help="bytes of short documents (default 500)")
    options.add_argument("--cores", type=harness.positive, default=1, help="for encoding (default 1)")
    harness.add_peers(options, (*train.TRAINERS, *encode.PEERS))
    arguments = harness.parse_peers(options, argv)
    train.check(arguments)
    return 0 if floors(arguments) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Encoding by kind of text beside other encoders: `python -m experiments.benchmarks.encode FILES`.

The kind of a document is its file. One table per tokenizer (`--tokenizers`) with a row per kind, in one call for all
documents and in one call per document, each beside the fastest other encoder whose ids equal HF's. One core, text that
the process has not seen. Every other document of each file trains the tokenizers, and the rest is encoded.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from experiments.benchmarks import harness
from experiments.benchmarks.harness import Job
from experiments.cli.arguments import whole
from experiments.progress import console
from superbpe import train_superbpe
from tokenizer import UserError, count_pretokens, train_bpe
from tokenizer.formats import HF_FILE

HF, OURS = "tokenizers", "ours"
PEERS = ("fastokens", "gigatoken")
RECIPES = {"gpt2": ("gpt2", 32_000), "llama3": ("llama3", 100_000), "plain": ("superbpe", 50_000)}
"""Pattern and size of the tokenizers that are trained; `superwords` is `plain` with a fifth of superwords."""
TOKENIZERS = (*RECIPES, "superwords")
CALLS = ("batch", "each")


def collect(options: argparse.Namespace, work: Path) -> tuple[list[str], dict[str, Path]]:
    """Return documents to train on, and a text file with other documents of each kind, in the folder `work`."""
    training: list[str] = []
    encoded: dict[str, list[str]] = defaultdict(list)
    for path in (str(path) for path, _ in harness.corpus(options.paths, options.field, None).files):
        kind, sizes = Path(path).name.partition(".")[0], Counter[bool]()
        for text in harness.corpus([path], options.field, None).documents():
            trains = sizes[True] <= sizes[False]
            text = text.replace(harness.SEPARATOR, "")[: options.max_bytes]
            if sizes[trains] < options.max_bytes and text:
                (training if trains else encoded[kind]).append(text)
                sizes[trains] += len(text.encode())

    files = {kind: work / f"{kind}.txt" for kind in encoded}
    for kind, texts in encoded.items():
        files[kind].write_text(harness.SEPARATOR.join(texts), encoding="utf-8", newline="")
    return training, files


def folder_of(name: str, training: list[str], options: argparse.Namespace, work: Path) -> Path:
    """Return the folder of a tokenizer; one of `TOKENIZERS` is trained on the text first."""
    if name not in TOKENIZERS:
        return Path(name)
    pattern, usual = RECIPES["plain" if name == "superwords" else name]
    n = options.vocab_size or usual
    tokenizer = train_bpe(count_pretokens(training, pattern), n)
    if name == "superwords":
        tokenizer = train_superbpe(tokenizer, training, vocab_size=n, transition=0.8, rules="uw-2025")
    tokenizer.save(work / name)
    return work / name


def beside_peers(folder: Path, text: Path, options: argparse.Namespace) -> list[Job]:
    """Encode a text with every encoder in all calls; one with other ids than HF's is refused.

    Raises:
        UserError: If the tokenizer has no tokenizer.json.
    """
    if not (folder / HF_FILE).is_file():
        raise UserError(f"{folder} has no {HF_FILE}, which the other encoders read; use a one-pass tokenizer")
    arguments = {"folder": str(folder), "json": str(folder / HF_FILE), "text": str(text)}
    arguments |= {"separator": harness.SEPARATOR, "cores": options.cores}
    jobs = []
    for call in CALLS:
        for encoder in (OURS, *options.peers):
            python = Path(sys.executable) if encoder == OURS else options.python
            jobs.append(Job(f"{encoder}, {call}", f"encode {encoder}", arguments | {"call": call}, python))
    expected = Job(f"{HF}, batch", f"encode {HF}", arguments | {"call": "batch"})
    expected.run()  # once, because it is slow, and only for its ids
    harness.in_turn(jobs, options.rounds)
    for job in jobs:
        differ = sum(one != other for one, other in zip_longest(expected.lines, job.lines))
        if differ and not job.refused:
            job.facts["refused"] = f"other ids in {differ:,} documents"
    return [*jobs, expected]


def ratio(jobs: Sequence[Job], call: str) -> str:
    """Our MB per CPU second, the fastest other encoder's with HF's ids, its name, and their ratio."""
    # The fastest round: the work is so short that one disturbance is half of it.
    rates = {
        job.name.partition(",")[0]: max(facts["bytes"] / facts["CPU s"] for facts in job.rounds) / 1e6
        for job in jobs
        if job.name.endswith(f", {call}") and not job.refused
    }
    ours = rates.pop(OURS, math.nan)
    best = max(rates, key=rates.__getitem__, default="")
    fastest = rates.get(best, math.nan)
    return f"{ours:.0f} / {fastest:.0f} {best} {ours / fastest:.2f}"


def by_kind(options: argparse.Namespace, work: Path) -> bool:
    """Print a table for each tokenizer; return whether our ids equal HF's."""
    training, texts = collect(options, work)
    equal = True
    for name in options.tokenizers:
        folder, rows = folder_of(name, training, options, work), []
        reasons: dict[str, str] = {}
        for kind, text in texts.items():
            jobs = beside_peers(folder, text, options)
            reasons |= {f"{job.name.partition(',')[0]}, {kind}": job.refused for job in jobs if job.refused}
            row = {"": kind, "MB": f"{text.stat().st_size / 1e6:.1f}"}
            rows.append(row | {call: ratio(jobs, call) for call in CALLS})
        caption = "MB per CPU second, fastest round: ours / the fastest other encoder with HF's ids, ratio"
        harness.print_table(f"Encoding, {name}, {options.cores} core(s)", rows, caption)
        for job, reason in reasons.items():
            console.print(f"{job}: {reason.splitlines()[0]}")
        equal &= not any(job.startswith(OURS) for job in reasons)
    return equal


@harness.command
def main(argv: list[str]) -> int:
    """Run the tables; return 1 if our ids differ from HF's, 2 for a user error."""
    options = harness.parser("Encoding by kind of text beside other encoders.", PEERS)
    options.set_defaults(max_bytes=2_000_000)
    options.add_argument(
        "--tokenizers", nargs="+", default=list(TOKENIZERS), help=f"folders, or {', '.join(TOKENIZERS)} to train"
    )
    options.add_argument("--vocab-size", type=whole(), help="size of trained ones (default: the recipe's)")
    options.add_argument("--cores", type=whole(), default=1, help="(default 1)")
    arguments = harness.parse_peers(options, argv)
    with tempfile.TemporaryDirectory() as work:
        return 0 if by_kind(arguments, Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

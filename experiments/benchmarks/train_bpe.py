"""Phase 1 against other trainers: `python -m experiments.benchmarks.train_bpe FILES`.

Three tables: ours against its peers, with merges compared (`--peers`); ours by pattern (`--patterns`); ours by amount
of text (`--max-bytes`). All trainers read the same text. Those that read only plain text get it from `--cache`, where
it is written once. Some read whole documents and others lines, which changes the merges; ours does both, so each peer
is compared with the matching variant.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks import common, peers
from experiments.benchmarks.peers import Contender
from tokenizer import patterns

LINES, DOCUMENTS = "line", "document"

# Known reasons for other merges.
_KNOWN = {
    "gigabpe": "gigabpe starts with only the bytes that occur, not all 256, so it learns a few more merges.",
    "rustbpe": "rustbpe breaks ties by byte value; ours, like HF, by HF's alphabet.",
}


def ours(name: str, options: argparse.Namespace, **arguments: Any) -> Contender:
    """A row for our trainer, on the files of the command line unless `arguments` has others."""
    defaults = {
        "paths": options.paths,
        "field": options.field,
        "separator": None,
        "max_bytes": None,
        "pattern": "gpt2",
        "unit": DOCUMENTS,
        "threads": options.threads,
        "vocab_size": options.vocab_size[0],
    }
    return Contender(name, "ours", defaults | arguments)


def beside_peers(options: argparse.Namespace, vocab_size: int, python: Path | None) -> bool:
    """Print ours beside its peers; return whether all merges are as expected."""
    max_bytes = max(options.max_bytes, key=_order)
    text = common.PlainText.of(common.corpus(options.paths, options.field, max_bytes), options.cache)
    _warm([text.lines, text.documents])
    plain = {"paths": [str(text.documents)], "separator": common.SEPARATOR, "vocab_size": vocab_size}
    given = {"max_bytes": max_bytes, "vocab_size": vocab_size}
    contenders = [
        (LINES, ours("ours, plain text", options, **plain, unit=LINES)),
        (DOCUMENTS, ours("ours, plain text", options, **plain)),
        (DOCUMENTS, ours("ours, files as given", options, **given)),
    ]
    for job in options.peers:
        assert python is not None
        version = f"{job} {peers.TRAINERS[job]}"
        regex = patterns.resolve("gpt2").regex
        if job in ("gigabpe", "tokenizers"):
            arguments = {"paths": [str(text.lines)], "vocab_size": vocab_size, "regex": regex}
            contenders.append((LINES, Contender(version, job, arguments, python)))
        else:
            contenders.append((DOCUMENTS, Contender(version, job, plain | {"regex": regex}, python)))
        if job == "gigatoken" and max_bytes is None and (given_files := _json_lines(options)):
            arguments = {"paths": given_files, "separator": None, "field": options.field, "vocab_size": vocab_size}
            contenders.append((DOCUMENTS, Contender(f"{version}, files as given", job, arguments, python)))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(len(contenders))]
        runs = {
            f"{contender.name} · {unit}s": partial(peers.run, contender, file)
            for (unit, contender), file in zip(contenders, files, strict=True)
        }
        results = common.in_turn(runs, options.rounds)
        like = {unit: file for (unit, _), file in zip(reversed(contenders), reversed(files), strict=True)}
        merges = [
            _agreement(contender.job, peers.agreement(like[unit], file))
            for (unit, contender), file in zip(contenders, files, strict=True)
        ]
    bare = results[0].median("bare_mb")
    title = f"BPE, gpt2 pattern, vocabulary {vocab_size:,}, {text.n_bytes / 1e6:.3g} MB; bare interpreter {bare:.0f} MB"
    agreement = {result.name: words for result, (words, _) in zip(results, merges, strict=True)}
    columns = {
        "reads, by": lambda one: one.name,
        **_some("seconds"),
        "ours / its": lambda one: f"{results[0].median('seconds') / one.median('seconds'):.2f}",
        **_some("CPU s", "wall s", "peak MB", "above bare"),
        "merges as ours": lambda one: agreement[one.name],
        **_some("others"),
    }
    _print(title, columns, results)
    for job in sorted({contender.job for _, contender in contenders} & _KNOWN.keys()):
        common.CONSOLE.print(_KNOWN[job])
    return all(right for _, right in merges)


def by_pattern(options: argparse.Namespace) -> None:
    """Print our times with each pattern."""
    max_bytes = max(options.max_bytes, key=_order)
    runs = {
        pattern: _alone(ours(pattern, options, pattern=pattern, max_bytes=max_bytes)) for pattern in options.patterns
    }
    results = common.in_turn(runs, options.rounds)
    columns = {
        "": lambda one: one.name,
        **_some("seconds"),
        "times the first": lambda one: f"{one.median('seconds') / results[0].median('seconds'):.2f}",
        **_some("counting", "merging", "CPU s", "distinct", "others"),
    }
    _print(f"Ours by pattern, files as given, vocabulary {options.vocab_size[0]:,}", columns, results)


def by_size(options: argparse.Namespace, vocab_size: int) -> None:
    """Print our times with each amount of text."""
    sizes = sorted(options.max_bytes, key=_order)
    runs = {
        f"{n_bytes or 'all'} bytes": _alone(ours("", options, max_bytes=n_bytes, vocab_size=vocab_size))
        for n_bytes in sizes
    }
    columns = {
        "MB": lambda one: f"{one.facts['bytes'] / 1e6:.3g}",
        **_some("seconds"),
        "s per 100 MB": lambda one: f"{one.median('seconds') / one.facts['bytes'] * 1e8:.2f}",
        **_some("counting", "merging", "CPU s", "distinct", "peak MB", "above bare", "others"),
    }
    title = f"Ours by amount of text, files as given, gpt2 pattern, vocabulary {vocab_size:,}"
    _print(title, columns, common.in_turn(runs, options.rounds))


def _alone(contender: Contender) -> partial[dict[str, Any]]:
    return partial(peers.run, contender, Path(os.devnull))


def _order(n_bytes: int | None) -> float:
    return float("inf") if n_bytes is None else n_bytes


def _json_lines(options: argparse.Namespace) -> list[str]:
    """The files of the command line if all are JSON lines, which gigatoken reads; otherwise none."""
    files = common.corpus(options.paths, options.field, None).files
    return [str(path) for path, form in files] if all(form == "jsonl" for _, form in files) else []


def _agreement(job: str, common_ours_its: tuple[int, int, int]) -> tuple[str, bool]:
    """Description of a contender's merges, and whether they are as expected."""
    same, ours_made, its_made = common_ours_its
    if same == ours_made == its_made:
        return "all", True
    if same == ours_made and job == "gigabpe":
        return f"all, {its_made - ours_made} more", True
    return f"first {same:,} of {ours_made:,}", job == "rustbpe"


def _above(result: common.Result) -> str:
    """Memory above that of the bare interpreter, and the part of it that imports take."""
    above = result.median("peak_mb") - result.median("bare_mb")
    return f"{above:.0f} ({result.median('imports_mb'):.0f} imports)"


def _median(key: str, digits: int = 2) -> Callable[[common.Result], str]:
    return lambda result: f"{result.median(key):.{digits}f}"


_COLUMNS: dict[str, Callable[[common.Result], str]] = {
    "seconds": _median("seconds"),
    "counting": _median("counting"),
    "merging": _median("merging"),
    "CPU s": _median("cpu"),
    "wall s": _median("wall"),
    "peak MB": _median("peak_mb", 0),
    "above bare": _above,
    "distinct": lambda result: f"{result.facts['distinct']:,}",
    "others": _median("others"),
}


def _some(*names: str) -> dict[str, Callable[[common.Result], str]]:
    return {name: _COLUMNS[name] for name in names}


def _print(title: str, columns: dict[str, Callable[[common.Result], str]], results: list[common.Result]) -> None:
    table = Table(
        title=title,
        caption=f"{os.cpu_count()} cores; medians. seconds: the library call with reading, without imports; wall: the "
        "whole process; above bare: peak above the bare interpreter; others: cores that other processes kept busy",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "reads, by") else "right", overflow="fold")
    for result in results:
        table.add_row(*(cell(result) for cell in columns.values()))
    common.CONSOLE.print(table)


def _warm(paths: list[Path]) -> None:
    """Read the files once, so that they are in the page cache for every contender."""
    for path in paths:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Phase-1 training beside other trainers.", several_sizes=True)
    options.add_argument("--vocab-size", type=common.positive, nargs="+", default=[32_000])
    options.add_argument("--patterns", nargs="*", default=["gpt2"], help="for the table by pattern (two or more)")
    common.add_peers(options, list(peers.TRAINERS), "trainers to compare with", "plain text")
    options.add_argument(
        "--threads",
        type=common.positive,
        default=None,
        help="our threads (default: all cores, as the peers)",
    )
    return common.parse_peers(options, argv)


@common.command
def main(argv: list[str]) -> int:
    """Run the contenders and print the tables; return 1 if merges differ unexpectedly, 2 for a user error."""
    options = parse(argv)
    for pattern in options.patterns:
        patterns.resolve(pattern)
    python = peers.environment(options.peers_venv) if options.peers else None
    _warm([Path(str(path)) for path, _ in common.corpus(options.paths, options.field, None).files])
    expected = [beside_peers(options, vocab_size, python) for vocab_size in options.vocab_size]
    if len(options.patterns) > 1:
        by_pattern(options)
    if len(options.max_bytes) > 1:
        for vocab_size in options.vocab_size:
            by_size(options, vocab_size)
    return 0 if all(expected) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

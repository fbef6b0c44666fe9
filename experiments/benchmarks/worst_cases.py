"""Encoding of worst-case text: `python -m experiments.benchmarks.worst_cases TOKENIZER...`.

Each case is encoded at half and at full size. The table shows the time at full size and its growth: 2 is linear, and
slightly more is n log n.

TOKENIZER is a folder written by `Tokenizer.save`, or a file in another format. `--pattern` replaces the pattern or
fence (none: no splitting), or supplies one for a format without a pattern. `--damaged` moves a merge after merges that
depend on it, as in an unordered list. On a busy machine the ratios are noisy: run it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import complain
from tokenizer import Tokenizer, UserError, patterns
from tokenizer.definition import Definition

CASES: dict[str, Callable[[int, random.Random], str]] = {
    "one letter": lambda n, _: "a" * n,
    "spaces": lambda n, _: " " * n,
    "line feeds": lambda n, _: "\n" * n,
    "digits": lambda n, _: "7" * n,
    "emoji with modifiers": lambda n, _: "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}" * (n // 8),
    "random bytes, replaced": lambda n, random: random.randbytes(n // 2).decode(errors="replace"),
    "random letters": lambda n, random: "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=n)),
    "hexadecimal": lambda n, random: random.randbytes(n // 2).hex(),
    "two letters in turn": lambda n, _: "ab" * (n // 2),
    "one word in a row": lambda n, _: "the" * (n // 3),
}
"""Text of about n bytes by name."""


def seconds(tokenizer: Tokenizer, case: Callable[[int, random.Random], str], n: int, rounds: int) -> float:
    """CPU time of encoding n bytes on one thread, the least of the rounds; random text is another one each time."""
    times = []
    for number in range(rounds):
        text = case(n, random.Random(f"{n} {number}"))
        started = time.process_time()
        ids, _ = tokenizer.encode_batch([text], threads=1)
        times.append(time.process_time() - started)
    if sum(tokenizer.token_byte_lengths()[ids]) != len(text.encode()):
        message = "the ids do not spell the text"
        raise AssertionError(message)
    return min(times)  # what else runs on the machine only adds


def variant(tokenizer: Tokenizer, pattern: str | None, damaged: bool) -> Tokenizer:
    """The tokenizer with another pattern, or with a merge that comes late."""
    merges, n_phase1 = tokenizer.merge_ids, tokenizer.n_phase1_merges
    cut = patterns.resolve(pattern) if pattern else tokenizer.fence or tokenizer.pattern
    if damaged:
        at = int(np.flatnonzero(np.isin(merges[:, 2], merges[:, :2]))[0])
        merges = np.concatenate([np.delete(merges, at, axis=0), merges[at : at + 1]])
        n_phase1 = len(merges) - 1
    return Tokenizer(
        Definition(
            byte_ids=tokenizer.byte_ids,
            merge_ids=merges,
            n_phase1_merges=n_phase1,
            pattern=cut,
            fence=cut,
            special_tokens=tokenizer.special_tokens,
            unmerged=tokenizer.unmerged,
            ignore_merges=tokenizer.ignore_merges,
        )
    )


def main(argv: list[str]) -> int:
    """Runs the cases and prints a table for each tokenizer; 2 for a user's mistake."""
    options = argparse.ArgumentParser(description="Time of encoding the worst text at two sizes.")
    options.add_argument("tokenizers", nargs="+")
    options.add_argument("--max-bytes", type=common.size, default="10MB", metavar="SIZE", help="full size (10MB)")
    options.add_argument("--rounds", type=common.positive, default=5)
    options.add_argument("--pattern", help="another pattern or fence")
    options.add_argument("--damaged", action="store_true", help="with a merge behind those that need it")
    arguments = options.parse_args(argv)
    n = arguments.max_bytes
    given = {"pattern": arguments.pattern} if arguments.pattern else {}
    for path in arguments.tokenizers:
        try:
            tokenizer = Tokenizer.load(path) if Path(path).is_dir() else Tokenizer.from_file(path, **given)
        except UserError as error:
            complain(error)
            return 2
        if arguments.pattern or arguments.damaged:
            tokenizer = variant(tokenizer, arguments.pattern, arguments.damaged)
        tokenizer.encode_ordinary("builds the encoder")
        table = Table(title=f"{path}, pattern {arguments.pattern or 'its own'}")
        for column in ("", "seconds", "MB/s", "times half the size's"):
            table.add_column(column, justify="right")
        for name, case in CASES.items():
            half, full = (seconds(tokenizer, case, size, arguments.rounds) for size in (n // 2, n))
            table.add_row(name, f"{full:.3f}", f"{n / full / 1e6:.1f}", f"{full / half:.2f}")
        common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

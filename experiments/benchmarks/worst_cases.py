"""Encoding of worst-case text: `python -m experiments.benchmarks.worst_cases TOKENIZER...`.

Each case is encoded at half and at full size. The table shows the time at full size and its growth: 2 is linear, and
slightly more is n log n.

TOKENIZER is a folder written by `Tokenizer.save`, or a file in another format. On a busy machine the ratios are noisy:
run it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import complain
from tokenizer import Tokenizer, UserError

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
    """CPU time to encode n bytes on one thread: the minimum of the rounds, each with other random text."""
    times = []
    for number in range(rounds):
        text = case(n, random.Random(f"{n} {number}"))
        started = time.process_time()
        ids, _ = tokenizer.encode_batch([text], threads=1)
        times.append(time.process_time() - started)
    if sum(tokenizer.token_byte_lengths()[ids]) != len(text.encode()):
        raise AssertionError("the ids do not spell the text")
    return min(times)  # other processes can only add time


def main(argv: list[str]) -> int:
    """Run the cases and print a table for each tokenizer; return 2 for a user error."""
    options = argparse.ArgumentParser(description="Encoding time of worst-case text at two sizes.")
    options.add_argument("tokenizers", nargs="+")
    options.add_argument("--max-bytes", type=common.size, default="10MB", metavar="SIZE", help="full size (10MB)")
    options.add_argument("--rounds", type=common.positive, default=5)
    options.add_argument("--pattern", help="pattern for a format without one")
    arguments = options.parse_args(argv)
    n = arguments.max_bytes
    given = {"pattern": arguments.pattern} if arguments.pattern else {}
    for path in arguments.tokenizers:
        try:
            tokenizer = Tokenizer.load(path) if Path(path).is_dir() else Tokenizer.from_file(path, **given)
        except UserError as error:
            complain(error)
            return 2
        tokenizer.encode_ordinary("builds the encoder")
        table = Table(title=path)
        for column in ("", "seconds", "MB/s", "time / time at half size"):
            table.add_column(column, justify="right")
        for name, case in CASES.items():
            half, full = (seconds(tokenizer, case, size, arguments.rounds) for size in (n // 2, n))
            table.add_row(name, f"{full:.3f}", f"{n / full / 1e6:.1f}", f"{full / half:.2f}")
        common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

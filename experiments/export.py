"""Convert a tokenizer to another format: `python -m experiments.export INPUT OUTPUT --to hf|gpt2|tiktoken|superbpe`.

INPUT and OUTPUT are files or folders as in the table of `tokenizer.formats`. Nothing is written unless the result
gives the same ids.
"""

from __future__ import annotations

import argparse
import sys

from experiments.cli.console import exit_code
from tokenizer import Tokenizer, formats
from tokenizer.formats.hf_import import IGNORABLE


def _special(text: str) -> tuple[str, int]:
    string, equals, number = text.rpartition("=")
    if not (string and equals and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not STRING=ID")
    return string, int(number)


def run(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.export",
        description="Write a tokenizer in another format, if that gives the same ids.",
    )
    options.add_argument("input", help="a tokenizer's folder or file, of any known format")
    options.add_argument("output", help="folder; NAME.json for a single tokenizer.json; NAME.tiktoken for tiktoken")
    options.add_argument("--to", required=True, choices=formats.KINDS, help="format to write")
    options.add_argument("--pattern", help="name or regex, for formats without a pattern (GPT-2's files, tiktoken's)")
    options.add_argument(
        "--special",
        action="append",
        type=_special,
        metavar="STRING=ID",
        help="special token of a tiktoken input; can be repeated",
    )
    options.add_argument(
        "--ignore", action="append", default=[], choices=IGNORABLE, help="part of tokenizer.json to ignore; repeatable"
    )
    options.add_argument("--cut", type=int, metavar="SIZE", help="keep only the first SIZE tokens")
    options.add_argument("--any-pattern", action="store_true", help="for gpt2: accept patterns other than GPT-2's")
    arguments = options.parse_args(argv)
    return exit_code(lambda: _export(arguments))


def _export(arguments: argparse.Namespace) -> None:
    tokenizer = Tokenizer.from_file(
        arguments.input,
        pattern=arguments.pattern,
        special_tokens=None if arguments.special is None else dict(arguments.special),
        ignore=arguments.ignore,
    )
    if arguments.cut is not None:
        tokenizer = tokenizer.cut(arguments.cut)
    written = formats.write(tokenizer, arguments.output, arguments.to, any_pattern=arguments.any_pattern)
    print(f"{tokenizer!r}: {', '.join(map(str, written))}")


if __name__ == "__main__":
    sys.exit(run())

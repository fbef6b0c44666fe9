"""Convert a tokenizer to another format: `python -m experiments.export INPUT OUTPUT --to hf|gpt2|tiktoken|superbpe`.

INPUT and OUTPUT are files or folders as in the table of `tokenizer.formats`. Nothing is written unless the result
gives the same ids.
"""

from __future__ import annotations

import argparse
import sys

from rich.text import Text

from experiments.cli.console import console, finish
from experiments.cli.options import TOKENIZER, Parser, add_pattern, command, open_exact
from tokenizer import formats
from tokenizer.formats.hf_import import IGNORABLE


def _special(text: str) -> tuple[str, int]:
    string, equals, number = text.rpartition("=")
    if not (string and equals and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not STRING=ID")
    return string, int(number)


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "export",
        "Write a tokenizer in another format, if that gives the same ids.",
    )
    options.add_argument("input", metavar="TOKENIZER", help=TOKENIZER)
    options.add_argument(
        "output", metavar="OUTPUT", help="folder; NAME.json for a single tokenizer.json; NAME.tiktoken for tiktoken"
    )
    options.add_argument("--to", required=True, choices=formats.KINDS, help="format to write")
    add_pattern(options)
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
    return options


def _export(arguments: argparse.Namespace) -> None:
    tokenizer = open_exact(
        arguments.input,
        pattern=arguments.pattern,
        special_tokens=None if arguments.special is None else dict(arguments.special),
        ignore=arguments.ignore,
    )
    if arguments.cut is not None:
        tokenizer = tokenizer.cut(arguments.cut)
    written = formats.write(tokenizer, arguments.output, arguments.to, any_pattern=arguments.any_pattern)
    console.print(Text(repr(tokenizer)), soft_wrap=True)
    pattern = ["--pattern", arguments.pattern] if arguments.to == "gpt2" and arguments.pattern else []
    finish(*written, then=["count-tokens", arguments.output, "TEXT", *pattern])


run = command(parser, _export)


if __name__ == "__main__":
    sys.exit(run())

"""Encode files: `python -m experiments.encode TOKENIZER TEXT... --to FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.console import Reporter, finish, si
from experiments.cli.options import Parser, add_text, add_tokenizer, command, open_any, open_text
from lm.data.sharding import reading_threads, write_shards
from lm.data.shards import END_OF_TEXT
from tokenizer.errors import UserError
from tokenizer.storage import naming

if TYPE_CHECKING:
    from tokenizer.interface import TokenizerLike


_TEXT = tuple(f".{kind}{end}" for kind in ("jsonl", "ndjson", "parquet") for end in ("", ".gz", ".zst", ".zstd"))
"""Ends of names that no tokenizer has."""


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "encode",
        "Encode text files into shards: memory-mapped ids, and where each document ends.",
    )
    add_input(options)
    options.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="folder to write")
    return options


def add_input(options: argparse.ArgumentParser) -> None:
    """Add the arguments for a tokenizer and text."""
    add_tokenizer(options)
    add_text(options)
    options.add_argument("--threads", type=int, help="threads (all cores)")


def load(arguments: argparse.Namespace) -> TokenizerLike:
    """Load the tokenizer of the arguments, with `<|endoftext|>`.

    Raises:
        UserError: If there is none, or the arguments are swapped.
    """
    first = arguments.tokenizer
    if Path(first).is_file() and first.endswith(_TEXT):
        raise UserError(f"{first} is text; name the tokenizer first: {arguments.text[0]} {first}")
    return open_any(arguments.tokenizer, add_special_tokens=[END_OF_TEXT], pattern=arguments.pattern).tokenizer


def _run(arguments: argparse.Namespace) -> None:
    reporter, corpus = Reporter(), open_text(arguments, arguments.text)
    tokenizer = load(arguments)
    with reporter.stage("encode"), naming(arguments.to):
        found = write_shards(
            arguments.to,
            tokenizer,
            corpus.batches(readers=reading_threads(arguments.threads)),
            threads=arguments.threads,
            progress=reporter.progress,
            skipped=corpus.skipped.summary,
        )
    reporter.say(
        f"{found['n_tokens']:,} tokens of {si(found['n_bytes'])}B in {found['n_documents']:,} "
        f"documents, {len(found['shards'])} files of {found['dtype']}"
    )
    finish(arguments.to, then=["fertility", arguments.tokenizer, "OTHER_TOKENIZER", *arguments.text])


run = command(parser, _run, "finished shards are kept, and the same command resumes after them")


if __name__ == "__main__":
    sys.exit(run())

"""`superbpe encode TOKENIZER TEXT... --to FOLDER`: encode text files into shards.

Shards are memory-mapped ids, and where each document ends. `--layout` writes the files of another trainer instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    Parser,
    add_text,
    add_threads,
    add_tokenizer,
    open_any,
    open_text,
    out_folder,
    text_options,
    with_pattern,
)
from experiments.cli.console import finish
from experiments.numbers import si
from experiments.progress import Reporter
from lm.data.layouts import LAYOUTS
from lm.data.sharding import reading_threads, write_shards
from tokenizer.corpus.records import ending
from tokenizer.corpus.text_files import format_of
from tokenizer.durable import naming
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import argparse


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("encode", __doc__)
    add = options.add_argument
    add_tokenizer(options)
    add_text(options)
    add("--to", type=Path, required=True, metavar="FOLDER", help="new folder to write")
    readers = "; ".join(f"{name}: {layout.reader}" for name, layout in LAYOUTS.items())
    add("--layout", choices=list(LAYOUTS), default="ours", help=f"format, by the trainer that reads it ({readers})")
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Encode the text and write the shards."""
    first = arguments.tokenizer
    # Tokenizers have files named .json and .txt, too.
    if Path(first).is_file() and format_of(Path(first)) and ending(Path(first)) not in ("json", "txt"):
        raise UserError(f"{first} is text; name the tokenizer first: {arguments.text[0]} {first}")
    reporter, corpus = Reporter(), open_text(arguments, arguments.text)
    tokenizer = open_any(first, pattern=arguments.pattern, end_of_text=arguments.end_of_text).tokenizer
    layout = LAYOUTS[arguments.layout]
    with out_folder(arguments.to, "--to"), reporter.stage("encode"), naming(arguments.to):
        manifest = write_shards(
            arguments.to,
            tokenizer,
            corpus.batches(readers=reading_threads(arguments.threads)),
            layout=layout,
            threads=arguments.threads,
            progress=reporter.progress,
            skipped=corpus.skipped.summary,
        )
    where = "ends with" if layout.ends_documents else "follows"
    reporter.say(
        f"{manifest['n_tokens']:,} tokens of {si(manifest['n_bytes'])}B in {manifest['n_documents']:,} "
        f"documents, files of {manifest['dtype']}: {len(manifest['shards'])}; "
        f"each document {where} {manifest['end_of_text']} (id {manifest['eos_id']})"
    )
    text = text_options(arguments, arguments.text)
    finish(arguments.to, then=["fertility", *with_pattern(first, arguments.pattern), *text] if text else ())

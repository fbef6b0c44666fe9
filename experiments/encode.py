"""Encode files: `python -m experiments.encode TOKENIZER TEXT... --to FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.console import Reporter, exit_code, si
from experiments.report.training_counts import tokenizer_folder
from lm.data.sharding import reading_threads, write_shards
from lm.data.shards import END_OF_TEXT
from tokenizer import Corpus, CorpusConfig
from tokenizer.pretrained import load_pretrained

if TYPE_CHECKING:
    from tokenizer.interface import TokenizerLike


def run(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.encode",
        description="Encode text files into shards: memory-mapped ids, and where each document ends.",
    )
    add_input(options)
    options.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="folder to write")
    arguments = options.parse_args(argv)
    return exit_code(lambda: _run(arguments), "finished shards are kept, and the same command resumes after them")


def add_input(options: argparse.ArgumentParser) -> None:
    """Add the arguments for a tokenizer and text."""
    options.add_argument("tokenizer", help="folder or file of any known format, or a repository of the hub")
    options.add_argument(
        "text", nargs="+", metavar="TEXT", help="files, folders and globs: .txt, .jsonl[.gz|.zst], .parquet"
    )
    options.add_argument("--pattern", help="name or regex, for formats without a pattern (GPT-2's files, tiktoken's)")
    add_text_settings(options)
    options.add_argument("--threads", type=int, help="threads (all cores)")


def add_text_settings(options: argparse.ArgumentParser) -> None:
    """Add the arguments that say how text is read."""
    options.add_argument("--format", choices=("txt", "jsonl", "parquet"), help="format of the text (by its name)")
    options.add_argument("--field", default="text", help="field of a record that holds the text (%(default)s)")
    options.add_argument("--separator", help="string between the documents of a .txt file, such as '\\n\\n'")


def load(arguments: argparse.Namespace) -> TokenizerLike:
    """Load the tokenizer of the arguments, with `<|endoftext|>`."""
    path = Path(arguments.tokenizer)
    source = tokenizer_folder(path) if path.exists() else arguments.tokenizer
    return load_pretrained(source, add_special_tokens=[END_OF_TEXT], pattern=arguments.pattern).tokenizer


def open_text(arguments: argparse.Namespace, paths: list[str]) -> Corpus:
    """Return the documents of these paths, read as the arguments say."""
    settings = {name: getattr(arguments, name) for name in ("format", "field", "separator")}
    return Corpus(CorpusConfig(paths=paths, **settings))


def _run(arguments: argparse.Namespace) -> None:
    reporter, corpus = Reporter(), open_text(arguments, arguments.text)
    tokenizer = load(arguments)
    with reporter.stage("encode"):
        found = write_shards(
            arguments.to,
            tokenizer,
            corpus.batches(readers=reading_threads(arguments.threads)),
            threads=arguments.threads,
            progress=reporter.progress,
        )
    reporter.say(
        f"{arguments.to}: {found['n_tokens']:,} tokens of {si(found['n_bytes'])}B in {found['n_documents']:,} "
        f"documents, {len(found['shards'])} files of {found['dtype']}"
    )


if __name__ == "__main__":
    sys.exit(run())

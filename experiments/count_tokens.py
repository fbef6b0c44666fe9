"""Count the tokens of files: `python -m experiments.count_tokens TOKENIZER TEXT...`."""

from __future__ import annotations

import argparse
import sys

from experiments.cli.console import Reporter, finish
from experiments.cli.options import Parser, command, open_text
from experiments.encode import add_input, load
from lm.data.sharding import reading_threads
from tokenizer.progress import Throttle
from tokenizer.urls import shown


def parser() -> Parser:
    """Options of the command."""
    options = Parser("count-tokens", "Count the tokens of text files with any tokenizer.")
    add_input(options)
    return options


def _run(arguments: argparse.Namespace) -> None:
    tokenizer, reporter = load(arguments), Reporter()
    rows = []
    for path in arguments.text:
        n_tokens = n_bytes = n_documents = 0
        with reporter.stage(shown(path)):
            tick = Throttle(reporter.progress, "bytes encoded")
            corpus = open_text(arguments, [path])
            for batch in corpus.batches(readers=reading_threads(arguments.threads)):
                ids, _ = tokenizer.encode_batch(batch, threads=arguments.threads)
                n_tokens += len(ids)
                n_bytes, n_documents = n_bytes + batch.n_bytes, n_documents + len(batch)
                tick(n_bytes)
        rows.append((shown(path), n_tokens, n_bytes, n_documents))
    if len(rows) > 1:
        rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    reporter.table(
        "Tokens",
        ["", "tokens", "bytes", "documents", "bytes per token"],
        [[name, f"{n:,}", f"{size:,}", f"{documents:,}", f"{size / n:.3f}"] for name, n, size, documents in rows],
    )
    finish(then=["encode", arguments.tokenizer, *arguments.text, "--to", "FOLDER"])


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())

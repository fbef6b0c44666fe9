"""A larger vocabulary: `python -m experiments.extend TOKENIZER TEXT... --vocab-size N --to FOLDER`.

TOKENIZER is of any format that `tokenizer.formats` reads, and keeps its tokens. Their ids stay too, but for special
tokens behind the merges of a tokenizer laid out as ours, which stay behind them unless `--keep-ids` is given. TEXT is
files, folders and globs, counted with the tokenizer's own pattern, or one `counts.parquet`. Phase 1 goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.console import Reporter, complain, console, si, training_summary
from tokenizer import Corpus, CorpusConfig, PretokenCounts, Tokenizer, UserError, count_pretokens, formats, train_bpe


def _counts(arguments: argparse.Namespace, start: Tokenizer, reporter: Reporter) -> PretokenCounts:
    if len(arguments.text) == 1 and arguments.text[0].endswith("counts.parquet"):
        return PretokenCounts.load(Path(arguments.text[0]))
    corpus = Corpus(CorpusConfig(paths=arguments.text, field=arguments.field, separator=arguments.separator))
    with reporter.stage("count"):
        counts = count_pretokens(
            corpus,
            start.pattern,
            unit=arguments.unit,
            special_tokens=list(start.special_tokens),
            progress=reporter.progress,
        )
    reporter.say(f"{si(counts.n_distinct)} distinct pretokens in {si(counts.n_bytes)}B")
    return counts


def _extend(arguments: argparse.Namespace, reporter: Reporter) -> None:
    folder = Path(arguments.to)
    if folder.exists():
        raise UserError(f"{folder} exists already; name a new folder")
    start = Tokenizer.from_file(arguments.tokenizer, pattern=arguments.pattern)
    counts = _counts(arguments, start, reporter)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with reporter.stage("bpe"):
        extended = train_bpe(
            counts,
            arguments.vocab_size,
            start=start,
            keep_ids=arguments.keep_ids,
            tie_break=arguments.tie_break,
            min_count=arguments.min_count,
            checkpoint=folder.with_name(f".{folder.name}.merges.npz"),
            progress=reporter.progress,
        )
    formats.write(extended, folder, "superbpe")
    reporter.say(training_summary(extended))
    reporter.say(f"{extended!r}: {folder}")


def run(argv: list[str] | None = None) -> int:
    """Reads, counts, trains and writes; returns the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.extend", description="Train a tokenizer on to a larger vocabulary."
    )
    options.add_argument("tokenizer", help="a tokenizer's folder or file, of any known format")
    options.add_argument("text", nargs="+", help=".txt, .jsonl[.gz|.zst], .parquet; or one counts.parquet")
    options.add_argument("--vocab-size", type=int, required=True, help="size of the result, special tokens included")
    options.add_argument("--to", required=True, metavar="FOLDER", help="folder to write, which does not exist yet")
    options.add_argument("--pattern", help="name or regex, for a tokenizer that holds none: GPT-2's files, tiktoken's")
    options.add_argument(
        "--keep-ids", action="store_true", help="leave special tokens where they are, for a model that knows their ids"
    )
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    options.add_argument("--separator", help="what separates documents in .txt")
    options.add_argument("--unit", default="document", choices=["document", "line"])
    options.add_argument("--tie-break", default="lowest-ids", help="as in training (default lowest-ids)")
    options.add_argument("--min-count", type=int, default=1, help="rarer pairs are not merged (default 1)")
    arguments = options.parse_args(argv)
    try:
        _extend(arguments, Reporter(console))
    except UserError as error:
        complain(error)
        return 2
    except OSError as error:
        complain(UserError(f"cannot read or write {error.filename}: {error.strerror}"))
        return 2
    except KeyboardInterrupt:
        complain(KeyboardInterrupt("interrupted: the same command continues where this one stopped"))
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run())

"""`superbpe fertility TOKENIZER... TEXT...`: count and compare the tokens that tokenizers need for a text.

TOKENIZER is a folder, a file in any known format, or a repository of the Hugging Face Hub; TEXT a file that ends in
.txt, .jsonl, .csv or .parquet, also compressed. Both may be named: NAME=PATH. Writes `fertility.html`, a page that
opens offline, its numbers as `fertility.json` and `fertility.csv`, and its tables for a paper as `fertility.tex`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    OUT,
    STANDARD_INPUT,
    TOKENIZER,
    Parser,
    add_deployment,
    add_text_settings,
    add_threads,
    named,
    needs_pages,
    number,
    of_tokenizer,
    open_all,
    open_any,
    open_sources,
    open_text,
    out_folder,
    pattern_of,
    text_options,
    tokenizers_of,
    with_pattern,
)
from experiments.cli.console import finish
from experiments.fertility.fertility import LATEX, NUMBERS, PAGE, TABLE, measure_fertility
from experiments.fertility.measures import ALPHA
from experiments.fertility.tallies import ALL
from experiments.progress import Reporter
from tokenizer import Tokenizer, UserError
from tokenizer.corpus.records import ending
from tokenizer.corpus.text_files import READABLE, is_array, named_format
from tokenizer.files import TOKENIZER_FILES, weighted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained

_LINES, _COLUMNS = 12, 6
"""Most sources or scripts in a table of the terminal, and columns of the comparison; the page has all."""


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("fertility", __doc__)
    add = options.add_argument
    add(
        "given", nargs="+", metavar="TOKENIZER|TEXT",
        help=f"tokenizers ({TOKENIZER}) and texts (.txt, .jsonl, .csv, .parquet, a .json array; "
        "also compressed or as a glob); "
        "NAME=PATH names a tokenizer, or the source of a text",
    )  # fmt: skip
    add("--text", nargs="+", default=[], metavar="[NAME=]PATH", help="more text, such as folders")
    add("--reference", metavar="NAME", help="tokenizer to compare the others with (default: the first)")
    add("--out", type=Path, default=Path("fertility"), metavar="FOLDER", help=OUT)
    add(
        "--training", nargs="+", default=[], metavar="[NAME=]PATH",
        help="training text of all tokenizers, or of the one called NAME, to find measured documents in; without "
        "it, they are looked up in what the tokenizer's own folder recorded",
    )  # fmt: skip
    add("--pattern", nargs="+", default=[], metavar="[NAME=]PATTERN", help="pattern, for formats without one")
    add_text_settings(options)
    add("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    add("--parallel", metavar="FIELD", help="records with equal values in NAME=PATH sources are translations")
    add_deployment(options)
    add("--alpha", type=number(0), default=ALPHA, help="order of the Rényi entropy")
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Count the tokens, write the page, and print the tables."""
    reporter = Reporter()
    entries = [*filter(_is_text, arguments.given), *arguments.text]
    if not entries:
        raise UserError(
            f"no text given, only tokenizers ({', '.join(arguments.given)}); name files that end in "
            f"{READABLE}, or give other files and folders with --text"
        )
    text = open_sources(arguments, entries)
    if any(weight != 1 for weight in text.config.weights.values()):
        raise UserError("weights are for training text, and this text is measured; leave them out")
    paths = tokenizers_of([entry for entry in arguments.given if not _is_text(entry)])
    if not paths:
        raise UserError("no tokenizer given; name folders, files or repositories of the Hugging Face Hub")
    tokenizers = open_all(_open, arguments, paths)
    training = _training(arguments, paths)
    needs_pages()
    texts = [path for one in (text, *training.values()) for path in one.config.all_paths]
    with out_folder(arguments.out, texts=texts) as out:
        found = measure_fertility(
            tokenizers, text, reference=arguments.reference, training=training,
            parallel=arguments.parallel, alpha=arguments.alpha, deployment=arguments.deployment,
            out=out, threads=arguments.threads, reporter=reporter,
        )  # fmt: skip
    from experiments.report import fertility_page as page  # Altair is slow to import

    report = found.save()
    for name, table in page.tables(report).items():
        reporter.table(table.cut(rows=_LINES, columns=_COLUMNS if name == "comparison" else None))
    for note in page.notes(report):
        reporter.say(note, style="yellow")
    tokens = {row.tokenizer: row.tokens for row in found.rows if row.by == ALL}
    exact = [name for name, one in tokenizers.items() if isinstance(one.tokenizer, Tokenizer)]
    then: list[str] = []
    if exact:
        best = min(exact, key=lambda name: tokens[name])
        then = ["inspect", *with_pattern(paths[best], pattern_of(arguments, paths, best))]
        then += text_options(arguments, [named(entry)[1] for entry in entries])
    finish(*(arguments.out / name for name in (PAGE, TABLE, LATEX, NUMBERS)), then=then)


def _open(path: str, pattern: str | None) -> Pretrained:
    try:
        return open_any(path, pattern=pattern)
    except UserError as error:
        if not Path(path).is_dir() or any((Path(path) / name).exists() for name in TOKENIZER_FILES):
            raise
        raise UserError(f"{error}; if it is a folder of text, name it after --text") from None


def _is_text(entry: str) -> bool:
    path = Path(named(weighted(entry, "TEXT")[0])[1])
    if str(path) == STANDARD_INPUT:
        return True
    if path.name in TOKENIZER_FILES:
        return False
    if ending(path) == "json":  # tokenizers end in .json, too
        return is_array(path)
    return named_format(path) is not None


def _training(arguments: argparse.Namespace, names: Collection[str]) -> dict[str, Corpus]:
    """The text of `--training` of each tokenizer that has some; tokenizers with the same entries share it."""
    entries = [of_tokenizer("--training", entry, names) for entry in arguments.training]
    of_names = {name: tuple(path for of, path in entries if of in (None, name)) for name in names}
    texts = {paths: open_text(arguments, paths) for paths in set(of_names.values()) if paths}
    return {name: texts[paths] for name, paths in of_names.items() if paths}

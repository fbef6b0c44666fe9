"""Options that several commands share, and what they stand for: text, tokenizers and their names."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from experiments.cli.console import complain
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.cli.console import Reporter
    from tokenizer import Corpus, Tokenizer
    from tokenizer.pretrained import Pretrained

TOKENIZER = "folder or file in any known format, repository of the Hugging Face Hub, or tiktoken:NAME"
TOKENIZER_FILES = {"vocab.txt", "merges.txt", "tokenizer.json", "vocab.json", "superbpe.json", "external.json"}
"""Files with the same name in every tokenizer: the folder has the tokenizer's name."""
TEXT = "files, folders and globs: .txt, .jsonl[.gz|.zst], .parquet; also s3://, gs://, hf://datasets/, https://"


class Parser(argparse.ArgumentParser):
    """Options of a command. A mistake prints one line and exits with code 2.

    Args:
        name: Name of the command, as in `superbpe NAME`.
        description: What the command does.
        settings: Further arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, name: str, description: str, **settings: Any) -> None:
        super().__init__(prog=f"superbpe {name}", description=description, **settings)

    def error(self, message: str) -> NoReturn:
        """Print the message, with the nearest option for an unknown one, and exit."""
        unknown = re.search(r"unrecognized arguments: (-[^ =]*)", message)
        hint = did_you_mean(unknown[1], self._option_string_actions) if unknown else ""
        complain(UserError(f"{message}{hint}; {self.prog} --help lists the options"))
        self.exit(2)


def add_tokenizer(options: argparse.ArgumentParser) -> None:
    """Add the arguments for one tokenizer: `tokenizer` and `--pattern`."""
    options.add_argument("tokenizer", metavar="TOKENIZER", help=TOKENIZER)
    add_pattern(options)


def add_pattern(options: argparse.ArgumentParser) -> None:
    """Add `--pattern`, for formats that do not record one."""
    options.add_argument("--pattern", help="name or regex, for formats without a pattern (GPT-2's files, tiktoken's)")


def add_text(options: argparse.ArgumentParser) -> None:
    """Add the arguments for text: `text` and how it is read."""
    options.add_argument("text", nargs="+", metavar="TEXT", help=TEXT)
    add_text_settings(options)


def add_text_settings(options: argparse.ArgumentParser) -> None:
    """Add the arguments that say how text is read."""
    options.add_argument("--format", choices=("txt", "jsonl", "parquet"), help="format of the text (by its name)")
    options.add_argument("--field", default="text", help="field of a record that holds the text (%(default)s)")
    options.add_argument("--separator", help="string between the documents of a .txt file, such as '\\n\\n'")
    options.add_argument(
        "--on-invalid-utf8",
        choices=("error", "replace"),
        default="error",
        help="stop at malformed bytes, or read them as U+FFFD (%(default)s)",
    )
    options.add_argument(
        "--on-error",
        choices=("error", "skip"),
        default="error",
        help="stop at damaged files, lines and rows, or leave them out (%(default)s)",
    )


def open_text(arguments: argparse.Namespace, paths: Sequence[str], **settings: Any) -> Corpus:
    """Return the documents of these paths, read as the arguments say.

    Args:
        arguments: Those of `add_text_settings`.
        paths: Files, folders and globs.
        settings: Further settings of `CorpusConfig`.
    """
    from tokenizer import Corpus, CorpusConfig

    read = {name: getattr(arguments, name) for name in ("format", "field", "separator", "on_invalid_utf8", "on_error")}
    return Corpus(CorpusConfig(paths=list(paths), **read, **settings))


def report_skipped(reporter: Reporter, *corpora: Corpus) -> None:
    """Print how much damaged data was left out of corpora that have been read, and where the first of it is."""
    for skipped in (corpus.skipped.summary() for corpus in corpora if corpus.skipped.count):
        what = f"{skipped['count']:,} damaged records or rests of files skipped in {len(skipped['files']):,} files"
        reporter.say(f"{what}, such as {skipped['places'][0]}", style="yellow")


def open_any(source: str, **options: Any) -> Pretrained:
    """Load the tokenizer that a user names: by path, repository or encoding, or the one that a training record names.

    Args:
        source: What the user typed.
        options: As for `tokenizer.pretrained.load_pretrained`.
    """
    from experiments.report.training_counts import tokenizer_folder
    from tokenizer.pretrained import load_pretrained

    path = Path(source)
    return load_pretrained(tokenizer_folder(path) if path.exists() else source, **options)


def open_exact(source: str, **options: Any) -> Tokenizer:
    """Load a tokenizer as `open_any` does, for work on its merges.

    Raises:
        UserError: Other software runs the tokenizer, which therefore has no byte-level merges.
    """
    from tokenizer import Tokenizer
    from tokenizer.external.tokenizer import ExternalTokenizer

    found = open_any(source, **options).tokenizer
    if isinstance(found, ExternalTokenizer):
        raise UserError(
            f"{source} is not byte-level BPE ({found.reason}), and this command needs byte-level merges; "
            "encode, count-tokens and fertility accept any tokenizer"
        )
    assert isinstance(found, Tokenizer)
    return found


def label_of(source: str) -> str:
    """Name of a tokenizer: that of its folder or file, or of the folder of a file such as tokenizer.json."""
    path = Path(source)
    if not path.exists():
        return source
    if path.is_dir():
        return path.absolute().name
    return path.absolute().parent.name if path.name in TOKENIZER_FILES else path.stem

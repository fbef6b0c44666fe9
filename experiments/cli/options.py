"""Options that several commands share, and what they stand for: text, tokenizers and their names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from experiments.cli.console import complain, exit_code, spell
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        self._words: list[str] = []
        spell(self._spelling)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; `--vocab_size` is `--vocab-size`."""
        self._words = [self._dashed(word) for word in (sys.argv[1:] if args is None else args)]
        return super().parse_known_args(self._words, namespace)

    def _dashed(self, word: str) -> str:
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        return f"{dashed}{equals}{value}" if dashed in self._option_string_actions else word

    def _spelling(self) -> dict[str, str]:
        """Options by the keyword arguments of the library."""
        options = ((action, max(action.option_strings, key=len)) for action in self._actions if action.option_strings)
        return dict(
            (f"{action.dest}=True", name) if action.nargs == 0 else (f"{action.dest}=", f"{name} ")
            for action, name in options
        )

    def error(self, message: str) -> NoReturn:
        """Print the message, or the first unknown option with the nearest known one, and exit."""
        known = self._option_string_actions
        given = (word.partition("=")[0] for word in self._words if word.startswith("--"))
        unknown = next((word for word in given if not any(name.startswith(word) for name in known)), None)
        if unknown is not None:
            message = f"unknown option {unknown}{did_you_mean(unknown, known)}"
        complain(UserError(f"{message}; {self.prog} --help lists the options"))
        self.exit(2)


def command(
    parser: Callable[[], argparse.ArgumentParser],
    job: Callable[[argparse.Namespace], None],
    after_stop: str = "nothing is written",
) -> Callable[..., int]:
    """Return a function that parses a command line, runs the job and returns the exit code, see `exit_code`."""

    def run(argv: Sequence[str] | None = None) -> int:
        arguments = parser().parse_args(argv)
        return exit_code(lambda: job(arguments), after_stop)

    return run


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


def labels_of(sources: Sequence[str]) -> list[str]:
    """Names of tokenizers, told apart by a short hash for artifacts and by the parent's name for other folders."""
    labels = {source: label_of(source) for source in sources}
    names = list(labels.values())
    repeated = {name for name in names if names.count(name) > 1}
    return [_told_apart(Path(each), labels[each]) if labels[each] in repeated else labels[each] for each in sources]


def _told_apart(path: Path, label: str) -> str:
    from experiments.results import Folder
    from experiments.store.artifacts import artifact_at

    found = artifact_at(path, Folder)
    return f"{path.absolute().parent.name}/{path.name}" if found is None else f"{label} {found.hash[:6]}"


def label_of(source: str) -> str:
    """Name of a tokenizer: that of its arm or kind for an artifact, else that of its folder or file.

    The name of a file such as tokenizer.json is that of its folder.
    """
    path = Path(source)
    if not path.exists():
        return source
    if (name := _name_of_artifact(path)) is not None:
        return name
    if path.is_dir():
        return path.absolute().name
    return path.absolute().parent.name if path.name in TOKENIZER_FILES else path.stem


def _name_of_artifact(path: Path) -> str | None:
    """Label of the arm that used a tokenizer or a training record, else its kind and size; None for any other path."""
    from experiments.results import Folder
    from experiments.store.artifacts import Store, artifact_at
    from experiments.store.registry import arm_labels

    found = artifact_at(path, Folder)
    if found is None:
        return None
    used = arm_labels(Store(found.folder.parent)).get(found.name)
    if used:
        return used[0]
    manifest = found.manifest
    phase2 = manifest.stage == "superbpe" or "phase1" in manifest.inputs
    size = manifest.contents.get("vocab_size")
    kind = "SuperBPE" if phase2 else "BPE"
    return manifest.contents.get("source") or (kind if size is None else f"{kind} {size:,}")

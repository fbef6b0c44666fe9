"""The argument parser, and the arguments that several commands share: text, tokenizers, folders, sizes."""

from __future__ import annotations

import argparse
import atexit
import glob
import json
import math
import os
import re
import shutil
import sys
import tempfile
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from experiments.cli.console import complain, exit_code
from experiments.numbers import with_sizes
from experiments.progress import console, line
from experiments.shell import operand, pattern_named, reading_options
from tokenizer.durable import new_folder
from tokenizer.errors import UserError, check_choice, did_you_mean, listed
from tokenizer.files import TOKENIZER_FILES, is_remote, shown, weighted
from tokenizer.progress import MOST_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from experiments.given_models import Loading
    from superbpe.rules import Rules
    from tokenizer import Corpus, Tokenizer
    from tokenizer.external.load import Pretrained

T = TypeVar("T")

TOKENIZER = "folder or file in any known format, repository of the Hugging Face Hub, or tiktoken:NAME"
OUT = "folder for the results, replacing earlier ones; other files in it stay"
STANDARD_INPUT = "-"
_FOLDER = ("--to", "--out", "--output", "--output-dir")
"""Names that people use for the option of the results' folder; a command has one of the first two."""
TEXT = (
    "files, folders, globs: .txt, .jsonl, .json, .csv[.gz|.zst], .parquet, Markdown, source code; s3://, gs://, "
    "hf://datasets/, https://; - for the standard input"
)


class _Help(argparse.HelpFormatter):
    """Names the default of an option, unless its help does."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        has_default = action.nargs != 0 and action.default not in (None, argparse.SUPPRESS, [])
        if has_default and action.option_strings and "default:" not in text:
            text += " (default: %(default)s)"
        return text


class Parser(argparse.ArgumentParser):
    """Arguments of a command. A mistake prints one line and exits with code 2.

    Args:
        name: Name of the command, as in `superbpe NAME`.
        doc: `superbpe NAME ...: what it does`, for the help: the docstring of its module.
        after_stop: State that the command leaves when it is interrupted, for its last line.
        settings: Further arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, name: str, doc: str | None, after_stop: str = "nothing is written", **settings: Any) -> None:
        what = (doc or "").partition(": ")[2]  # None under python -OO
        description = what[:1].upper() + what[1:]
        super().__init__(prog=f"superbpe {name}", description=description, formatter_class=_Help, **settings)
        self.after_stop = after_stop
        self._words: list[str] = []

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; options may stand between positional arguments."""
        self._words = list(sys.argv[1:] if args is None else args)
        return self.parse_intermixed_args(self._words, namespace)

    def spelling(self) -> dict[str, str]:
        """Options by the keyword arguments of the library: `{"vocab_size=": "--vocab-size "}`."""
        options = ((action, max(action.option_strings, key=len)) for action in self._actions if action.option_strings)
        return dict(
            (f"{action.dest}=True", name) if action.nargs == 0 else (f"{action.dest}=", f"{name} ")
            for action, name in options
        )

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike `argparse`, with an error if it cannot be written."""
        help_ = self.format_help()
        if code := exit_code(lambda: console.print(help_, end="", soft_wrap=True, markup=False)):
            self.exit(code)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        option = "/".join(action.option_strings)
        for other in self._actions:
            if other.option_strings and value in (other.choices or ()):
                raise UserError(f"{option} {value}: did you mean {'/'.join(other.option_strings)} {value}?")
        check_choice(option, value, list(action.choices))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        # A shell expands the tilde in `--to ~/x`, but not in `--to=~/x`.
        return super()._get_value(action, os.path.expanduser(arg_string) if action.type is Path else arg_string)  # noqa: PTH111

    def error(self, message: str) -> NoReturn:
        """Print the message, or the first unknown option with the nearest known one, and exit."""
        known = self._option_string_actions
        given = (word.partition("=")[0] for word in self._words if word.startswith("--"))
        unknown = next((word for word in given if not any(name.startswith(word) for name in known)), None)
        if unknown is not None:
            folder = next((name for name in _FOLDER if name in known), "")
            meant = f" (did you mean {folder}?)" if folder and unknown in _FOLDER else _nearest(unknown, known)
            positional = [action.metavar for action in self._actions if not action.option_strings]
            names = re.findall(r"\w+", " ".join(map(str, positional)).lower())
            if (name := unknown.strip("-").removesuffix("s")) in names:
                meant = f" (name the {name} without an option)"
            message = f"unknown option {unknown}{meant}"
        elif message.startswith("unrecognized") and "--text" in known:
            message += " (text follows --text)"
        complain(UserError(f"{message}; {self.prog} --help lists the options"))
        self.exit(2)


def size(text: str) -> int:
    """Number of bytes of a size; units are powers of 1,000, or of 1,024 with an i. For `type=` of argparse.

    >>> size("10GB"), size("1.5 mb"), size("4096")
    (10000000000, 1500000, 4096)
    """
    number = with_sizes(text.strip())
    if not re.fullmatch(r"[1-9][\d_]*", number) or int(number) < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it with its unit, as in 400MB, 10GB, 2TB")
    return int(number)


def whole(least: int = 1, most: int | None = None) -> Callable[[str], int]:
    """Return a `type=` of argparse for whole numbers of at least `least`, also written 50k, 1M, 50,000 or 50_000."""
    bounds = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        if found := re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d[\d_]*)([kM]?)", text):
            value = int(found[1].replace(",", "")) * {"": 1, "k": 10**3, "M": 10**6}[found[2]]
            if least <= value and (most is None or value <= most):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {bounds}")

    return parse


def number(above: float, most: float = math.inf) -> Callable[[str], float]:
    """Return a `type=` of argparse for numbers above `above`, and at most `most`."""

    def parse(text: str) -> float:
        with suppress(ValueError):
            if above < (value := float(text)) <= most and math.isfinite(value):
                return value
        bound = "" if most == math.inf else f" and at most {most:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above {above:g}{bound}")

    return parse


def device(text: str) -> str:
    """Name of a device, which PyTorch need not be imported to check. For `type=` of argparse."""
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is unknown; use auto, cpu, cuda or cuda:NUMBER")


def _device_or_all(text: str) -> str:
    return text if text == "all" else device(text)


def transition(text: str) -> float | str:
    """Where phase 2 starts: a share of the vocabulary, a number of tokens, or `auto`. For `type=` of argparse."""
    with suppress(ValueError):
        value = text if text == "auto" else float(text)
        if isinstance(value, str) or 0 < value < 1 or (value >= 256 and value.is_integer()):
            return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a transition; write a share of the vocabulary, a number of tokens from 256 on, or auto"
    )


def add_tokenizer(options: argparse.ArgumentParser) -> None:
    """Add the arguments for one tokenizer: `tokenizer`, `--pattern` and `--end-of-text`."""
    options.add_argument("tokenizer", metavar="TOKENIZER", help=TOKENIZER)
    options.add_argument("--pattern", help="name or regex, for formats without a pattern (GPT-2's files, tiktoken's)")
    options.add_argument(
        "--end-of-text", metavar="STRING", help="token that ends documents (default: the tokenizer's own)"
    )


def add_rule(options: argparse.ArgumentParser) -> None:
    """Add `--rule`, which `rules_of` reads."""
    options.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a rule of phase 2 that differs from the preset's, such as max_words=3",
    )


def add_vocab_size(options: argparse.ArgumentParser, help_: str, *, required: bool) -> None:
    """Add `--vocab-size` and `--multiple-of`, which `rounded` applies."""
    options.add_argument("--vocab-size", type=whole(257), required=required, metavar="N", help=help_)
    options.add_argument(
        "--multiple-of", type=whole(1, 2**20), default=1, metavar="N", help="round the size up to a multiple of N"
    )


def rounded(vocab_size: int, multiple: int) -> int:
    """Round a size up to a multiple.

    >>> rounded(50257, 128), rounded(512, 128)
    (50304, 512)
    """
    return math.ceil(vocab_size / multiple) * multiple


def rules_of(arguments: argparse.Namespace) -> Rules | None:
    """Return the preset of `--superbpe`, changed by `--rule` and checked; None without a preset."""
    from superbpe.rules import PRESETS

    if arguments.superbpe is not None:
        return PRESETS[arguments.superbpe].changed(arguments.rule)
    if arguments.rule:
        raise UserError(f"--rule {arguments.rule[0]} needs phase 2; add --superbpe PRESET")
    return None


def add_text(options: argparse.ArgumentParser) -> None:
    """Add the arguments for text: `text` and how it is read."""
    options.add_argument("text", nargs="+", metavar="TEXT", help=TEXT)
    add_text_settings(options)


def add_text_settings(options: argparse._ActionsContainer) -> None:
    """Add the arguments that say how text is read."""
    from tokenizer.corpus.config import FORMATS  # loads NumPy

    options.add_argument("--format", choices=FORMATS, help="format of TEXT (default: by its name)")
    options.add_argument("--field", default="text", help="field of a record that holds the text")
    options.add_argument("--separator", help="string between the documents of a .txt file, such as '\\n\\n'")
    options.add_argument("--cache", metavar="FOLDER", help="keep what is read of URLs here, so that it is fetched once")
    options.add_argument(
        "--on-invalid-utf8", choices=("error", "replace"), default="error",
        help="stop at malformed bytes, or read them as U+FFFD",
    )  # fmt: skip
    options.add_argument(
        "--on-error", choices=("error", "skip"), default="error",
        help="stop at damaged files, lines and rows, or leave them out",
    )  # fmt: skip


def _nearest(option: str, known: Iterable[str]) -> str:
    """The hint at the nearest known option. Dashes, which all options have, do not count."""
    return did_you_mean(option.lstrip("-"), [name.lstrip("-") for name in known]).replace("'", "'--", 1)


def _deployment_word(text: str) -> str:
    if Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text} is a file, not a setting; name text before --deployment")
    return text


def add_deployment(options: argparse.ArgumentParser) -> None:
    """Add `--deployment`, whose words `experiments.deployments.read` reads."""
    options.add_argument(
        "--deployment", nargs="+", type=_deployment_word, default=["dense-8b"], metavar="PRESET|KEY=VALUE",
        help="model to price serving for: a preset of `deployment` and its other settings (default: dense-8b)",
    )  # fmt: skip


def needs_pages() -> None:
    """Raise a ModuleNotFoundError before any work if the extra `pages` is missing, without importing it for a second.

    Raises:
        ModuleNotFoundError: It is missing.
    """
    if find_spec("altair") is None:
        raise ModuleNotFoundError(name="altair")


def add_threads(options: argparse.ArgumentParser) -> None:
    """Add `--threads`."""
    options.add_argument("--threads", type=whole(1, MOST_THREADS), help="threads (default: all cores)")


def open_text(arguments: argparse.Namespace, paths: Sequence[str], **settings: Any) -> Corpus:
    """Return the documents of these paths, read as the arguments say.

    Args:
        arguments: They include what `add_text_settings` adds.
        paths: Files, folders and globs.
        settings: Further settings of `CorpusConfig`.
    """
    from tokenizer import Corpus, CorpusConfig
    from tokenizer.corpus.config import READING

    for path in paths:
        place = weighted(named(path)[1], "TEXT")[0]
        if place != os.path.expanduser(path) and (Path(place).exists() or any(glob.iglob(place))):  # noqa: PTH111, PTH207
            raise UserError(f"{path}: these texts have no names and no weights; write {place}")
    paths = [_standard_input() if path == STANDARD_INPUT else path for path in paths]
    read = {name: getattr(arguments, name) for name in READING}
    if read["format"] is None and _standard_input.cache_info().currsize and _is_json(_standard_input()):
        warnings.warn("-: JSON is read as plain text; add --format jsonl if its lines are records", stacklevel=2)
    return Corpus(CorpusConfig(paths=paths, **read, **settings))


@cache
def _standard_input() -> str:
    """Path of a copy of the standard input, which can be read again; it is deleted at the end of the process.

    Raises:
        UserError: It is empty.
    """
    folder = tempfile.TemporaryDirectory(prefix="superbpe-")
    atexit.register(folder.cleanup)
    copy = Path(folder.name) / "standard-input.txt"
    with copy.open("wb") as file:
        if sys.stdin is not None:
            shutil.copyfileobj(sys.stdin.buffer, file)
    if not copy.stat().st_size:
        raise UserError("-: the standard input is empty; pipe text into the command")
    return str(copy)


def _is_json(path: str) -> bool:
    """Whether the first line of a file is a JSON object."""
    with Path(path).open("rb") as file:
        line = file.readline(1 << 20)
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_copy(path: str) -> bool:
    return bool(_standard_input.cache_info().currsize) and path == _standard_input()


def open_sources(arguments: argparse.Namespace, entries: Sequence[str]) -> Corpus:
    """Return the documents of entries [NAME=]PATH[:WEIGHT], of which NAME is the source.

    Args:
        arguments: They include what `add_text_settings` adds, and optionally `source_field`.
        entries: The entries.

    Raises:
        UserError: Two texts have the same name, a path names no text, or a weight is not a positive number.
    """
    settings = {"source_field": getattr(arguments, "source_field", None)}
    paths = [weighted(entry, "TEXT")[0] for entry in entries]
    names = [named(path)[0] for path in paths]
    if not any(names) and paths == [*entries]:
        return open_text(arguments, entries, **settings)
    sources: dict[str, str] = {}
    for entry, path, name in zip(entries, paths, names, strict=True):
        place = entry if name is None else entry.removeprefix(f"{name}=")
        label = name or Path(shown(path)).name
        if named(path)[1] == STANDARD_INPUT:
            place, label = f"{_standard_input()}{place.removeprefix(STANDARD_INPUT)}", name or "standard input"
        if sources.setdefault(label, place) != place:
            raise UserError(f"two texts are called {label!r}; write another NAME={place}")
    return open_text(arguments, [], sources=sources, **settings)


def text_options(arguments: argparse.Namespace, paths: Sequence[str]) -> list[str]:
    """The option `--text` of another command, and the options that say how `open_text` read these paths.

    An empty list for the standard input, which another command cannot read again.
    """
    paths = [path for path in paths if path != STANDARD_INPUT and not _is_copy(path)]
    if not paths:
        return []
    return ["--text", *map(operand, paths), *reading_options(vars(arguments))]


def open_any(source: str, **options: Any) -> Pretrained:
    """Load the tokenizer that a user names: by path, repository or encoding, or the one that a training record names.

    Args:
        source: What the user typed.
        options: As for `tokenizer.external.load.load_pretrained`.
    """
    from experiments.store.trained_models import tokenizer_folder
    from tokenizer.external.load import load_pretrained

    path = Path(os.path.expanduser(source))  # noqa: PTH111 (pathlib raises an error for an unknown user)
    return load_pretrained(tokenizer_folder(path) if path.exists() else source, **options)


def open_exact(source: str, **options: Any) -> Tokenizer:
    """Load a tokenizer as `open_any` does, for work on its merges.

    Raises:
        UserError: Other software runs the tokenizer, which therefore has no byte-level merges.
    """
    from tokenizer import Tokenizer

    found = open_any(source, **options).tokenizer
    if not isinstance(found, Tokenizer):
        reason = getattr(found, "reason", "other software runs it")
        raise UserError(
            f"{source} is not byte-level BPE ({reason}), and this command needs byte-level merges; encode and "
            "fertility accept any tokenizer"
        )
    return found


def say_left(left: Sequence[str], of_model: str = "") -> None:
    """Print what the source of a result has and the result does not: `left` of `tokenizer.formats.carried`.

    Args:
        left: The names.
        of_model: What to do with a model that is among them.
    """
    if left:
        console.print(line(f"left: {listed(left)}"), soft_wrap=True)
    if of_model and any(name.endswith(".safetensors") for name in left):
        console.print(line(of_model), soft_wrap=True)


@contextmanager
def out_folder(folder: Path, option: str = "--out", *, new: bool = False, texts: Iterable[str] = ()) -> Iterator[Path]:
    """Create a folder for results before the work starts, and remove what was created if the work leaves it empty.

    Args:
        folder: The folder.
        option: The option that names it.
        new: Whether it must be empty. The block gets another folder, which replaces it at the end.
        texts: Paths of text. A later command that reads one of their folders would read results in it as text.

    Raises:
        UserError: The folder cannot be written to, is not empty, or is, contains or lies inside a folder of text.
    """
    for text in texts:
        place, out = Path(os.path.expanduser(text)).resolve(), folder.resolve()  # noqa: PTH111 (unknown users)
        if not is_remote(text) and place.is_dir() and (place.is_relative_to(out) or out.is_relative_to(place)):
            raise UserError(
                f"{option} {folder} would mix its tables with the text in {text}, and later commands would read them "
                "as text; name a folder elsewhere"
            )
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if new and os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{option} {folder} exists; name another folder, or remove it")
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UserError(f"{option} {folder}: cannot write there ({error.strerror}); name another place") from None
        if new:
            with new_folder(folder) as partial:
                yield partial
        else:
            yield folder
    finally:
        for path in missing:
            with suppress(OSError):  # it is not empty
                path.rmdir()


def add_loading(options: Parser) -> None:
    """Add the arguments that say how models from elsewhere are loaded; `loading` reads them."""
    add = options.add_argument
    add(
        "--start", nargs="+", default=[], metavar="[ARM=]TOKEN",
        help="token before the first one of a document (default: the one with which the tokenizer begins a text, or "
        "its end of text)",
    )  # fmt: skip
    devices = "auto, cpu, cuda, or all to spread a model over all GPUs"
    add("--device", type=_device_or_all, default="auto", help=devices)
    dtypes = ("auto", "float32", "bfloat16", "float16")
    add("--dtype", choices=dtypes, default="auto", help="weights (default: fp32 on a CPU, as in the files on a GPU)")
    add("--trust-remote-code", action="store_true", help="execute code in the folders of models")


def loading(arguments: argparse.Namespace) -> Loading:
    """How models from elsewhere are loaded."""
    from experiments.given_models import Loading  # not needed by most commands

    starts = {name or "": token for name, token in map(named, arguments.start)}
    return Loading(arguments.device, arguments.dtype, arguments.trust_remote_code, starts)


def named(entry: str) -> tuple[str | None, str]:
    """Split NAME=PATH; None for an entry without a name. A URL, or the path or glob of a file, may contain `=`."""
    name, equals, path = entry.partition("=")
    is_path = not equals or "://" in name or Path(entry).exists() or any(glob.iglob(entry))  # noqa: PTH207
    place = os.path.expanduser(entry if is_path else path)  # noqa: PTH111 (a path of "" stays)
    return None if is_path else name, place


def tokenizers_of(entries: Sequence[str]) -> dict[str, str]:
    """Tokenizers by name: NAME of NAME=PATH, or the name of the artifact's arm, the folder or the file.

    Raises:
        UserError: Two tokenizers have the same name.
    """
    paths: dict[str, str] = {}
    for name, path in map(named, entries):
        label = name or _label(path)
        if label in paths:
            raise UserError(f"two tokenizers are called {label!r}; write NAME=PATH, as in other={path}")
        paths[label] = path
    return paths


def _label(source: str) -> str:
    from experiments.results import Folder
    from experiments.store.artifacts import Store, artifact_at
    from experiments.store.records import arm_labels

    path = Path(source)
    if not path.exists():
        return source
    if (artifact := artifact_at(path, Folder)) is not None:
        return arm_labels(Store(artifact.folder.parent)).get(artifact.name, [artifact.name])[0]
    if path.is_dir():
        return path.absolute().name
    return path.absolute().parent.name if path.name in TOKENIZER_FILES else path.stem


def pattern_of(arguments: argparse.Namespace, names: Collection[str], name: str) -> str | None:
    """The pattern of `--pattern [NAME=]PATTERN` for the tokenizer `name`; None if it has its own."""
    patterns = [of_tokenizer("--pattern", entry, names) for entry in arguments.pattern]
    return next((pattern for of, pattern in patterns if of in (None, name)), None)


def open_all(open_one: Callable[..., T], arguments: argparse.Namespace, paths: Mapping[str, str]) -> dict[str, T]:
    """Open tokenizers by name, with their patterns."""
    found = {}
    for name, path in paths.items():
        with pattern_named(f"--pattern {name}=NAME"):
            found[name] = open_one(path, pattern=pattern_of(arguments, paths, name))
    return found


def with_pattern(source: str, pattern: str | None) -> list[str]:
    """Words that give a pattern to one of several tokenizers."""
    return [operand(source)] if pattern is None else [f"tokenizer={source}", f"--pattern=tokenizer={pattern}"]


def of_tokenizer(option: str, entry: str, names: Collection[str]) -> tuple[str | None, str]:
    """Split NAME=VALUE of an option; NAME must be a tokenizer, None stands for all of them.

    Raises:
        UserError: No tokenizer has this name.
    """
    name, value = named(entry)
    if name is not None and name not in names:
        raise UserError(f"{option} {entry!r}: no tokenizer is called {name!r}; the names are {', '.join(names)}")
    return name, value

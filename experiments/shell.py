"""Command lines as text that a POSIX shell, and Hydra for settings, read back as the same words."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experiments.characters import visible
from tokenizer.errors import UserError
from tokenizer.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


def command_text(words: Iterable[str | Path]) -> str:
    r"""Return the words of a command as one line, without the secrets of URLs; paths are written by `operand`.

    >>> command_text(["superbpe", "train", "été.txt", "<TEXT>", "a\x1b[2J"])  # the user replaces <TEXT>
    "superbpe train 'été.txt' <TEXT> $'a\\033[2J'"
    """
    return " ".join(_quoted(shown(word if isinstance(word, str) else operand(str(word)))) for word in words)


def _quoted(word: str) -> str:
    if visible(word) == word:
        return word if re.fullmatch("<[A-Z]+>", word) else shlex.quote(word)
    # `shlex.quote` keeps control characters, which a terminal would interpret.
    octal = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte:03o}" for byte in os.fsencode(word))
    return f"$'{''.join(octal)}'"


@contextmanager
def pattern_named(setting: str) -> Iterator[None]:
    """Name the setting of one of several tokenizers in an error that asks for its pattern."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace("pattern=NAME", setting)) from error


def operand(text: str) -> str:
    """Return a path or the name of a tokenizer as a word that is not read as an option or a placeholder."""
    return f"./{text}" if text[:1] in ("-", "<") else text


def reading_options(settings: Mapping[str, Any]) -> list[str]:
    """Return the options by which a command reads text as settings of `CorpusConfig` say, without the usual ones."""
    from tokenizer.corpus.config import READING, CorpusConfig  # imports NumPy, which other commands do without

    usual = vars(CorpusConfig())
    return [f"--{name.replace('_', '-')}={settings[name]}" for name in READING if settings[name] != usual[name]]


def setting(key: str, value: Any) -> str:
    """Return KEY=VALUE as Hydra reads it; strings in a JSON-able value are quoted, and are no interpolations."""
    return f"{key}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{','.join(f'{_key(key)}:{_value(value[key])}' for key in value)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_value, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    literal = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return '"' + re.sub(r'(\\*)("|\Z)', lambda end: 2 * end[1] + end[2].replace('"', '\\"'), literal) + '"'


def with_plain_keys(value: str) -> str:
    r"""Return a mapping as Hydra reads it, which reads no quotes in keys.

    >>> print(with_plain_keys('{"plain text": 0.4, code: 0.6}'))
    {plain\ text: 0.4, code: 0.6}
    """
    return re.sub(r"""([{,]\s*)(["'])([^"']+)\2(?=\s*:)""", lambda found: found[1] + _key(found[3]), value)


def _key(name: str) -> str:
    return re.sub(r"[\\()\[\]{}:=, \t]", r"\\\g<0>", name)


def hydra_names(names: Iterable[str], also: str = "") -> dict[str, str]:
    """Return a different name for each name: ASCII letters, digits, `_`, `-` and `also`, which Hydra reads as a key."""
    written: dict[str, str] = {}
    for name in names:
        plain = re.sub(rf"[^A-Za-z0-9_{re.escape(also)}-]+", "_", name).strip()
        if not plain[:1].isalpha() or plain.lower() in ("null", "true", "false", "nan", "inf"):
            plain = f"n_{plain}"
        while plain in written.values():
            plain += "_"
        written[name] = plain
    return written

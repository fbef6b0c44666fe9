"""Reading, checking and writing the text and JSON files of tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizer.definition import MOST_IDS
from tokenizer.durable import naming, partial_name, sync
from tokenizer.errors import UserError, quoted
from tokenizer.files import make_folder, parse_json
from tokenizer.files import read_bytes as read_stored

_SHOWN = 60  # characters shown of an invalid value


def read_bytes(path: Path) -> bytes:
    """Content of a file.

    Raises:
        UserError: the path is missing, or is not a regular file.
    """
    try:
        return read_stored(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} is missing") from None


def read_text(path: Path) -> str:
    """Text of a file.

    Raises:
        UserError: the path is missing, is not a regular file, or the content is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error})") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        UserError: the path is missing or not a regular file, or the content is not a JSON object.
    """
    return parse_json(read_bytes(path), path)


def _whole(value: Any) -> bool:
    return type(value) is int  # not bool


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _instance_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "a string": _instance_of(str),
    "true or false": _instance_of(bool),
    "a whole number": _whole,
    "a list": _instance_of(list),
    "a list of strings": _list_of(_instance_of(str)),
    "a list of objects": _list_of(_instance_of(dict)),
    "a list of whole numbers": _list_of(_whole),
    "a list of lists of three whole numbers": _list_of(lambda row: _list_of(_whole)(row) and len(row) == 3),
    "a list of pairs of a string and a whole number": _list_of(
        lambda pair: isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and _whole(pair[1])
    ),
    "an object": _instance_of(dict),
    "an object of strings": _object_of(_instance_of(str)),
    "an object of whole numbers": _object_of(_whole),
}
"""Checks of JSON types by the name used in messages. Each name can be followed by " or null"."""


def check_members(parent: Mapping[str, Any], types: Mapping[str, str], path: Path, at: str = "", end: str = "") -> None:
    """Reject a JSON object in which a key is missing or has a value of another type.

    Args:
        parent: the object.
        types: key to type: a name of `_TYPES`, optionally with " or null"; a key that ends in "?" is optional.
        path: the file, for messages.
        at: prefix of the key in messages, such as "model.".
        end: end of the message: the remedy.

    Raises:
        UserError: a key is missing or has another type; the message names the file and the key.
    """
    for key, kind in types.items():
        name = key.removesuffix("?")
        if name not in parent:
            if name == key:
                raise UserError(f"{path} is damaged: the key {at + name!r} is missing{end}")
            continue
        value = parent[name]
        plain = kind.removesuffix(" or null")
        if not (_TYPES[plain](value) or (value is None and plain != kind)):
            shown = json.dumps(value, ensure_ascii=False)
            shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
            raise UserError(f"{path} is damaged: {at + name!r} is {shown}, not {kind}{end}")


def check_ids(vocab: Mapping[str, Any], path: Path) -> None:
    """Reject a vocabulary whose ids are invalid or not unique.

    Raises:
        UserError: an id is not a whole number, is too large, or belongs to two tokens.
    """
    ids = vocab.values()
    if (
        set(map(type, ids)) <= {int}
        and len(set(ids)) == len(ids)
        and 0 <= min(ids, default=0) <= max(ids, default=0) < MOST_IDS
    ):
        return
    names: dict[int, str] = {}
    for name, token_id in vocab.items():
        if type(token_id) is not int or not 0 <= token_id < MOST_IDS:
            raise UserError(
                f"{path} is damaged: an id is not a whole number from 0 to {MOST_IDS - 1}, but {quoted(token_id)} "
                f"({quoted(name)})"
            )
        if names.setdefault(token_id, name) != name:
            raise UserError(
                f"{path} is damaged: {quoted(names[token_id])} and {quoted(name)} both have the id {token_id}"
            )


def write_files(folder: Path, files: Mapping[str, str | bytes], remove: Collection[str] = ()) -> None:
    """Write the files of a folder atomically: all are written to temporary files first, then renamed.

    Args:
        folder: created if missing.
        files: contents by name, in the order in which they are renamed.
        remove: names of files to delete before the renames.
    """
    make_folder(folder)
    ready: list[tuple[Path, Path]] = []
    try:
        for name, content in files.items():
            partial = partial_name(folder / name)
            ready.append((partial, folder / name))
            with naming(folder / name):
                with partial.open("wb") as file:
                    file.write(content.encode() if isinstance(content, str) else content)
                sync(partial)
        for name in remove:
            (folder / name).unlink(missing_ok=True)
        for partial, final in ready:
            partial.replace(final)
        sync(folder)
    finally:
        for partial, _ in ready:
            partial.unlink(missing_ok=True)

"""Reading and writing the files of other programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizer import files
from tokenizer.errors import UserError
from tokenizer.vocabulary import MOST_IDS


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        UserError: the path is missing, or is not a regular file.
    """
    try:
        return files.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} is missing") from None


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        UserError: the path is missing, is not a regular file, or the content is not UTF-8.
    """
    return _decode(read_bytes(path), path)


def _decode(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error})") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        UserError: the path is missing, is not a regular file, or the content is something else.
    """
    return parse_json(read_bytes(path), path)


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """`read_json` for the content of the file."""
    text = _decode(content, path)
    parsed = files.parse_json(text, path)
    if may_hold_surrogates(text):
        try:
            json.dumps(parsed, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UserError(f"{path} is damaged: a string in it holds half a surrogate pair") from None
    return parsed


def may_hold_surrogates(text: str) -> bool:
    """Whether JSON has an escape of half a surrogate pair, alone or not."""
    return re.search(r"\\u[dD][89a-fA-F]", text) is not None


def check_ids(vocab: Mapping[str, Any], path: Path) -> None:
    """Refuses a vocabulary that does not give every token an id of its own.

    Raises:
        UserError: an id is not a whole number, or too large, or two tokens have it.
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
                f"{path} is damaged: an id is not a whole number from 0 to {MOST_IDS - 1}, but {token_id!r:.80} "
                f"({name!r:.80})"
            )
        if names.setdefault(token_id, name) != name:
            raise UserError(f"{path} is damaged: {names[token_id]!r} and {name!r} both have the id {token_id}")


def write_files(folder: Path, files: Mapping[str, str | bytes], remove: Collection[str] = ()) -> None:
    """Writes files of a folder, each whole or not at all, and none before all are ready to be renamed into place.

    Args:
        folder: made if missing.
        files: contents by name, in the order in which they are put in place.
        remove: names of files to delete, once all others are ready.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready: list[tuple[Path, Path]] = []
    try:
        for name, content in files.items():
            partial = folder / f".{name}.{os.getpid()}.partial"
            ready.append((partial, folder / name))
            partial.write_bytes(content.encode() if isinstance(content, str) else content)
        for name in remove:
            (folder / name).unlink(missing_ok=True)
        for partial, final in ready:
            partial.replace(final)
    finally:
        for partial, _ in ready:
            partial.unlink(missing_ok=True)

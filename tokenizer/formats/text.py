"""Reading and writing the files of other programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tokenizer.errors import UserError


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        UserError: it is missing, or not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise UserError(f"{path} is missing") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error})") from None


def parse_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        UserError: it is missing, or something else.
    """
    try:
        parsed = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{path} is not a JSON object")
    return parsed


def write_files(folder: Path, files: dict[str, str | bytes]) -> None:
    """Writes files of a folder, each whole or not at all, and none before all are ready to be renamed into place."""
    folder.mkdir(parents=True, exist_ok=True)
    ready: list[tuple[Path, Path]] = []
    try:
        for name, content in files.items():
            partial = folder / f".{name}.{os.getpid()}.partial"
            ready.append((partial, folder / name))
            partial.write_bytes(content.encode() if isinstance(content, str) else content)
        for partial, final in ready:
            partial.replace(final)
    finally:
        for partial, _ in ready:
            partial.unlink(missing_ok=True)

"""Checks of the JSON of tokenizer files, and atomic writing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from tokenizer.durable import replacing
from tokenizer.errors import UserError, quoted


def conforms(value: Any, hint: Any) -> bool:
    """Whether a JSON value has a type: a plain one, a union, `list[T]` or `dict[str, T]`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(conforms(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(conforms(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(item, parts[1]) for item in value.values())
    return hint is Any or type(value) is hint  # true and false are not whole numbers


def check_members(parent: Mapping[str, Any], types: Mapping[str, Any], path: Path, at: str = "") -> None:
    """Reject a JSON object in which a key is missing or has a value of another type.

    Args:
        parent: the object.
        types: key to type, see `conforms`; a key that ends in "?" is optional.
        path: the file, for messages.
        at: prefix of the key in messages, such as "model.".

    Raises:
        UserError: a key is missing or has another type; the message names the file and the key.
    """
    for key, hint in types.items():
        name = key.removesuffix("?")
        if name in parent:
            if not conforms(parent[name], hint):
                kind = hint if get_origin(hint) else hint.__name__
                raise UserError(f"{path} is damaged: {at + name!r} is {quoted(parent[name])}, not {kind}")
        elif name == key:
            raise UserError(f"{path} is damaged: the key {at + name!r} is missing")


class Unsupported(Exception):
    """Why a file cannot be read: the end of a message that begins with the file's name."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise an `Unsupported` in the block, or an error due to damaged content, as a UserError about the file."""
    try:
        yield
    except Unsupported as error:
        raise UserError(f"{path} {error}") from None
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"{path} is damaged: the key {error} is missing in one of its parts") from None
    except (AttributeError, IndexError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({quoted(error)})") from None


def write_files(folder: Path, files: Mapping[str, str | bytes], remove: Collection[str] = ()) -> None:
    """Write the files of a folder, each atomically; the last one should say which others belong to it.

    Args:
        folder: created if missing.
        files: contents by name, in the order in which they are written.
        remove: names of files to delete first.

    Raises:
        UserError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:  # all are written before the first is renamed, and the last entered is renamed first
            for name, content in reversed([*files.items()]):
                file = stack.enter_context(replacing(folder / name))
                file.write(content.encode() if isinstance(content, str) else content)
            for name in remove:
                (folder / name).unlink(missing_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); name a folder that can be") from None

"""Errors of reading tokenizer files, and atomic writing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tokenizer.durable import replacing
from tokenizer.errors import UserError, quoted


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


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise a UserError about a folder that cannot be made or written."""
    try:
        yield
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); name a folder that can be") from None


def write_files(folder: Path, files: Mapping[str, str | bytes], remove: Collection[str] = ()) -> None:
    """Write the files of a folder, each atomically; the last one should say which others belong to it.

    Raises:
        UserError: the folder cannot be made or written.
    """
    with writing(folder), ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in reversed([*files.items()]):  # all are written before the first one here is renamed
            (folder / name).parent.mkdir(exist_ok=True)
            file = stack.enter_context(replacing(folder / name))
            file.write(content.encode() if isinstance(content, str) else content)
        for name in remove:
            (folder / name).unlink(missing_ok=True)

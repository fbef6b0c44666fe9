"""`manifest.json`: origin, contents and cost of an artifact, and the checksum of every file."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.results import typed
from experiments.shell import command_text
from tokenizer.errors import UserError
from tokenizer.files import read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Increased when the layout of artifacts or the meaning of a stage changes; older folders are then not reused.
FORMAT = 3
MANIFEST = "manifest.json"
# Errors of reading a manifest that is damaged, or that was written by another version.
DAMAGE = (ValueError, KeyError, TypeError, AttributeError)
COMMAND = "SUPERBPE_COMMAND"  # environment variable with the user's command, for processes of a launcher
_PACKAGES = ("superbpe-framework", "numpy", "torch", "transformers", "pyarrow", "botocore")


@dataclass(frozen=True)
class Manifest:
    """Contents of `manifest.json`.

    Attributes:
        hash: Hash of its identity (64 hex digits), or of a tokenizer's content.
        format: Version of the layout.
        inputs: Hash of everything that the stage read, by name.
        config: The stage's own settings.
        contents: The stage's result (`experiments.results`), JSON-able.
        files: Size and checksum of every file.
        seconds: Time to make the artifact; for one that was resumed, of the last attempt.
        made: Time when it was made (UTC).
        platform: Operating system, machine and cores.
    """

    stage: str
    hash: str
    format: int
    inputs: dict[str, str]
    contents: dict[str, Any]
    files: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    made: str = ""
    command: str = ""
    platform: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a sealed manifest.

        Raises:
            OSError: If there is no manifest.
            ValueError: If it is damaged; damage may also raise TypeError, KeyError or AttributeError.
        """
        manifest: Manifest = typed(cls, read_sealed(folder / MANIFEST))
        return manifest

    def write(self, folder: Path) -> None:
        """Write `manifest.json`, sealed with its own checksum."""
        write_sealed(folder / MANIFEST, dataclasses.asdict(self))


def command_line() -> str:
    """Return the command that started this process, or its sweep, without the secrets of URLs."""
    words = ["superbpe", *sys.argv[1:]] if Path(sys.argv[0]).name == "superbpe" else ["python", *sys.orig_argv[1:]]
    return os.environ.get(COMMAND) or command_text(words)


def origin() -> Mapping[str, Any]:
    """Return the manifest entries that describe this program and machine: command, made, platform, versions."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": command_line(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": versions,
    }


@contextmanager
def remedied(folder: Path | str) -> Iterator[None]:
    """Say what to do about a damaged or missing file of an artifact."""
    remedy = f"delete the folder {folder} and run the same command again to rebuild it"
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{error.filename} is missing; {remedy}") from None
    except UserError as error:
        raise UserError(f"{error}; {remedy}") from None
    except DAMAGE as error:
        raise UserError(f"{folder}/{MANIFEST} is damaged ({error}); {remedy}") from None

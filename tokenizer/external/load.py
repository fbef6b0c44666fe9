"""Loading tokenizers by name or path, with a record of their origin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizer.definition import Stored
from tokenizer.external.opening import open_pretrained
from tokenizer.external.tokenizer import FILE, ExternalTokenizer
from tokenizer.interface import TokenizerLike
from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pretrained:
    """A loaded tokenizer and its origin.

    Attributes:
        tokenizer: run by our core (`Tokenizer`) or by other software (`ExternalTokenizer`).
        source: path, repository id, or name of an encoding.
        revision: commit hash of the repository; None for a path.
        added: special tokens that were added after all other ids.
    """

    tokenizer: TokenizerLike
    source: str
    revision: str | None
    added: tuple[str, ...]

    def about(self) -> dict[str, Any]:
        """Record for a manifest, as JSON. `reason` is why our core does not run the tokenizer."""
        outside = self.tokenizer if isinstance(self.tokenizer, ExternalTokenizer) else None
        return {
            "source": self.source,
            "revision": self.revision,
            "sha256": self.tokenizer.sha256,
            "vocab_size": self.tokenizer.vocab_size,
            "added_special_tokens": list(self.added),
            "end_of_text": self.tokenizer.end_of_text,
            "software": None if outside is None else outside.software.version,
            "reason": None if outside is None else outside.reason,
        }


def load_pretrained(source: Path | str, **options: Any) -> Pretrained:
    """Load a tokenizer from a path, the Hugging Face Hub, or tiktoken.

    Args:
        source: See `tokenizer.external.opening.open_pretrained`.
        options: The keyword arguments of `open_pretrained`.

    Raises:
        UserError: the tokenizer does not exist or is damaged, or a package is missing.
    """
    found, revision, added = open_pretrained(source, **options)
    return Pretrained(Tokenizer(*found) if isinstance(found, Stored) else found, str(source), revision, added)


def load_saved(folder: Path | str) -> TokenizerLike:
    """Load a folder written by `save` of a `Tokenizer` or an `ExternalTokenizer`.

    Raises:
        UserError: the folder is missing or damaged, or its files were changed.
    """
    return (ExternalTokenizer if (Path(folder) / FILE).exists() else Tokenizer).load(folder)

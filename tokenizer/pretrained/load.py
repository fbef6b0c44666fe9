"""Loading tokenizers by name or path, with a record of their origin."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizer.definition import Stored
from tokenizer.external.opening import open_pretrained
from tokenizer.external.tokenizer import FILE as EXTERNAL_FILE
from tokenizer.external.tokenizer import ExternalTokenizer
from tokenizer.interface import TokenizerLike
from tokenizer.patterns import Pattern
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
            "software": None if outside is None else outside.software.version,
            "reason": None if outside is None else outside.reason,
        }


def load_pretrained(
    source: Path | str,
    *,
    revision: str | None = None,
    from_hub: bool = False,
    add_special_tokens: Sequence[str] = (),
    cache: Path | str | None = None,
    pattern: str | Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
    ignore: Collection[str] = (),
) -> Pretrained:
    """Load a tokenizer from a path, the Hugging Face Hub, or tiktoken.

    Our core runs byte-level BPE: our folders, tokenizer.json, vocab.json with merges.txt, tiktoken's ranks, and
    ByT5. The package `sentencepiece` runs SentencePiece models; `tokenizers` runs any other tokenizer.json and BERT's
    vocab.txt. Code in a repository is never executed.

    Args:
        source: A file, a folder, a repository's id, as "gpt2" or "org/name", or an encoding of tiktoken, as
            "tiktoken:o200k_base". A path that exists takes precedence over a repository.
        revision: Branch, tag or commit hash of the repository.
        from_hub: The source is a repository, even if there is a path of that name.
        add_special_tokens: Strings that must be special tokens; those that are not get new ids after all others.
        cache: As in `hub.snapshot`.
        pattern: See `Tokenizer.from_file`.
        special_tokens: See `Tokenizer.from_file`.
        ignore: See `Tokenizer.from_file`.

    Raises:
        UserError: there is no tokenizer, it is damaged, or a package is missing.
    """
    opened = open_pretrained(
        source,
        revision=revision,
        from_hub=from_hub,
        add_special_tokens=add_special_tokens,
        cache=cache,
        pattern=pattern,
        special_tokens=special_tokens,
        ignore=ignore,
    )
    tokenizer = Tokenizer(*opened.found) if isinstance(opened.found, Stored) else opened.found
    return Pretrained(tokenizer, str(source), opened.revision, opened.added)


def load_saved(folder: Path | str) -> TokenizerLike:
    """Load a folder written by `save` of a `Tokenizer` or an `ExternalTokenizer`.

    Raises:
        UserError: the folder is missing or damaged, or its files were changed.
    """
    if (Path(folder) / EXTERNAL_FILE).exists():
        return ExternalTokenizer.load(folder)
    return Tokenizer.load(folder)

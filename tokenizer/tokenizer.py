"""The tokenizer: a definition that encodes and decodes text, is saved and loaded."""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, formats
from tokenizer.codec import Codec
from tokenizer.definition import Definition
from tokenizer.patterns import Pattern


def n_words(token: bytes) -> int:
    r"""The number of words in a token: its non-empty parts between white space.

    >>> [n_words(token) for token in (b" of the", b" ", b".\n", b".\nThe")]
    [2, 0, 1, 2]
    """
    return len(token.decode(errors="replace").split())


class Tokenizer(Codec):
    """A byte-level BPE tokenizer, with or without superwords. What it does with text is in `Codec`.

    Attributes:
        definition: what it is. Its attributes, such as `vocab`, `merge_ids` and `pattern`, can also be read here.
        provenance: JSON about how it was made; not part of its identity.
    """

    def __init__(
        self, definition: Definition | None = None, provenance: dict[str, Any] | None = None, **parts: Any
    ) -> None:
        if definition is None:  # until version 0.3
            warnings.warn(
                "Tokenizer(byte_ids=..., ...) is now Tokenizer(Definition(byte_ids=..., ...), provenance)",
                DeprecationWarning,
                stacklevel=2,
            )
            definition = Definition(**{name: part for name, part in parts.items() if part is not None})
        elif parts:
            message = f"Tokenizer takes a definition and a provenance, not {', '.join(parts)}"
            raise TypeError(message)
        self.definition = definition
        self.provenance = dict(provenance or {})
        self.byte_ids = definition.byte_ids
        self.merge_ids = definition.merge_ids
        self.n_phase1_merges = definition.n_phase1_merges
        self.pattern = definition.pattern
        self.fence = definition.fence
        self.mode = definition.mode
        self.eligible = definition.eligible
        self.special_tokens = definition.special_tokens
        self.ignore_merges = definition.ignore_merges
        self.unmerged = definition.unmerged
        self.preparation = definition.preparation
        self.vocab = definition.vocab
        self.vocab_size = definition.vocab_size

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Definition, dict[str, Any]]]:
        return type(self), (self.definition, self.provenance)

    @classmethod
    def from_ranks(
        cls, merges: npt.ArrayLike, *, provenance: dict[str, Any] | None = None, **options: Any
    ) -> Tokenizer:
        """A new tokenizer out of merges by rank, with ids of our own: see `Definition.from_ranks`."""
        return cls(Definition.from_ranks(merges, **options), provenance)

    def ranks(self) -> npt.NDArray[np.int64]:
        """The merges by rank, [n, 2]: see `Definition.ranks`."""
        return self.definition.ranks()

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all but special tokens, by rank: see `Definition.ordinary_ids`."""
        return self.definition.ordinary_ids()

    @property
    def special_layout(self) -> str:
        """Where the ids of special tokens are: see `Definition.special_layout`."""
        return self.definition.special_layout

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, by rank."""
        return [(self.vocab[left], self.vocab[right]) for left, right in self.merge_ids[:, :2].tolist()]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything that decides which ids a text gets; names the tokenizer."""
        return formats.identity(self.definition)

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        return self.sha256[:12]

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: raw bytes of each token; 0 for special tokens, which are no text."""
        lengths = np.fromiter(map(len, self.vocab), dtype=np.int32, count=self.vocab_size)
        lengths[list(self.special_tokens.values())] = 0
        return lengths

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of superwords: phase-2 tokens that span two words or more (`n_words`).

        An imported tokenizer does not say which merges are phase 2's: any merge may be.
        """
        first = 0 if self.fence is None else self.n_phase1_merges
        made = dict.fromkeys(self.merge_ids[first:, 2].tolist())  # several merges may make one token
        return np.array([i for i in made if n_words(self.vocab[i]) > 1], dtype=np.int64)

    def crossing_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of phase-2 tokens that phase 1's pattern would cut, superwords or not."""
        phase2 = self.merge_ids[self.n_phase1_merges :, 2].tolist()
        crossing = [
            i for i in phase2 if len(_native.split(self.vocab[i].decode(errors="replace"), self.pattern.regex)) > 1
        ]
        return np.array(crossing, dtype=np.int64)

    @cached_property
    def _encoder(self) -> _native.Encoder:
        return self.definition.encoder

    # --- other sizes, storage ---

    def cut(self, vocab_size: int) -> Tokenizer:
        """The tokenizer with its first tokens only, and every merge whose parts and product are among them.

        Ids stay, except those of special tokens behind all others: they move down, as training to this size would
        have given them.

        Raises:
            UserError: it is not that large, or its ids do not follow the order of its merges.
        """
        return Tokenizer(self.definition.cut(vocab_size), self.provenance | {"cut_from": self.vocab_size})

    def extended(
        self,
        new_merges: npt.ArrayLike,
        *,
        fence: Pattern | None = None,
        mode: str = "one-pass",
        provenance: dict[str, Any] | None = None,
    ) -> Tokenizer:
        """The tokenizer with more merges, which rank after its own; no id changes.

        Args:
            new_merges: [k, 2] ids; the token of merge i has the id `vocab_size + i`, special tokens or not.
            fence: makes the new merges phase 2's, with this fence; None to add them to the last phase there is.
            mode: with a fence: "one-pass" or "two-pass".
            provenance: added to this one's.

        Raises:
            UserError: a merge joins what does not exist, or spells a token that does.
        """
        longer = self.definition.extended(new_merges, fence=fence, mode=mode)
        return Tokenizer(longer, self.provenance | (provenance or {}))

    def save(self, folder: Path | str) -> None:
        """Writes the tokenizer's folder: `superbpe.json`, and where HF can express it, `tokenizer.json`."""
        formats.save(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """Reads a folder that `save` wrote.

        Raises:
            UserError: it is missing, damaged, or its files were changed in what decides the ids.
        """
        return cls(*formats.load(Path(folder)))

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> Tokenizer:
        """Reads a tokenizer of any known format: see `tokenizer.formats.read`."""
        return cls(*formats.read(path, **options))

    def __repr__(self) -> str:
        superwords = "" if self.fence is None else f", phase 1: {256 + self.n_phase1_merges}, fence={self.fence.name}"
        return f"<Tokenizer {self.name}: {self.vocab_size} tokens, {self.pattern.name}{superwords}, {self.mode}>"

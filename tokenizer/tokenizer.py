"""`Tokenizer`: a definition plus encoding, decoding, saving and loading."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, formats
from tokenizer.alphabet import printable
from tokenizer.base import BaseTokenizer, n_words
from tokenizer.codec import Codec
from tokenizer.definition import Definition, Stored
from tokenizer.errors import UserError, quoted
from tokenizer.patterns import Pattern


@lru_cache(maxsize=4)
def _read_pickle(text: bytes) -> Stored:
    """Content of a pickle. A pool sends the pickle with each task: a worker builds one encoder for all of them."""
    return formats.loads(text, Path("pickle"))[0]


class Tokenizer(Codec, BaseTokenizer):
    """A byte-level BPE tokenizer, with or without superwords. `Codec` has the methods that encode and decode.

    Attributes:
        definition: ids, merges and patterns. Its attributes, such as `vocab` and `merge_ids`, are also available here.
        provenance: JSON about how the tokenizer was made; not part of its identity.
    """

    def __init__(self, definition: Definition, provenance: dict[str, Any] | None = None) -> None:
        if not isinstance(definition, Definition):
            raise UserError(f"{quoted(definition)} is not a Definition; Tokenizer.load and from_file open files")
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

    def __reduce__(self) -> tuple[Any, ...]:
        # The same bytes in every process and whatever was encoded, so that caches find results by them.
        return type(self)._unpickled, (formats.dumps(self, {}).encode(),)

    @classmethod
    def _unpickled(cls, text: bytes) -> Tokenizer:
        stored = _read_pickle(text)
        return cls(stored.definition, deepcopy(stored.provenance))

    @classmethod
    def from_ranks(
        cls, merges: npt.ArrayLike, *, provenance: dict[str, Any] | None = None, **options: Any
    ) -> Tokenizer:
        """Build a tokenizer from merges by rank: see `Definition.from_ranks`."""
        return cls(Definition.from_ranks(merges, **options), provenance)

    def ranks(self) -> npt.NDArray[np.int64]:
        """The merges by rank, [n, 2]: see `Definition.ranks`."""
        return self.definition.ranks()

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all tokens except special tokens, by rank: see `Definition.ordinary_ids`."""
        return self.definition.ordinary_ids()

    @property
    def special_layout(self) -> str:
        """Position of the special tokens' ids: see `Definition.special_layout`."""
        return self.definition.special_layout

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, by rank."""
        return [(self.vocab[left], self.vocab[right]) for left, right in self.merge_ids[:, :2].tolist()]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything that determines the ids of a text; identifies the tokenizer."""
        return formats.identity(self.definition)

    @cached_property
    def _names(self) -> list[str | None]:
        names = [printable(token) if token else None for token in self.vocab]
        for string, i in (self.special_tokens | dict(self.preparation.added_tokens)).items():
            names[i] = string
        return names

    @property
    def _added_ids(self) -> set[int]:
        return {*self.special_tokens.values(), *self.preparation.added_tokens.values()}

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of superwords: phase-2 tokens that span two words or more (`n_words`).

        An imported tokenizer does not say which merges are phase 2's: any merge may be.
        """
        first = 0 if self.fence is None else self.n_phase1_merges
        made = dict.fromkeys(self.merge_ids[first:, 2].tolist())  # several merges may make one token
        return np.array([i for i in made if n_words(self.vocab[i]) > 1], dtype=np.int64)

    def crossing_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of phase-2 tokens that cross a boundary of phase 1's pattern, superwords or not."""
        phase2 = self.merge_ids[self.n_phase1_merges :, 2].tolist()
        crossing = [
            i for i in phase2 if len(_native.split(self.vocab[i].decode(errors="replace"), self.pattern.regex)) > 1
        ]
        return np.array(crossing, dtype=np.int64)

    @cached_property
    def _trims_offsets(self) -> bool:
        """Whether the post-processor of an imported tokenizer would leave out spaces from offsets."""
        processor = (self.provenance.get(formats.TEMPLATE) or {}).get("post_processor")
        return processor is not None and '"trim_offsets": true' in json.dumps(processor)

    @cached_property
    def _encoder(self) -> _native.Encoder:
        return self.definition.encoder

    # --- other sizes, storage ---

    def cut(self, vocab_size: int) -> Tokenizer:
        """Shrink the vocabulary: keep the first tokens, and the merges whose parts and product are among them.

        Ids do not change, except those of special tokens after all other tokens: these move down, to the ids that
        training to this size would have given them.

        Raises:
            UserError: the tokenizer is smaller, or its ids do not follow the order of its merges.
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
        """Append merges, which rank after the existing ones. Existing ids do not change.

        Args:
            new_merges: [k, 2] ids; the token of merge i gets the id `vocab_size + i`, even after special tokens.
            fence: start phase 2 with the new merges and this fence; None to add them to the last existing phase.
            mode: "one-pass" or "two-pass"; used only with a fence.
            provenance: entries to add to the existing provenance.

        Raises:
            UserError: a merge joins an id that does not exist, or spells an existing token.
        """
        longer = self.definition.extended(new_merges, fence=fence, mode=mode)
        return Tokenizer(longer, self.provenance | (provenance or {}))

    def save(self, folder: Path | str) -> None:
        """Write the tokenizer's folder: `superbpe.json`, and `tokenizer.json` where HF can express the tokenizer."""
        formats.save(self, Path(folder))

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload the tokenizer's files and a card to the Hugging Face Hub; return the address of the upload.

        >>> tokenizer.push_to_hub("org/name", to="preview")  # the files that would be uploaded  # doctest: +SKIP

        Args:
            repository: id of the repository, as "org/name".
            options: `to`, `license`, `measured` and the other keyword arguments of `tokenizer.external.push.push`.
        """
        from tokenizer.external.push import push  # needed only here

        return push(self, repository, **options)

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """Read a folder written by `save`.

        Raises:
            UserError: the folder is missing or damaged, or its files were edited in a way that changes ids.
        """
        return cls(*formats.load(Path(folder)))

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> Tokenizer:
        """Read a tokenizer of any supported format: see `tokenizer.formats.read`."""
        return cls(*formats.read(path, **options))

    @classmethod
    def from_pretrained(cls, source: Path | str, **options: Any) -> Tokenizer:
        """Load an existing byte-level BPE tokenizer by name or path. Code in a repository is never executed.

        >>> Tokenizer.from_pretrained("openai-community/gpt2")  # doctest: +SKIP
        >>> Tokenizer.from_pretrained("tiktoken:o200k_base")  # doctest: +SKIP

        Args:
            source: a folder or a file of any supported format, a repository of the Hugging Face Hub, or
                "tiktoken:NAME" for an encoding of tiktoken. A path that exists takes precedence over a repository.
            options: `revision`, `add_special_tokens`, `cache`, `pattern` and the other keyword arguments of
                `tokenizer.external.opening.open_pretrained`.

        Raises:
            UserError: the tokenizer does not exist, is damaged, or is not byte-level BPE.
        """
        from tokenizer.external.opening import open_pretrained  # other software is needed only here

        found = open_pretrained(source, **options).found
        if not isinstance(found, Stored):
            raise UserError(
                f"{source} is not byte-level BPE ({found.reason}), and this needs its merges; "
                "tokenizer.pretrained.load_pretrained and the commands encode, count-tokens and fertility accept it"
            )
        return cls(*found)

    def __repr__(self) -> str:
        return repr(self.definition).replace("Definition", f"Tokenizer {self.name}", 1)

"""`Tokenizer`: a definition plus encoding, decoding, saving and loading."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import _native, documents, patterns
from tokenizer.definition import NOT_IN_UTF8, Definition, Stored, printable
from tokenizer.documents import Texts
from tokenizer.errors import UserError, check_whole, quoted
from tokenizer.formats.files import read
from tokenizer.formats.folder import content, dumps, identity, load, loads, save
from tokenizer.interface import Ids, Offsets, Stream, TokenizerLike, is_text, n_words
from tokenizer.progress import thread_count
from tokenizer.special import Allowed, Disallowed, SpecialSets

AROUND = [(before, after) for before in ("", "a", " ", "1", ".", "\n") for after in ("", "a", " ", "1", ".", "\n")]
"""Contexts tried to determine whether a token is reachable: patterns depend on the surrounding text."""

MAX_PENDING_BYTES = 1 << 24
"""Default limit of the text that `encode_iter` buffers: encoding it takes up to about 30 times as much memory."""


class Spans(NamedTuple):
    """Ids of a text and the offsets of their tokens.

    Attributes:
        ids: uint32 [n].
        bytes: int64 [n, 2]: start and end of each token in the text's UTF-8. The spans are contiguous: they include
            spaces, which the post-processors of HF may leave out. Exception: where
            an imported tokenizer normalized the text, they are the spans of `characters` in bytes.
        characters: int64 [n, 2]: start and end of each token in characters, so that `text[start:end]` shows it. If
            several tokens share a character, each span includes the whole character (as in HF `tokenizers`).
            If normalization joined several characters into one, the span covers the first of them (as in HF).
    """

    ids: Ids
    bytes: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]


@lru_cache(maxsize=4)
def _read_pickle(text: bytes) -> Stored:
    """Content of a pickle. A pool sends the pickle with each task: a worker builds one encoder for all of them."""
    return loads(text, Path("pickle"))[0]


class Tokenizer(TokenizerLike):
    """A byte-level BPE tokenizer, with or without superwords.

    Texts are Python strings; anything else, or a lone surrogate, raises UserError. The native core does the work and
    releases the GIL for all but very small inputs. `threads` is the number of threads: by default the value of the
    environment variable SUPERBPE_THREADS, otherwise the number of cores available to the process.

    Attributes:
        definition: ids, merges and patterns. Its attributes, such as `vocab` and `merge_ids`, are also available here.
        provenance: JSON about how the tokenizer was made; not part of its identity.
        unknown_id: None: every byte is a token.
        fixed_bytes: True: a token spells the same bytes wherever it occurs.
    """

    unknown_id: None = None
    fixed_bytes = True

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
        self.end_of_text = definition.end_of_text
        self.ignore_merges = definition.ignore_merges
        self.unmerged = definition.unmerged
        self.preparation = definition.preparation
        self.vocab = definition.vocab

    def __reduce__(self) -> tuple[Any, ...]:
        # The same bytes in every process and whatever was encoded, so that caches find results by them.
        return type(self)._unpickled, (dumps(self, {}).encode(),)

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
        """Ids of all tokens except special and added tokens, by rank: see `Definition.ordinary_ids`."""
        return self.definition.ordinary_ids()

    def text_ids(self) -> npt.NDArray[np.int64]:
        """Ids of the tokens of text, sorted: see `TokenizerLike.text_ids`."""
        return np.union1d(self.ordinary_ids(), [*self.preparation.added_tokens.values()]).astype(np.int64)

    def unreachable_ids(self) -> npt.NDArray[np.int64]:
        """Tokens of `text_ids` that no text becomes, as far as that is known, sorted.

        A token that is text is encoded alone and between other characters (`AROUND`). A token with part of a character
        is not text by itself: it is unreachable if its bytes do not merge to it, or if UTF-8 never uses one of them.
        A pattern with a wide look-around may still produce one of these tokens: a token that occurs in a text is
        reachable.
        """
        ids, vocab = self.text_ids(), self.vocab
        whole = np.fromiter((is_text(vocab[i]) for i in ids.tolist()), dtype=np.bool_, count=len(ids))
        texts, parts = ids[whole], ids[~whole]
        for before, after in AROUND:
            found, _ = self.encode_batch([before + vocab[i].decode() + after for i in texts.tolist()])
            texts = np.setdiff1d(texts, found)
        merged = self.definition.encoder.tokens_in_tokens() == 1
        if self.mode == "two-pass":  # the pattern may cut such a token before it is merged
            merged[self.merge_ids[self.n_phase1_merges :, 2]] = True
        never = [i for i in parts.tolist() if not merged[i] or not NOT_IN_UTF8.isdisjoint(vocab[i])]
        return np.union1d(texts, never).astype(np.int64)

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to a different one: an imported tokenizer may normalize text."""
        return bool(self.preparation.forms)

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, by rank."""
        return [(self.vocab[left], self.vocab[right]) for left, right in self.merge_ids[:, :2].tolist()]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything that determines the ids of a text; identifies the tokenizer."""
        return identity(content(self.definition))

    @cached_property
    def _names(self) -> list[str | None]:
        names = [printable(token) if token else None for token in self.vocab]
        for string, i in (self.special_tokens | dict(self.preparation.added_tokens)).items():
            names[i] = string
        return names

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of superwords: phase-2 tokens that span two words or more (`n_words`).

        Where `pretokens` is not phase 1's pattern, any merge may be phase 2's, and superwords are among `crossing_ids`.
        """
        made = self.merge_ids[self.n_phase1_merges :, 2] if self.separates_words else self.crossing_ids()
        # Several merges may make one token.
        return np.array([i for i in dict.fromkeys(made.tolist()) if n_words(self.vocab[i]) > 1], dtype=np.int64)

    def crossing_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of phase-2 tokens that cross a boundary of `pretokens`, superwords or not."""
        # Of any merge, part of a character at the start or end does not count as a cut.
        first, errors = (self.n_phase1_merges, "replace") if self.separates_words else (0, "ignore")
        made = dict.fromkeys(self.merge_ids[first:, 2].tolist())
        cut = patterns.is_cut([self.vocab[i] for i in made], self.pretokens, errors=errors)
        return np.array([*made], dtype=np.int64)[cut]

    @cached_property
    def separates_words(self) -> bool:
        """Whether phase 1's pattern cuts between words. A copy of a tokenizer with superwords has one that does not."""
        return len(patterns.split("of the", self.pattern)) > 1

    @property
    def pretokens(self) -> patterns.Pattern:
        """The pattern that cuts pretokens: phase 1's, or the `YARDSTICK` if that does not separate words."""
        return self.pattern if self.separates_words else patterns.resolve(patterns.YARDSTICK)

    # --- encoding and decoding ---

    @cached_property
    def _decoder(self) -> _native.Decoder:
        return _native.Decoder(self.vocab)

    @cached_property
    def _specials(self) -> SpecialSets:
        return SpecialSets(self.special_tokens, self.preparation)

    def encode(
        self, text: str, *, allowed_special: Allowed = frozenset(), disallowed_special: Disallowed = "all"
    ) -> list[int]:
        """Ids of a text. Special strings in it raise an error, unless they are allowed or treated as ordinary text.

        These are tiktoken's rules. If several allowed strings start at the same position, the longest is taken. A
        disallowed string raises an error wherever it occurs, even inside an allowed one.

        Args:
            text: any text.
            allowed_special: special tokens to encode as their ids; "all" for every special token.
            disallowed_special: strings that raise an error; "all" for every special token that is not allowed, an
                empty collection to encode them as ordinary text.

        Raises:
            UserError: the text contains a disallowed special string, or an allowed one is not a special token.
        """
        try:
            return self.definition.encoder.encode(text, self._specials.check(text, allowed_special, disallowed_special))
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""
        try:
            return self.definition.encoder.encode(text, self._specials.ordinary)
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_batch(
        self,
        texts: Texts,
        *,
        allowed_special: Allowed = frozenset(),
        disallowed_special: Disallowed = (),
        threads: int | None = None,
    ) -> tuple[Ids, Offsets]:
        """Ids of many texts, on several threads. Special strings are ordinary text by default.

        Args:
            texts: strings, or a pyarrow Array or ChunkedArray of them (string or large_string; nulls are rejected).
            allowed_special: see `encode`.
            disallowed_special: see `encode`; empty by default.
            threads: see the class.

        Returns:
            ids: uint32, concatenated ids of all texts.
            offsets: int64 [len(texts) + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.

        Raises:
            UserError: `texts` is not a sequence of texts, or a text contains a disallowed special string.
        """
        given = documents.given(texts)
        count = 1 if threads is None and documents.is_short(given) else thread_count(threads)
        preparation = self._specials.check_batch(given, allowed_special, disallowed_special, count)
        return self.definition.encoder.encode_batch(given, count, preparation)

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """Encode documents in the layout of token files; see `TokenizerLike.encode_stream`."""
        if narrow and max(len(token_bytes), mark + 1) > 1 << 16:
            raise UserError(f"{len(token_bytes)} tokens and the mark {mark} do not fit ids below {1 << 16}")
        preparation = self._specials.ordinary
        stream = Stream(*self.definition.encoder.encode_stream(batch, mark, token_bytes, preparation))
        if narrow:
            stream = stream._replace(ids=stream.ids.astype(np.uint16))
        if preparation is None or not self.changes_text:
            return stream
        expected, changed = preparation.lengths(batch, 1)
        return stream._replace(expected=expected, changed=changed)

    def encode_with_offsets(
        self, text: str, *, allowed_special: Allowed = frozenset(), disallowed_special: Disallowed = "all"
    ) -> Spans:
        """`encode` with the offsets of each token in bytes and in characters: see `Spans`."""
        documents.check_text(text)
        preparation = self._specials.check(text, allowed_special, disallowed_special)
        ids, in_bytes, in_characters, _ = self.definition.encoder.encode_spans(text, preparation)
        return Spans(ids, in_bytes.reshape(-1, 2), in_characters.reshape(-1, 2))

    def normalized(self, batch: _native.Batch) -> _native.Batch:
        """Documents after the tokenizer's normalization; unchanged unless it was imported with a normalizer."""
        preparation = self._specials.ordinary
        return batch if preparation is None or not self.preparation.forms else preparation.normalize(batch)

    def encode_iter(
        self,
        parts: Iterable[str],
        *,
        allowed_special: Allowed = frozenset(),
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> Iterator[Ids]:
        r"""Encode a text that arrives in parts. The ids are the same as from `encode` on the whole text.

        Text is buffered until a position at which this tokenizer always cuts, whatever follows: a position between two
        characters where the pattern and the fence are known to cut (or where they cut each side the same way as the
        whole) and that no merge can cross. `native/src/encode/stream/cuts.rs` has the rules and the proof that they
        are exact. There are rules for the named patterns and for the number patterns that imported tokenizers apply
        first. Any other regex has none, so its text is buffered until the end of the stream. For English, a few
        hundred bytes are buffered, rarely 5 kB.

        Args:
            parts: parts of one text, of any length, cut anywhere, even inside a special string; may be empty.
            allowed_special: see `encode`; all other special strings are ordinary text.
            max_pending_bytes: maximum size of the buffered text in bytes of UTF-8.

        Yields:
            Non-empty uint32 arrays of ids, as soon as they are final.

        Raises:
            UserError: more than `max_pending_bytes` of text would be buffered.
        """
        preparation, _ = self._specials.resolve(allowed_special, ())
        if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
            raise UserError("encode_iter takes parts of a text, such as an open file; use encode for a whole text")
        check_whole("max_pending_bytes", max_pending_bytes, 1)
        stream = _native.EncodeStream(self.definition.encoder, min(max_pending_bytes, sys.maxsize), preparation)
        return _pushed(stream, parts)

    def count_tokens(self, text: str) -> int:
        """Number of ids that `encode_ordinary` returns."""
        documents.check_text(text)
        return int(self.definition.encoder.count_tokens([text], 1, self._specials.ordinary)[0])

    def count_tokens_batch(self, texts: Texts, *, threads: int | None = None) -> npt.NDArray[np.int64]:
        """int64 [len(texts)]: number of ids of each text. Special strings are ordinary text.

        Arguments are as for `encode_batch`. Each thread holds the ids of one text at a time.
        """
        given, count = documents.given(texts), thread_count(threads)
        return self.definition.encoder.count_tokens(given, count, self._specials.ordinary)

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell; special tokens spell their strings.

        Args:
            ids: integers, or an array of any integer type; uint32 arrays are not copied.

        Raises:
            UserError: an id is not in the vocabulary.
        """
        of_all = documents.ids(ids, len(self.vocab))
        return self._decoder.decode_batch(of_all, np.array([0, len(of_all)]))[0]

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids spell. `errors` (see bytes.decode) applies to malformed UTF-8, which no text encodes to."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_batch(
        self,
        ids: Iterable[int] | npt.NDArray[np.integer],
        offsets: npt.ArrayLike,
        *,
        errors: str = "replace",
    ) -> list[str]:
        """The texts that concatenated ids spell: the inverse of `encode_batch`.

        Args:
            ids: concatenated ids of all texts.
            offsets: [n + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.
            errors: see `decode`; applies to each text separately.

        Raises:
            UserError: an id is not in the vocabulary, or the offsets do not fit the ids.
        """
        places = np.asarray(offsets)
        if places.ndim != 1 or len(places) < 1 or places.dtype.kind not in "iu":
            raise UserError("offsets must be a 1-D array of integers, one more than there are texts")
        data, ends = self._decoder.decode_batch(
            documents.ids(ids, len(self.vocab)), np.ascontiguousarray(places, dtype=np.int64)
        )
        return [data[start:end].decode("utf-8", errors) for start, end in pairwise(ends.tolist())]

    # --- other sizes, storage ---

    def cut(self, vocab_size: int) -> Tokenizer:
        """Shrink the vocabulary: keep the first tokens, and the merges whose parts and product are among them.

        Ids do not change, except that special tokens after all other tokens move down, to the ids that
        training to this size would have given them.

        Raises:
            UserError: the tokenizer is smaller, or its ids do not follow the order of its merges.
        """
        return Tokenizer(self.definition.cut(vocab_size), self.provenance | {"cut_from": self.vocab_size})

    def extended(self, new_merges: npt.ArrayLike, *, provenance: dict[str, Any] | None = None) -> Tokenizer:
        """Append merges to the last phase. Existing ids do not change.

        Args:
            new_merges: [k, 2] ids; the token of merge i gets the id `vocab_size + i`, even after special tokens.
            provenance: entries to add to the existing provenance.

        Raises:
            UserError: a merge joins an id that does not exist, or spells an existing token.
        """
        merges = self.definition.merges_with(new_merges)
        n_phase1 = len(merges) if self.fence is None else self.n_phase1_merges
        longer = replace(self.definition, merge_ids=merges, n_phase1_merges=n_phase1)
        return Tokenizer(longer, self.provenance | (provenance or {}))

    def save(self, folder: Path | str) -> None:
        """Write the tokenizer's folder: `superbpe.json`, and `tokenizer.json` where HF can express the tokenizer.

        A tokenizer that was saved there before is replaced, whatever it is, as by `save_pretrained` of `transformers`;
        its chat templates and lists of tokens are removed. The commands write new folders only.
        """
        save(self, Path(folder))

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload the tokenizer's files and a card to the Hugging Face Hub; return the address of the upload.

        >>> tokenizer.push_to_hub("org/name", to="preview")  # the files that would be uploaded  # doctest: +SKIP

        Args:
            repository: id of the repository, as "org/name".
            options: `to`, `license` and the other keyword arguments of `tokenizer.external.push.push`.
        """
        from tokenizer.external.push import push  # needed only here

        return push(self, repository, **options)

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """Read a folder written by `save`.

        Raises:
            UserError: the folder is missing or damaged, or its files were edited in a way that changes ids.
        """
        return cls(*load(Path(folder)))

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> Tokenizer:
        """Read a tokenizer of any supported format: see `tokenizer.formats.read`."""
        return cls(*read(path, **options))

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

        found, _, _ = open_pretrained(source, **options)
        if not isinstance(found, Stored):
            raise UserError(
                f"{source} is not byte-level BPE ({found.reason}), and this needs its merges; "
                "load_pretrained and the commands encode and fertility accept it"
            )
        return cls(*found)

    def __repr__(self) -> str:
        return repr(self.definition).replace("Definition", f"Tokenizer {self.name}", 1)


def byte_level_bpe(tokenizer: TokenizerLike, purpose: str) -> Tokenizer:
    """Return the tokenizer if it is byte-level BPE run by our core.

    Args:
        tokenizer: any tokenizer.
        purpose: start of the message, ending in a verb, such as "byte probabilities need".

    Raises:
        UserError: other software runs the tokenizer.
    """
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    reason = getattr(tokenizer, "reason", "") or "its core is not ours"
    raise UserError(
        f"{purpose} a byte-level BPE tokenizer, but {tokenizer!r} is not one that our core can run: {reason}"
    )


def _pushed(stream: _native.EncodeStream, parts: Iterable[str]) -> Iterator[Ids]:
    for number, part in enumerate(parts):
        try:
            ids = stream.push(part)
        except (TypeError, UnicodeEncodeError):
            documents.check_text(part, f"part {number} of the stream")
            raise
        if len(ids):
            yield ids
    rest = stream.push("", last=True)
    if len(rest):
        yield rest

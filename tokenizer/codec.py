"""Text to ids and back: the encoding and decoding methods of `Tokenizer`."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import _native, documents, streaming
from tokenizer.documents import Texts
from tokenizer.errors import UserError
from tokenizer.preparation import Preparation
from tokenizer.progress import thread_count
from tokenizer.special import SpecialSets

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

_NO_SPECIAL: frozenset[str] = frozenset()

_FOR_SEVERAL_THREADS = 1_000_000
"""A single text of at least this many characters is encoded by several threads."""


class Spans(NamedTuple):
    """Ids of a text and the offsets of their tokens.

    Attributes:
        ids: uint32 [n].
        bytes: int64 [n, 2]: start and end of each token in the text's UTF-8. The spans are contiguous. Exception: where
            an imported tokenizer normalized the text, they are the spans of `characters` in bytes.
        characters: int64 [n, 2]: start and end of each token in characters, so that `text[start:end]` shows it. If
            several tokens share a character, each span includes the whole character (as in HF `tokenizers`).
            If normalization joined several characters into one, the span covers the first of them (as in HF).
    """

    ids: Ids
    bytes: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]


class Stream(NamedTuple):
    """Concatenated documents, each preceded by the separator id.

    Attributes:
        ids: uint16 or uint32 [n].
        ends: int64 [documents]: end of each document in `ids`.
        spelled: int64 [documents]: number of bytes that the tokens of each document spell.
        marked: first document that contains the separator id itself; None if there is none.
        expected: int64 [documents]: number of bytes that the tokens should spell. None if it is the size of each
            document; it differs where the tokenizer normalizes text or does not account for all of it.
        changed: bool [documents]: whether each document decodes to a different text; None if none can.
        covered: uint32 [n]: bytes of the document that each token stands for, 0 for the separator; None if a token
            always stands for the same bytes.
    """

    ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    spelled: npt.NDArray[np.int64]
    marked: int | None
    expected: npt.NDArray[np.int64] | None = None
    changed: npt.NDArray[np.bool_] | None = None
    covered: npt.NDArray[np.uint32] | None = None


class Codec(ABC):
    """Encoding and decoding; see `Tokenizer`.

    Texts are Python strings; anything else, or a lone surrogate, raises UserError. The native core does the work and
    releases the GIL for all but very small inputs. `threads` is the number of threads: by default the value of the
    environment variable SUPERBPE_THREADS, otherwise the number of cores available to the process.
    """

    vocab: list[bytes]
    special_tokens: dict[str, int]
    preparation: Preparation

    @property
    @abstractmethod
    def _encoder(self) -> _native.Encoder: ...

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to a different one: an imported tokenizer may normalize text."""
        return bool(self.preparation.forms)

    @property
    def unknown_id(self) -> None:
        """None: every byte is a token."""
        return

    @property
    def fixed_bytes(self) -> bool:
        """True: a token spells the same bytes wherever it occurs."""
        return True

    @property
    @abstractmethod
    def _trims_offsets(self) -> bool: ...

    @cached_property
    def _decoder(self) -> _native.Decoder:
        return _native.Decoder(self.vocab)

    @cached_property
    def _specials(self) -> SpecialSets:
        return SpecialSets(self.special_tokens, self.preparation)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Set[str] | Literal["all"] = frozenset(),
        disallowed_special: Collection[str] | Literal["all"] = "all",
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
            return self._encoder.encode(text, self._specials.check(text, allowed_special, disallowed_special))
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""
        try:
            return self._encoder.encode(text, self._specials.ordinary)
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Set[str] | Literal["all"] = frozenset(),
        disallowed_special: Collection[str] | Literal["all"] = "all",
    ) -> Ids:
        """`encode` to a uint32 array [n], without a Python object per id. The fastest method for single texts.

        A text of a million characters or more is encoded by several threads.
        """
        try:
            if disallowed_special == () and allowed_special == _NO_SPECIAL:  # a call less: measurable for short texts
                preparation = self._specials.ordinary
            else:
                preparation = self._specials.check(text, allowed_special, disallowed_special)
            if len(text) >= _FOR_SEVERAL_THREADS and preparation is None:
                return self._encoder.encode_batch([text], thread_count(None))[0]
            return self._encoder.encode_array(text, preparation)
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_batch(
        self,
        texts: Texts,
        *,
        allowed_special: Set[str] | Literal["all"] = frozenset(),
        disallowed_special: Collection[str] | Literal["all"] = (),
        threads: int | None = None,
    ) -> tuple[Ids, Offsets]:
        """Ids of many texts, on several threads. Special strings are ordinary text by default.

        Args:
            texts: strings, or a pyarrow Array or ChunkedArray of them (string or large_string; nulls are rejected).
                Arrays with a single chunk are not copied.
            allowed_special: see `encode`.
            disallowed_special: see `encode`; empty by default.
            threads: see the class.

        Returns:
            ids: uint32, concatenated ids of all texts.
            offsets: int64 [len(texts) + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.

        Raises:
            UserError: `texts` is not a sequence of texts, or a text contains a disallowed special string.
        """
        given, count = documents.given(texts), thread_count(threads)
        with documents.named(texts):
            preparation = self._specials.check_batch(given, allowed_special, disallowed_special, count)
            return self._encoder.encode_batch(given, count, preparation)

    def encode_documents(self, batch: _native.Batch, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """`encode_batch` for a Batch of documents. Special strings are ordinary text."""
        return self._encoder.encode_batch(batch, thread_count(threads), self._specials.ordinary)

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """Encode documents in the layout of token files, in one pass on the calling thread.

        Args:
            batch: the documents.
            mark: separator id, written before each document.
            token_bytes: uint32 [vocab_size], length of each token in bytes.
            narrow: return uint16 ids, which must fit the vocabulary, rather than uint32.
        """
        stream = Stream(*self._encoder.encode_stream(batch, mark, token_bytes, narrow, self._specials.ordinary))
        if not self.changes_text:
            return stream
        expected, changed = self.normalized_sizes(batch, threads=1)
        return stream._replace(expected=expected, changed=changed)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: Set[str] | Literal["all"] = frozenset(),
        disallowed_special: Collection[str] | Literal["all"] = "all",
    ) -> Spans:
        """`encode` with the offsets of each token in bytes and in characters: see `Spans`."""
        documents.check_text(text)
        if self._trims_offsets:
            warnings.warn(
                "offsets include the spaces of each token; HF's, after the tokenizer's post-processor, leave them out",
                stacklevel=2,
            )
        preparation = self._specials.check(text, allowed_special, disallowed_special)
        ids, in_bytes, in_characters, _ = self._encoder.encode_spans(text, preparation)
        return Spans(ids, in_bytes.reshape(-1, 2), in_characters.reshape(-1, 2))

    def normalized_sizes(
        self, texts: Texts, *, threads: int | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Size of each text after normalization, which is what its tokens spell, and whether normalization changes it.

        Only imported tokenizers normalize text; for all others this is the size of the text itself.

        Returns:
            int64 [len(texts)] bytes of UTF-8, and bool [len(texts)], whether normalization changes the text.
        """
        with documents.named(texts):
            return documents.sizes(documents.given(texts), self._specials.ordinary, thread_count(threads))

    def normalized(self, batch: _native.Batch) -> _native.Batch:
        """Documents after the tokenizer's normalization; unchanged unless it was imported with a normalizer."""
        preparation = self._specials.ordinary
        return batch if preparation is None or not self.preparation.forms else preparation.normalize(batch)

    def encode_iter(
        self,
        parts: Iterable[str],
        *,
        allowed_special: Set[str] | Literal["all"] = frozenset(),
        disallowed_special: Collection[str] | Literal["all"] = (),
        max_pending_bytes: int = streaming.MAX_PENDING_BYTES,
    ) -> Iterator[Ids]:
        r"""Encode a text that arrives in parts. The ids equal those of `encode` on the whole text.

        Text is buffered until a position at which this tokenizer always cuts, whatever follows: a position between two
        characters where the pattern and the fence are known to cut (or where they cut each side the same way as the
        whole) and that no merge can cross. `native/src/encode/stream/cuts.rs` has the rules and the proof that they
        are exact. There are rules for the named patterns and for the number patterns that imported tokenizers apply
        first. Any other regex has none, so its text is buffered until the end of the stream. For English, a few
        hundred bytes are buffered, rarely 5 kB.

        Args:
            parts: parts of one text, of any length, cut anywhere, even inside a special string; may be empty.
            allowed_special: see `encode`.
            disallowed_special: see `encode`; empty by default. Ids of earlier text may already have been yielded when
                such a string arrives.
            max_pending_bytes: maximum size of the buffered text in bytes of UTF-8.

        Yields:
            Non-empty uint32 arrays of ids, as soon as they are final.

        Raises:
            UserError: more than `max_pending_bytes` of text would be buffered, or a disallowed string occurs.
        """
        preparation, forbidden = self._specials.resolve(allowed_special, disallowed_special)
        return streaming.encode(self._encoder, parts, max_pending_bytes, preparation, forbidden)

    def count_tokens(self, text: str) -> int:
        """Number of ids that `encode_ordinary` returns."""
        documents.check_text(text)
        return int(self._encoder.count_tokens([text], 1, self._specials.ordinary)[0])

    def count_tokens_batch(self, texts: Texts, *, threads: int | None = None) -> npt.NDArray[np.int64]:
        """int64 [len(texts)]: number of ids of each text. Special strings are ordinary text.

        Arguments are those of `encode_batch`. Each thread holds the ids of one text at a time.
        """
        with documents.named(texts):
            return self._encoder.count_tokens(documents.given(texts), thread_count(threads), self._specials.ordinary)

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell; special tokens spell their strings.

        Args:
            ids: integers, or an array of any integer type; uint32 arrays are not copied.

        Raises:
            UserError: an id is not in the vocabulary.
        """
        return self._decoder.decode(documents.ids(ids, len(self.vocab)))

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
        bounds = ends.tolist()
        return [data[start:end].decode("utf-8", errors) for start, end in pairwise(bounds)]

    def stream_decoder(self, *, errors: str = "replace") -> streaming.StreamDecoder:
        """A decoder for ids that arrive one at a time, as from a model: see `StreamDecoder`."""
        return streaming.StreamDecoder(self.decode_bytes, errors=errors)

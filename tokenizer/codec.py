"""Text to ids and back: the methods of `Tokenizer` that take and give them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import _native, documents, streaming
from tokenizer.documents import Texts
from tokenizer.errors import UserError, check_whole
from tokenizer.preparation import Preparation
from tokenizer.progress import thread_count
from tokenizer.special import SpecialSets

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

_NO_SPECIAL: frozenset[str] = frozenset()

_FOR_SEVERAL_THREADS = 1_000_000
"""Characters from which on one text is encoded by several threads."""


class Spans(NamedTuple):
    """Ids of a text and where their tokens lie in it.

    Attributes:
        ids: uint32 [n].
        bytes: int64 [n, 2]: start and end of each token in the text's UTF-8. They follow each other without gaps, but
            where an imported tokenizer normalised the text: there they are those of `characters`.
        characters: int64 [n, 2]: the same in characters, so that `text[start:end]` shows a token. A token that holds
            part of a character covers it whole, as its neighbour does with the other part (as in HF `tokenizers`).
            Where several characters were normalised into one, its token covers the first (as there).
    """

    ids: Ids
    bytes: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]


class Stream(NamedTuple):
    """Documents one behind the other, each after the same id.

    Attributes:
        ids: uint16 or uint32 [n].
        ends: int64 [documents]: where each document ends in `ids`.
        spelled: int64 [documents]: bytes that the tokens of each spell.
        marked: the first document that has the id that parts documents among its own; None if none has.
        expected: int64 [documents]: bytes that the tokens should spell, where not those of the documents: the tokenizer
            normalises text, or does not account for all of it.
        changed: bool [documents]: which documents decode to another text; None if none can.
        covered: uint32 [n]: bytes of the document that each token stands for, 0 for the id in front; None where a token
            always stands for the same bytes.
    """

    ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    spelled: npt.NDArray[np.int64]
    marked: int | None
    expected: npt.NDArray[np.int64] | None = None
    changed: npt.NDArray[np.bool_] | None = None
    covered: npt.NDArray[np.uint32] | None = None


def _number(value: Any) -> float:
    """The value, or what is outside of any range."""
    return float(value) if isinstance(value, int | float) else float("nan")


class Codec(ABC):
    """Encodes and decodes; see `Tokenizer`.

    Texts are Python strings; what is none, or holds a lone surrogate, raises UserError. All but the very small work is
    done by the native core without the GIL. `threads` is how many threads take part: by default those that the
    environment variable SUPERBPE_THREADS says, else the cores that the process may use.
    """

    vocab: list[bytes]
    special_tokens: dict[str, int]
    preparation: Preparation

    @property
    @abstractmethod
    def _encoder(self) -> _native.Encoder: ...

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to another one: an imported tokenizer normalises text."""
        return bool(self.preparation.forms)

    @property
    def unknown_id(self) -> None:
        """None: every byte is a token."""
        return

    @property
    def fixed_bytes(self) -> bool:
        """True: a token spells the same bytes wherever it occurs."""
        return True

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
        """Ids of a text. Special strings in it are an error, unless allowed or declared to be ordinary text.

        This is tiktoken's rule. Where several allowed strings begin at one place the longest is taken; a disallowed
        string raises wherever it is, also inside an allowed one.

        Args:
            text: any text.
            allowed_special: special tokens whose strings become their ids; "all" for every one.
            disallowed_special: strings that raise; "all" for every special token that is not allowed, an empty
                collection to encode them as ordinary text.

        Raises:
            UserError: a disallowed special string occurs in the text, or an allowed one is no special token.
        """
        try:
            return self._encoder.encode(text, self._specials.check(text, allowed_special, disallowed_special))
        except (TypeError, UnicodeEncodeError):
            documents.check_text(text)
            raise

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text in which special strings are ordinary text."""
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
        """`encode` without a Python object per id: uint32 [n]. The quickest way for one text at a time.

        A text of a million characters or more is encoded by several threads.
        """
        try:
            if disallowed_special == () and allowed_special == _NO_SPECIAL:  # with short texts each call counts
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
        """Ids of many texts, on several threads. Special strings are ordinary text unless the arguments say otherwise.

        Args:
            texts: strings, or a pyarrow Array or ChunkedArray of them (string or large_string; nulls are refused).
                Arrays in one chunk are read where they lie.
            allowed_special: as in `encode`.
            disallowed_special: as in `encode`, but nothing by default.
            threads: see the class.

        Returns:
            ids: uint32, of all texts in order.
            offsets: int64 [len(texts) + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.

        Raises:
            UserError: what is given is no sequence of texts, or a text holds a disallowed special string.
        """
        given, count = documents.given(texts), thread_count(threads)
        with documents.named(texts):
            preparation = self._specials.check_batch(given, allowed_special, disallowed_special, count)
            return self._encoder.encode_batch(given, count, preparation)

    def encode_documents(self, batch: _native.Batch, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """`encode_batch` for documents that are a Batch already."""
        return self._encoder.encode_batch(batch, thread_count(threads), self._specials.ordinary)

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """`encode_documents` as files of tokens hold it, in one pass on the calling thread.

        Args:
            batch: the documents.
            mark: the id in front of each.
            token_bytes: uint32 [vocab_size], bytes of each token.
            narrow: whether ids are uint16, which the vocabulary must fit, or uint32.
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
        """`encode`, and where each token lies in the text, in bytes and in characters: see `Spans`."""
        documents.check_text(text)
        preparation = self._specials.check(text, allowed_special, disallowed_special)
        ids, in_bytes, in_characters = self._encoder.encode_spans(text, preparation)
        return Spans(ids, in_bytes.reshape(-1, 2), in_characters.reshape(-1, 2))

    def normalized_sizes(
        self, texts: Texts, *, threads: int | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Bytes of texts as they are encoded, which their tokens spell together, and which texts that changes.

        Only imported tokenizers normalise text; with all others these are the bytes of the texts.

        Returns:
            int64 [len(texts)] bytes of UTF-8, and bool [len(texts)], whether normalisation changes the text.
        """
        with documents.named(texts):
            return documents.sizes(documents.given(texts), self._specials.ordinary, thread_count(threads))

    def normalized(self, batch: _native.Batch) -> _native.Batch:
        """Documents as they are encoded: normalised where the tokenizer was imported with a normaliser."""
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
        r"""Ids of a text that comes in parts: those of `encode` at once, also of special strings cut in two.

        Text waits until a place comes at which this tokenizer surely cuts, whatever follows. Those are places between
        two characters at which the pattern and the fence are known to cut, or to cut both sides as they cut the
        whole, and over which no merge can join; `native/src/encode/stream/cuts.rs` has the rules and why they are
        exact. The named patterns and the numbers that imported ones cut out in front have rules; about any other regex
        nothing is known, so that its text waits for the end of the stream. In English some hundred bytes wait, rarely
        5 kB.

        Args:
            parts: parts of one text, of any length, cut anywhere; empty ones are allowed.
            allowed_special: as in `encode`.
            disallowed_special: as in `encode`, but nothing by default. Ids of the text before may have been given out
                when such a string comes.
            max_pending_bytes: most text that may wait, in bytes of UTF-8.

        Yields:
            uint32 ids, as soon as they are certain, in parts that are not empty.

        Raises:
            UserError: more than `max_pending_bytes` of text would have to wait, or a disallowed string occurs.
        """
        preparation, forbidden = self._specials.resolve(allowed_special, disallowed_special)
        return streaming.encode(self._encoder, parts, max_pending_bytes, preparation, forbidden)

    def encode_dropout(self, text: str, p: float, *, seed: int) -> list[int]:
        """Ids with merges left out at random: BPE dropout, for training that shall see a word in several ways.

        Provilkov, Emelianenko and Voita 2020 (https://aclanthology.org/2020.acl-main.170), algorithm 1: in each step
        every merge that is possible, at each of its places, is dropped with probability `p`, and the first of the rest
        (by rank, then from the left) is applied; the first step that drops all ends it. HF's `dropout` has the same
        coins, except that merges that other merges made impossible take part in HF's. A step is one of a pretoken.
        For superwords it is one of a run of bytes between which phase-1 merges can join, and then of a run of phase-1
        tokens between which phase-2 merges can: see `native/src/encode/dropout.rs`, also for imported superwords.
        Special strings are ordinary text.

        Args:
            text: any text.
            p: probability of dropping a merge, from 0 (the ids of `encode_ordinary`) to 1 (single bytes). The paper
                takes 0.1. Tokens that no merge makes (`ignore_merges`) only occur with 0.
            seed: 0 to 2**64 - 1. The same seed gives the same ids; take another one in each epoch.
        """
        ids: list[int] = self.encode_batch_dropout([text], p, seed=seed, threads=1)[0].tolist()
        return ids

    def encode_batch_dropout(
        self, texts: Texts, p: float, *, seed: int, threads: int | None = None
    ) -> tuple[Ids, Offsets]:
        """`encode_dropout` of many texts, arguments and result as in `encode_batch`.

        The ids of text i depend on (text, p, seed, i): not on the other texts, nor on the number of threads. Those of
        the first are `encode_dropout`'s.
        """
        if not 0 <= _number(p) <= 1:
            raise UserError(f"p={p!r} is no probability: it is from 0 to 1")
        check_whole("seed", seed, 0, 2**64 - 1)
        if p == 0:
            return self.encode_batch(texts, threads=threads)
        with documents.named(texts):
            return self._encoder.encode_dropout(
                documents.given(texts), p, seed, thread_count(threads), self._specials.ordinary
            )

    def count_tokens(self, text: str) -> int:
        """How many ids `encode_ordinary` gives."""
        documents.check_text(text)
        return int(self._encoder.count_tokens([text], 1, self._specials.ordinary)[0])

    def count_tokens_batch(self, texts: Texts, *, threads: int | None = None) -> npt.NDArray[np.int64]:
        """int64 [len(texts)]: how many ids each text has, special strings as ordinary text.

        Arguments as in `encode_batch`. Each thread holds the ids of one text at a time.
        """
        with documents.named(texts):
            return self._encoder.count_tokens(documents.given(texts), thread_count(threads), self._specials.ordinary)

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell; special tokens spell their strings.

        Args:
            ids: whole numbers, or an array of any integer type; uint32 arrays are not copied.

        Raises:
            UserError: an id is not in the vocabulary.
        """
        return self._decoder.decode(documents.ids(ids, len(self.vocab)))

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids spell; malformed UTF-8, which no text encodes to, by `errors` as in bytes.decode."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_batch(
        self,
        ids: Iterable[int] | npt.NDArray[np.integer],
        offsets: npt.ArrayLike,
        *,
        errors: str = "replace",
    ) -> list[str]:
        """The texts that flat ids spell, `encode_batch` turned around.

        Args:
            ids: of all texts in order.
            offsets: [n + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.
            errors: as in `decode`, for each text on its own.

        Raises:
            UserError: an id is not in the vocabulary, or the offsets do not fit the ids.
        """
        places = np.asarray(offsets)
        if places.ndim != 1 or len(places) < 1 or places.dtype.kind not in "iu":
            raise UserError("offsets are a row of whole numbers, one more than there are texts")
        data, ends = self._decoder.decode_batch(
            documents.ids(ids, len(self.vocab)), np.ascontiguousarray(places, dtype=np.int64)
        )
        bounds = ends.tolist()
        return [data[start:end].decode("utf-8", errors) for start, end in pairwise(bounds)]

    def stream_decoder(self, *, errors: str = "replace") -> streaming.StreamDecoder:
        """A decoder for ids that come one after the other, as from a model: see `StreamDecoder`."""
        return streaming.StreamDecoder(self.decode_bytes, errors=errors)

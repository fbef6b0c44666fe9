"""The encoder of `tokenizer.hf`: our encoder for the text between the added tokens of a `tokenizers.Tokenizer`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from tokenizer import _native, formats
from tokenizer.errors import UserError, quoted
from tokenizer.formats.hf import BYTE_LEVEL, TEMPLATE, added_tokens, normalizer
from tokenizer.preparation import Preparation, normalized
from tokenizer.progress import THREADS_VARIABLE, thread_count
from tokenizer.special import SpecialSets
from tokenizer.tokenizer import Tokenizer

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_in_worker = False


def _note_fork() -> None:
    global _in_worker
    _in_worker = True


os.register_at_fork(after_in_child=_note_fork)


def _threads() -> int | None:
    """Number of threads for `encode_batch`.

    One if HF's own variable turns parallelism off, or in a forked worker process, such as those of
    `datasets.map(num_proc=...)`. SUPERBPE_THREADS takes precedence.
    """
    if THREADS_VARIABLE in os.environ:
        return None
    if os.environ.get(_PARALLELISM, "").lower() in ("0", "false", "f", "no", "n", "off"):
        return 1
    return 1 if _in_worker and _PARALLELISM not in os.environ else None


def backend(tokenizer: Tokenizer) -> Any:
    """A `tokenizers.Tokenizer`: the exact one, or if HF cannot express it, one with its tokens that cannot encode."""
    try:
        found = formats.hf_json(tokenizer)
    except UserError:
        found = _vocabulary_json(tokenizer)
    return tokenizers.Tokenizer.from_str(json.dumps(found, ensure_ascii=False))


def _vocabulary_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer.json with the ids, names and decoder, but with a model that raises on any text."""
    added = tokenizer.special_tokens | dict(tokenizer.preparation.added_tokens)
    special_ids = set(added.values())
    vocab = {formats.printable(token): i for i, token in enumerate(tokenizer.vocab) if token and i not in special_ids}
    if clash := set(vocab) & set(added):
        raise UserError(
            f"the special token {quoted(min(clash))} is also how transformers writes an ordinary token, and would "
            "get its id there; use another special string"
        )
    vocab |= added
    template = tokenizer.provenance.get(TEMPLATE) or {}
    unknown = "no model can encode this; use SuperBPETokenizerFast"
    return {
        "version": "1.0",
        "truncation": template.get("truncation"),
        "padding": template.get("padding"),
        "added_tokens": added_tokens(tokenizer.definition, template.get("added_tokens") or {}),
        "normalizer": normalizer(tokenizer.preparation.forms, None),
        "pre_tokenizer": None,
        "post_processor": template.get("post_processor"),
        "decoder": template.get("decoder", BYTE_LEVEL),
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": unknown},
    }


@dataclass(frozen=True)
class Encoded:
    """Concatenated ids: text i has `ids[offsets[i]:offsets[i + 1]]`. `spans` are character offsets [n, 2] or None."""

    ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64] | None = None


class TextEncoder:
    """Our tokenizer with caches derived from it. Pickles exclude the caches, so they are deterministic."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.forget_added_tokens()

    def __reduce__(self) -> tuple[Any, ...]:
        return TextEncoder, (self.tokenizer,)

    @cached_property
    def _lengths(self) -> npt.NDArray[np.int32]:
        return self.tokenizer.token_byte_lengths()

    def forget_added_tokens(self) -> None:
        """Clear the caches; must be called after a token was added to the backend."""
        self._splitter: Any = None
        self._sets: SpecialSets | None = None

    def _split_with(self, backend: Any) -> Any:
        """A `tokenizers.Tokenizer` with the same added tokens; all text between them is one unknown word."""
        if self._splitter is None:
            added = backend.get_added_tokens_decoder()
            splitter = tokenizers.Tokenizer(tokenizers.models.WordLevel({"": 0}, unk_token=""))
            splitter.add_tokens(list(added.values()))
            self._ids = {splitter.token_to_id(token.content): i for i, token in added.items()}
            # A quick test: most texts contain none of these prefixes, so they need no search for added tokens.
            self._marks = {token.content[:2] for token in added.values()}
            self._splitter = splitter
        return self._splitter

    def _prepare(self, backend: Any, *, split_special_tokens: bool) -> _native.Preparation | None:
        """An imported tokenizer's preparation of text, with the backend's current added tokens."""
        if self._sets is None:
            forms = self.tokenizer.preparation.forms
            special: dict[str, int] = {}
            added: dict[str, int] = {}
            late: set[str] = set()
            for i, token in backend.get_added_tokens_decoder().items():
                string = normalized(forms, token.content) if token.normalized else token.content
                (special if token.special else added)[string] = i
                late |= {string} if token.normalized else set()
            self._sets = SpecialSets(special, Preparation(forms, added, frozenset(late)))
            self._strings = {i: string for string, i in (special | added).items()}
        return self._sets.resolve(frozenset() if split_special_tokens else "all", ())[0]

    def _encode_prepared(self, texts: Sequence[str], preparation: Any, *, spans: bool) -> Encoded:
        encoder = self.tokenizer.definition.encoder
        if not spans:
            return Encoded(*encoder.encode_batch(list(texts), thread_count(_threads()), preparation))
        found = [encoder.encode_spans(text, preparation) for text in texts]
        ids = [one[0] for one in found] or [np.empty(0, np.uint32)]
        characters = [one[2].reshape(-1, 2) for one in found] or [np.empty((0, 2), np.int64)]
        offsets = np.cumsum([0, *map(len, ids)]) if found else np.zeros(1, np.int64)
        return Encoded(np.concatenate(ids), offsets, np.concatenate(characters))

    def _parts(self, text: str, split_special_tokens: bool) -> list[tuple[int, int, int | None]]:
        """Added tokens (start, stop, id) and stretches of text between them (start, stop, None), in order."""
        if not any(mark in text for mark in self._marks):
            return [(0, len(text), None)] if text else []
        self._splitter.encode_special_tokens = split_special_tokens
        found = self._splitter.encode(text)
        return [(*span, self._ids.get(i)) for span, i in zip(found.offsets, found.ids, strict=True)]

    def encode(self, texts: Sequence[str], backend: Any, *, split_special_tokens: bool, spans: bool = False) -> Encoded:
        """Ids of many texts.

        Args:
            texts: strings.
            backend: tokenizer whose added tokens are found in the texts.
            split_special_tokens: treat the strings of special tokens as ordinary text.
            spans: also return the character offsets of each token.
        """
        self._split_with(backend)
        if self.tokenizer.preparation:
            preparation = self._prepare(backend, split_special_tokens=split_special_tokens)
            return self._encode_prepared(texts, preparation, spans=spans)
        if not spans and not any(mark in text for text in texts for mark in self._marks):
            return Encoded(*self.tokenizer.encode_batch(texts, threads=_threads()))
        parts = [self._parts(text, split_special_tokens) for text in texts]
        between = [text[a:b] for text, cut in zip(texts, parts, strict=True) for a, b, i in cut if i is None]
        ids, ends = self.tokenizer.encode_batch(between, threads=_threads())
        lengths = self._lengths if spans else None
        all_ids: list[npt.NDArray[Any]] = [ids[:0]]
        all_spans: list[npt.NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
        offsets = np.zeros(len(texts) + 1, np.int64)
        number = 0
        for n, cut in enumerate(parts):
            for start, stop, i in cut:
                if i is not None:
                    all_ids.append(np.array([i], ids.dtype))
                    all_spans.append(np.array([[start, stop]], np.int64))
                else:
                    all_ids.append(ids[ends[number] : ends[number + 1]])
                    if lengths is not None:
                        all_spans.append(start + _spans(between[number], lengths[all_ids[-1]]))
                    number += 1
                offsets[n + 1] += len(all_ids[-1])
        return Encoded(
            np.concatenate(all_ids), np.cumsum(offsets), np.concatenate(all_spans) if lengths is not None else None
        )

    def encoding(self, text: str | Sequence[str], type_id: int, backend: Any, *, split_special_tokens: bool) -> Any:
        """The `tokenizers.Encoding` of a text or a list of words, before truncation, post-processing and padding.

        `type_id` is 0, or 1 for the second text of a pair.
        """
        pieces = [text] if isinstance(text, str) else list(text)
        encoded = self.encode(pieces, backend, split_special_tokens=split_special_tokens, spans=True)
        assert encoded.spans is not None
        words = np.repeat(np.arange(len(pieces)), np.diff(encoded.offsets))
        preparation = self._prepare(backend, split_special_tokens=split_special_tokens)
        if isinstance(text, str) and preparation is not None and self.tokenizer.preparation:
            words = self.tokenizer.definition.encoder.encode_words(text, preparation)[2]
        elif isinstance(text, str):
            starts = self._word_starts(text, split_special_tokens)
            words = np.searchsorted(starts, encoded.spans[:, 0], side="right") - 1
        n = len(encoded.ids)
        names = [backend.id_to_token(i) for i in encoded.ids.tolist()]
        if self.tokenizer.preparation:
            names = [self._strings.get(i, name) for i, name in zip(encoded.ids.tolist(), names, strict=True)]
        elif isinstance(text, str):
            for at in np.flatnonzero(np.isin(encoded.ids, list(self._ids.values()))).tolist():
                names[at] = text[slice(*encoded.spans[at].tolist())]  # includes the spaces that it absorbed
        state = {
            "ids": encoded.ids.tolist(),
            "type_ids": [type_id] * n,
            "tokens": names,
            "words": words.tolist(),
            "offsets": encoded.spans.tolist(),
            "special_tokens_mask": [0] * n,
            "attention_mask": [1] * n,
            "overflowing": [],
            "sequence_ranges": {},
        }
        made = tokenizers.Encoding()
        made.__setstate__(json.dumps(state).encode())
        return made

    def _word_starts(self, text: str, split_special_tokens: bool) -> list[int]:
        """Start positions of added tokens and of the pieces cut by the fence, or by the pattern without a fence."""
        cut = self.tokenizer.fence or self.tokenizer.pattern
        starts = []
        for start, stop, i in self._parts(text, split_special_tokens):
            pieces = [text[start:stop]] if i is not None else _native.split(text[start:stop], cut.regex)
            starts += (start + np.cumsum([0, *map(len, pieces[:-1])])).tolist()
        return starts


def _spans(text: str, lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Character offsets of tokens from their byte lengths; a token with part of a character includes all of it."""
    stops = np.cumsum(lengths, dtype=np.int64)
    starts = stops - lengths
    if not text.isascii():
        begins = (np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80
        characters = np.concatenate(([0], np.cumsum(begins)))
        starts, stops = characters[starts] - ~begins[starts], characters[stops]
    return np.column_stack((starts, stops))


def template_ids(post_processor: Any, *, add_special_tokens: bool) -> tuple[list[int], list[int], list[int]] | None:
    """Tokens that a post-processor adds: ids before the text, ids after it, and type ids with one for the text.

    None if it does anything else.
    """
    if post_processor is None:
        return [], [], [0]
    text = 2**32 - 1  # placeholder, not an id of a token
    one = tokenizers.Encoding()
    state = {"ids": [text], "type_ids": [0], "tokens": ["a"], "words": [0], "offsets": [[0, 1]]}
    state |= {"special_tokens_mask": [0], "attention_mask": [1], "overflowing": [], "sequence_ranges": {}}
    one.__setstate__(json.dumps(state).encode())
    made = post_processor.process(one, None, add_special_tokens)
    if made.ids.count(text) != 1:
        return None
    at = made.ids.index(text)
    return made.ids[:at], made.ids[at + 1 :], made.type_ids

"""The backend of `SuperBPETokenizerFast`: a `tokenizers.Tokenizer` whose text our core encodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from tokenizer import _native, formats
from tokenizer.errors import UserError, quoted
from tokenizer.special import Preparation, SpecialSets, normalized
from tokenizer.tokenizer import Tokenizer

_FILLING = ("direction", "pad_id", "pad_type_id", "pad_token")


class Backend:
    """Backend for `transformers`: HF's tokenizer, except that our core encodes.

    Args:
        ours: our tokenizer.
        theirs: the `tokenizers.Tokenizer` with the same tokens; a new one by default. If HF cannot express `ours`, its
            model raises on any text.
    """

    def __init__(self, ours: Tokenizer, theirs: Any = None) -> None:
        if theirs is None:
            try:
                content = formats.hf_json(ours)
            except UserError:
                content = formats.hf_json(ours, encodes=False)
            theirs = tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        vars(self).update(ours=ours, _theirs=theirs, _sets=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_theirs"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._theirs, name, value)

    def __reduce__(self) -> tuple[Any, ...]:  # without what was cached: pickles are deterministic
        return Backend, (self.ours, self._theirs)

    def add_tokens(self, tokens: Sequence[Any]) -> int:
        """Add tokens that are found in any text; returns how many are new."""
        return self._add(tokens, self._theirs.add_tokens)

    def add_special_tokens(self, tokens: Sequence[Any]) -> int:
        """Add special tokens; returns how many are new."""
        return self._add(tokens, self._theirs.add_special_tokens)

    def _add(self, tokens: Sequence[Any], add: Any) -> int:
        named = {*self.ours.special_tokens, *self.ours.preparation.added_tokens}
        for token in tokens:
            content = str(token)
            if flags := [name for name in ("lstrip", "rstrip", "single_word") if getattr(token, name, None) is True]:
                raise UserError(
                    f"the added token {quoted(content)} has {flags[0]}=True, which is not supported: add it without "
                    "the flag"
                )
            known = self._theirs.token_to_id(content)
            if known is not None and known < self.ours.vocab_size and content not in named:
                raise UserError(
                    f"{quoted(content)} is already a token (id {known}) and cannot be added; use another string"
                )
        vars(self)["_sets"] = None
        added: int = add(tokens)
        return added

    def _prepare(self) -> _native.Preparation:
        """The preparation of text: normalization, and the tokens that are found in it now."""
        if self._sets is None:
            forms = self.ours.preparation.forms
            found = self._theirs.get_added_tokens_decoder().items()
            strings = {i: normalized(forms, each.content) if each.normalized else each.content for i, each in found}
            late = frozenset(strings[i] for i, each in found if each.normalized)
            special = {strings[i]: i for i, each in found if each.special}
            added = {strings[i]: i for i, each in found if not each.special}
            vars(self).update(_sets=SpecialSets(special, Preparation(forms, added, late)), _strings=strings)
        allowed: Any = frozenset() if self._theirs.encode_special_tokens else "all"
        return self._sets.resolve(allowed, ())[0] or _native.Preparation(None, [])

    def encode_batch(
        self, inputs: Sequence[Any], add_special_tokens: bool = True, is_pretokenized: bool = False
    ) -> list[Any]:
        """A `tokenizers.Encoding` for each text, list of words, or pair of either: HF truncates and post-processes."""
        made = []
        for row in inputs:
            is_pair = isinstance(row, list | tuple) and len(row) == 2
            if is_pretokenized:
                is_pair = is_pair and not all(isinstance(word, str) for word in row)
            first, second = row if is_pair else (row, None)
            pair = None if second is None else self._encoding(second, 1, words=is_pretokenized)
            first = self._encoding(first, 0, words=is_pretokenized)
            made.append(self._theirs.post_process(first, pair, add_special_tokens))
        padding = self._theirs.padding
        if made and padding is not None and padding["length"] is None:  # to the longest, which HF cannot know
            longest = max(len(encoding.ids) for encoding in made)
            for encoding in made:
                encoding.pad(longest, **{name: value for name, value in padding.items() if name in _FILLING})
        return made

    def _encoding(self, text: Any, type_id: int, *, words: bool) -> Any:
        """The `tokenizers.Encoding` of a text or a list of words, before truncation, post-processing and padding."""
        pieces = list(text) if words and isinstance(text, list | tuple) else [text]
        if not all(isinstance(piece, str) for piece in pieces):
            raise ValueError(
                f"text input must be of type str, list[str], or with is_split_into_words=True lists of words, not "
                f"{type(text).__name__}"
            )
        preparation = self._prepare()
        parts = [self.ours.definition.encoder.encode_spans(piece, preparation) for piece in pieces]
        ids = [i for part in parts for i in part[0].tolist()]
        numbers = [np.full(len(part[0]), n) for n, part in enumerate(parts)] if words else [part[3] for part in parts]
        columns = {
            "ids": ids,
            "type_ids": [type_id] * len(ids),
            "tokens": [self._strings.get(i) or self._theirs.id_to_token(i) for i in ids],
            "words": [number for part in numbers for number in part.tolist()],
            "offsets": [span for part in parts for span in part[2].reshape(-1, 2).tolist()],
            "special_tokens_mask": [0] * len(ids),
            "attention_mask": [1] * len(ids),
        }
        made = tokenizers.Encoding()
        made.__setstate__(json.dumps({**columns, "overflowing": [], "sequence_ranges": {}}).encode())
        return made

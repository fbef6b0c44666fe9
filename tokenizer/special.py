"""Text before the pattern cuts it: special strings, by tiktoken's rules; added tokens and normalization, by HF's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeAlias

from tokenizer import _native
from tokenizer.documents import Given, check_text
from tokenizer.errors import UserError, quoted

Allowed: TypeAlias = Set[str] | Literal["all"]
"""Special strings that become tokens."""
Disallowed: TypeAlias = Collection[str] | Literal["all"]
"""Strings that raise an error."""
END_OF_TEXT = "<|endoftext|>"
"""The special token that ends documents, unless a tokenizer has its own."""
_MOST_COMPILED = 64
_NOTHING: tuple[Collection[str], ...] = (frozenset(), ())  # sets are equal to frozen ones
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class Preparation:
    """Preparation of text by an imported tokenizer, in HF's order (`tokenizers`, `AddedVocabulary`). Usually empty.

    First, the added tokens that are not `late` are found in the original text. Then each stretch between them is
    normalized separately. Then late tokens are found in the normalized text. If several tokens start at the same
    position, the longest is taken. Special tokens that a call does not allow are found too, but stay text: no other
    token is found inside them.

    Attributes:
        forms: Unicode normalization forms, applied in order. The tables are those of HF's crate, Unicode 9.0:
            characters of later versions are unchanged, as in HF.
        added_tokens: string to id of tokens that are found in any text. They are not special: their bytes count as
            text. An ordinary token with the same bytes may have the same id.
        late: added and special tokens that are searched for in normalized text.
    """

    forms: tuple[str, ...] = ()
    added_tokens: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Reject unknown forms."""
        for form in self.forms:
            if form not in FORMS:
                raise UserError(f"unknown normalizer {quoted(form)}; the forms are: {', '.join(FORMS)}")

    def __bool__(self) -> bool:
        return bool(self.forms or self.added_tokens or self.late)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.of, (self.content(),)  # not a set, whose order differs between processes

    def content(self) -> dict[str, Any]:
        """The preparation as JSON; unused parts are omitted."""
        parts = {
            "normalizer": list(self.forms),
            "added_tokens": dict(self.added_tokens),
            "late_tokens": sorted(self.late),
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Preparation:
        """The preparation from its `content`, whose types must already be checked."""
        return cls(
            forms=tuple(content.get("normalizer", [])),
            added_tokens=dict(content.get("added_tokens", {})),
            late=frozenset(content.get("late_tokens", [])),
        )


NOTHING = Preparation()


def normalized(forms: Sequence[str], text: str) -> str:
    """Apply normalization forms to a text, in order."""
    return _native.Preparation(None, list(forms)).normalize(_native.Batch.from_texts([text])).text(0)


_Forbidden: TypeAlias = tuple[list[str], _native.SpecialStrings]
"""Strings that a text must not contain, and their compiled search."""


class SpecialSets:
    """The special tokens of a tokenizer, with a cache of compiled searches for subsets of them.

    Attributes:
        ordinary: preparation of text whose special strings are ordinary text; None if there is nothing to do.
    """

    def __init__(self, special_tokens: Mapping[str, int], preparation: Preparation = NOTHING) -> None:
        self._ids = special_tokens
        self._all = frozenset(special_tokens)
        self._rules = preparation
        self._prepare = lru_cache(_MOST_COMPILED)(self._compile_preparation)
        self._forbid = lru_cache(_MOST_COMPILED)(_compile_forbidden)
        self.ordinary = self._prepare(frozenset())

    def check(self, text: str, allowed: Allowed, disallowed: Disallowed) -> _native.Preparation | None:
        """Preparation of a text in which the allowed strings become tokens; None if there is nothing to do.

        Raises:
            UserError: the text contains a disallowed string, or an allowed one is not a special token.
        """
        preparation, forbidden = self.resolve(allowed, disallowed)
        if forbidden is not None and (found := forbidden[1].find(text)) is not None:
            _reject("the text", forbidden[0][found])
        return preparation

    def check_batch(
        self, texts: Given, allowed: Allowed, disallowed: Disallowed, threads: int
    ) -> _native.Preparation | None:
        """`check` for many texts."""
        preparation, forbidden = self.resolve(allowed, disallowed)
        if forbidden is not None and (found := forbidden[1].find_in_batch(texts, threads)) is not None:
            _reject(f"text {found[0]}", forbidden[0][found[1]])
        return preparation

    def resolve(self, allowed: Allowed, disallowed: Disallowed) -> tuple[_native.Preparation | None, _Forbidden | None]:
        """Preparation of text, and the strings that it must not contain.

        Raises:
            UserError: an allowed string is not a special token.
        """
        try:
            if allowed in _NOTHING and disallowed in _NOTHING:
                return self.ordinary, None  # the common case
        except ValueError:  # of an array, which is rejected below
            pass
        special = _as_set(allowed, "allowed_special", self._all)
        if unknown := special - self._all:
            raise UserError(
                f"{quoted(min(unknown))} is not a special token; the special tokens are: {quoted(sorted(self._all))}"
            )
        forbidden = _as_set(disallowed, "disallowed_special", self._all - special)
        return self._prepare(special), self._forbid(forbidden) if forbidden else None

    def _compile_preparation(self, allowed: frozenset[str]) -> _native.Preparation | None:
        rules = self._rules
        found: dict[str, int | None] = {string: self._ids[string] for string in sorted(allowed)}
        if rules.added_tokens:  # as in HF, tokens that are not allowed are found too, and hide tokens inside them
            found |= dict.fromkeys(sorted(self._all - allowed)) | dict(rules.added_tokens)
        if not found and not rules.forms:
            return None
        late = {string: i for string, i in found.items() if string in rules.late}
        early = {string: i for string, i in found.items() if string not in rules.late}
        listed = [(list(part), list(part.values())) if part else None for part in (early, late)]
        return _native.Preparation(listed[0], list(rules.forms), listed[1])


def _compile_forbidden(strings: frozenset[str]) -> _Forbidden:
    if "" in strings:
        raise UserError("disallowed_special contains an empty string, which occurs in every text")
    for string in strings:
        check_text(string, "a string of disallowed_special")
    return sorted(strings), _native.SpecialStrings(sorted(strings))


def _as_set(strings: Any, name: str, every: frozenset[str]) -> frozenset[str]:
    if isinstance(strings, str) and strings == "all":
        return every
    if isinstance(strings, str) or not isinstance(strings, Iterable) or not all(isinstance(s, str) for s in strings):
        raise UserError(
            f"{name}={quoted(strings)} is not a set of strings; pass one, such as {{'<|endoftext|>'}}, or 'all'"
        )
    return frozenset(strings)


def _reject(what: str, string: str) -> NoReturn:
    raise UserError(
        f"{what} contains the special string {quoted(string)}: pass allowed_special={{{quoted(string)}}} to make "
        "it a special token, or disallowed_special=() to encode it as ordinary text"
    )

"""Allowed and disallowed special strings in text, by tiktoken's rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, NoReturn

from tokenizer import _native
from tokenizer.alphabet import other_text, unprintable
from tokenizer.documents import Given, check_text
from tokenizer.errors import UserError, check_strings, quoted
from tokenizer.preparation import NOTHING, Preparation

_MOST_COMPILED = 64
_NOTHING: tuple[Collection[str], ...] = (frozenset(), ())  # sets are equal to frozen ones


_BYTES = frozenset(bytes([byte]) for byte in range(256))


def _is_all(strings: object) -> bool:
    return isinstance(strings, str) and strings == "all"


def check_special_tokens(strings: Sequence[str], ordinary: Collection[bytes] = _BYTES) -> None:
    """Reject special tokens with which a trained tokenizer could not be saved.

    Files name ordinary tokens in HF's byte alphabet and special tokens by their strings, so no special token may have
    the name of an ordinary token. Training makes no token with the bytes of a special token; this function rejects the
    other clashes.

    Args:
        strings: the special tokens.
        ordinary: bytes of the tokens that exist before training.

    Raises:
        UserError: a string is invalid; the message names it and the reason.
    """
    check_strings("special_tokens", strings)
    if len(set(strings)) < len(strings) or "" in strings:
        raise UserError(f"special_tokens={list(strings)!r} repeats a string or contains an empty one")
    for string in strings:
        check_text(string, f"the special token {string!r}")
        named = unprintable(string)
        taken = named if named is not None and named in ordinary else other_text(string)
        if taken is not None:
            raise UserError(
                f"the special token {string!r} is also how tokenizer.json writes the ordinary token {taken!r}; use "
                f"another string, such as {f'<|{string}|>'!r}"
            )


class Forbidden(NamedTuple):
    """Strings that a text must not contain, with their compiled search."""

    strings: list[str]
    finder: _native.SpecialStrings

    def check(self, text: str, what: str = "the text") -> None:
        """Check that a text contains none of the strings.

        Raises:
            UserError: the text contains one of them.
        """
        if (found := self.finder.find(text)) is not None:
            _refuse(what, self.strings[found])


class SpecialSets:
    """The special tokens of a tokenizer, with a cache of compiled searches for subsets of them."""

    def __init__(self, special_tokens: Mapping[str, int], preparation: Preparation = NOTHING) -> None:
        self._ids = special_tokens
        self._all = frozenset(special_tokens)
        self._preparation = preparation
        self._forbidden: dict[frozenset[str], Forbidden] = {}
        self._prepared: dict[frozenset[str], _native.Preparation | None] = {}
        self.ordinary = self.prepare(frozenset())
        """Preparation of text whose special strings are ordinary text; None if there is nothing to do."""

    def check(
        self, text: str, allowed: Set[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
    ) -> _native.Preparation | None:
        """Preparation of a text in which the allowed strings become tokens; None if there is nothing to do.

        Raises:
            UserError: the text contains a disallowed string, or an allowed one is not a special token.
        """
        try:
            nothing = allowed in _NOTHING and disallowed in _NOTHING
        except ValueError:  # an array, which `resolve` rejects
            nothing = False
        if nothing:
            return self.ordinary  # fast path for the common case
        preparation, forbidden = self.resolve(allowed, disallowed)
        if forbidden is not None:
            forbidden.check(text)
        return preparation

    def check_batch(
        self,
        texts: Given,
        allowed: Set[str] | Literal["all"],
        disallowed: Collection[str] | Literal["all"],
        threads: int,
    ) -> _native.Preparation | None:
        """`check` for many texts."""
        preparation, forbidden = self.resolve(allowed, disallowed)
        if forbidden is not None and (found := forbidden.finder.find_in_batch(texts, threads)) is not None:
            _refuse(f"text {found[0]}", forbidden.strings[found[1]])
        return preparation

    def resolve(
        self, allowed: Set[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
    ) -> tuple[_native.Preparation | None, Forbidden | None]:
        """Preparation of text, and the strings that it must not contain.

        Raises:
            UserError: an allowed string is not a special token.
        """
        special = self._all if _is_all(allowed) else _as_set(allowed, "allowed_special")
        if unknown := special - self._all:
            raise UserError(
                f"{quoted(min(unknown))} is not a special token; the special tokens are: {quoted(sorted(self._all))}"
            )
        if _is_all(disallowed):
            forbidden = self._all - special if special else self._all
        else:
            forbidden = _as_set(disallowed, "disallowed_special")
        return self.prepare(special), self._forbid(forbidden)

    def prepare(self, allowed: frozenset[str]) -> _native.Preparation | None:
        """Preparation of text in which these special tokens are allowed; None if there is nothing to do."""
        if allowed not in self._prepared:
            if len(self._prepared) >= _MOST_COMPILED:
                self._prepared.clear()
            self._prepared[allowed] = self._make(allowed)
        return self._prepared[allowed]

    def _make(self, allowed: frozenset[str]) -> _native.Preparation | None:
        rules = self._preparation
        found: dict[str, int | None] = {string: self._ids[string] for string in sorted(allowed)}
        if rules.added_tokens:  # as in HF, tokens that are not allowed are found too, and hide tokens inside them
            found |= dict.fromkeys(sorted(self._all - allowed)) | dict(rules.added_tokens)
        if not found and not rules.forms:
            return None
        late = {string: i for string, i in found.items() if string in rules.late}
        early = {string: i for string, i in found.items() if string not in rules.late}
        listed = [(list(part), list(part.values())) if part else None for part in (early, late)]
        return _native.Preparation(listed[0], list(rules.forms), listed[1])

    def _forbid(self, strings: frozenset[str]) -> Forbidden | None:
        if not strings:
            return None
        compiled = self._forbidden.get(strings)
        if compiled is None:
            if "" in strings:
                raise UserError("disallowed_special contains an empty string, which occurs in every text")
            listed = sorted(strings)
            for string in listed:
                check_text(string, "a string of disallowed_special")
            compiled = Forbidden(listed, _native.SpecialStrings(listed))
            if len(self._forbidden) >= _MOST_COMPILED:
                self._forbidden.clear()
            self._forbidden[strings] = compiled
        return compiled


def _as_set(strings: Any, name: str) -> frozenset[str]:
    if isinstance(strings, str):
        raise UserError(f"{name}={quoted(strings)} is one string; pass a set of them, {{{quoted(strings)}}}, or 'all'")
    if not isinstance(strings, Iterable) or not all(isinstance(string, str) for string in strings):
        raise UserError(
            f"{name}={quoted(strings)} is not a set of strings; pass one, such as {{'<|endoftext|>'}}, or 'all'"
        )
    return strings if isinstance(strings, frozenset) else frozenset(strings)


def _refuse(what: str, string: str) -> NoReturn:
    raise UserError(
        f"{what} contains the special string {quoted(string)}: pass allowed_special={{{quoted(string)}}} to make "
        "it a special token, or disallowed_special=() to encode it as ordinary text"
    )

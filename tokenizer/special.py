"""Which special strings a text may hold: tiktoken's rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, NoReturn

from tokenizer import _native
from tokenizer.alphabet import other_text, unprintable
from tokenizer.documents import Given, check_text
from tokenizer.errors import UserError, quoted
from tokenizer.preparation import NOTHING, Preparation

_MOST_COMPILED = 64
_NOTHING: tuple[Collection[str], ...] = (frozenset(), ())  # sets are equal to frozen ones


_BYTES = frozenset(bytes([byte]) for byte in range(256))


def check_special_tokens(strings: Sequence[str], ordinary: Collection[bytes] = _BYTES) -> None:
    """Reject special tokens with which a training could not be saved.

    Files name tokens in HF's byte alphabet and special tokens by their strings, so no special token may have the name
    of an ordinary one. Training makes no token with the bytes of a special token; the other names are rejected here.

    Args:
        strings: the special tokens.
        ordinary: bytes of the tokens that there are before training.

    Raises:
        UserError: names the string and the reason.
    """
    if isinstance(strings, str) or not all(isinstance(string, str) for string in strings):
        raise UserError(f"special_tokens={strings!r} is not a list of strings")
    if len(set(strings)) < len(strings) or "" in strings:
        raise UserError(f"special_tokens={list(strings)!r} repeats a string or holds an empty one")
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
    """Strings that no text may hold, and what finds them."""

    strings: list[str]
    finder: _native.SpecialStrings

    def check(self, text: str, what: str = "the text") -> None:
        """Refuse a text that holds one of them.

        Raises:
            UserError: it does.
        """
        if (found := self.finder.find(text)) is not None:
            _refuse(what, self.strings[found])


class SpecialSets:
    """The special tokens of a tokenizer; keeps the searches that it made for sets of them."""

    def __init__(self, special_tokens: Mapping[str, int], preparation: Preparation = NOTHING) -> None:
        self._ids = special_tokens
        self._all = frozenset(special_tokens)
        self._preparation = preparation
        self._forbidden: dict[frozenset[str], Forbidden] = {}
        self._prepared: dict[frozenset[str], _native.Preparation | None] = {}
        self.ordinary = self.prepare(frozenset())
        """What happens to text in which special strings are ordinary text; None for nothing."""

    def check(
        self, text: str, allowed: Set[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
    ) -> _native.Preparation | None:
        """What happens to the text, in which the allowed strings become tokens; None for nothing.

        Raises:
            UserError: the text holds a disallowed string, or an allowed one is no special token.
        """
        if allowed in _NOTHING and disallowed in _NOTHING:
            return self.ordinary  # the usual case of many calls in a row
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
        """What happens to text, and what it must not hold.

        Raises:
            UserError: an allowed string is no special token.
        """
        special = self._all if allowed == "all" else _as_set(allowed, "allowed_special")
        if unknown := special - self._all:
            raise UserError(f"{quoted(min(unknown))} is no special token; there are {quoted(sorted(self._all))}")
        if disallowed == "all":
            forbidden = self._all - special if special else self._all
        else:
            forbidden = _as_set(disallowed, "disallowed_special")
        return self.prepare(special), self._forbid(forbidden)

    def prepare(self, allowed: frozenset[str]) -> _native.Preparation | None:
        """What happens to text in which these special tokens are allowed; None for nothing."""
        if allowed not in self._prepared:
            if len(self._prepared) >= _MOST_COMPILED:
                self._prepared.clear()
            self._prepared[allowed] = self._make(allowed)
        return self._prepared[allowed]

    def _make(self, allowed: frozenset[str]) -> _native.Preparation | None:
        rules = self._preparation
        found: dict[str, int | None] = {string: self._ids[string] for string in sorted(allowed)}
        if rules.added_tokens:  # then, as in HF, what is not allowed is found as well, and hides what is inside it
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
                raise UserError("disallowed_special holds an empty string, which every text does")
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
        raise UserError(f"{name}={quoted(strings)} is no set of strings; pass one, as {{'<|endoftext|>'}}, or 'all'")
    return strings if isinstance(strings, frozenset) else frozenset(strings)


def _refuse(what: str, string: str) -> NoReturn:
    raise UserError(
        f"{what} contains the special string {quoted(string)}: pass allowed_special={{{quoted(string)}}} to make "
        "it a special "
        "token, or disallowed_special=() to encode it as ordinary text"
    )

"""Which special strings a text may hold: tiktoken's rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Literal, NamedTuple, NoReturn

from tokenizer import _native
from tokenizer.documents import Given
from tokenizer.errors import UserError

_MOST_COMPILED = 64


class _Compiled(NamedTuple):
    strings: list[str]
    finder: _native.SpecialStrings


class SpecialSets:
    """The special tokens of a tokenizer; keeps the searches that it made for sets of them."""

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        self._ids = special_tokens
        self._all = frozenset(special_tokens)
        self._compiled: dict[frozenset[str], _Compiled] = {}

    def check(
        self, text: str, allowed: Set[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
    ) -> _native.SpecialStrings | None:
        """What finds the allowed strings, if there are any.

        Raises:
            UserError: the text holds a disallowed string, or an allowed one is no special token.
        """
        if not allowed and not disallowed and disallowed != "":
            return None  # the usual case of many calls in a row
        finder, forbidden = self._resolve(allowed, disallowed)
        if forbidden is not None and (found := forbidden.finder.find(text)) is not None:
            _refuse("the text", forbidden.strings[found])
        return finder

    def check_batch(
        self,
        texts: Given,
        allowed: Set[str] | Literal["all"],
        disallowed: Collection[str] | Literal["all"],
        threads: int,
    ) -> _native.SpecialStrings | None:
        """`check` for many texts."""
        finder, forbidden = self._resolve(allowed, disallowed)
        if forbidden is not None and (found := forbidden.finder.find_in_batch(texts, threads)) is not None:
            _refuse(f"text {found[0]}", forbidden.strings[found[1]])
        return finder

    def _resolve(
        self, allowed: Set[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
    ) -> tuple[_native.SpecialStrings | None, _Compiled | None]:
        special = self._all if allowed == "all" else _as_set(allowed, "allowed_special")
        if unknown := special - self._all:
            raise UserError(f"{min(unknown)!r} is no special token; there are {sorted(self._all)}")
        if disallowed == "all":
            forbidden = self._all - special if special else self._all
        else:
            forbidden = _as_set(disallowed, "disallowed_special")
        compiled = self._compile(special)
        return None if compiled is None else compiled.finder, self._compile(forbidden)

    def _compile(self, strings: frozenset[str]) -> _Compiled | None:
        if not strings:
            return None
        compiled = self._compiled.get(strings)
        if compiled is None:
            if "" in strings:
                raise UserError("disallowed_special holds an empty string, which every text does")
            listed = sorted(strings)
            ids = [self._ids.get(string, 0) for string in listed]  # what is no special token is only looked for
            compiled = _Compiled(listed, _native.SpecialStrings(listed, ids))
            if len(self._compiled) >= _MOST_COMPILED:
                self._compiled.clear()
            self._compiled[strings] = compiled
        return compiled


def _as_set(strings: Collection[str], name: str) -> frozenset[str]:
    if isinstance(strings, str):
        raise UserError(f"{name}={strings!r} is one string; pass a set of them, {{{strings!r}}}, or 'all'")
    return strings if isinstance(strings, frozenset) else frozenset(strings)


def _refuse(what: str, string: str) -> NoReturn:
    raise UserError(
        f"{what} contains the special string {string!r}: pass allowed_special={{{string!r}}} to make it a special "
        "token, or disallowed_special=() to encode it as ordinary text"
    )

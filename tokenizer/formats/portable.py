r"""Regexes that HF's engine (Oniguruma with Ruby's syntax) interprets as ours does: an allow-list of syntax.

Both engines compile more than this list. It excludes syntax that one of them interprets differently or not at all:
`^` and `$`, which match at any line end in Oniguruma; `\w`, `\b` and `\h`, which match other characters; `{n}?`, which
is optional in Oniguruma, and `{n,m}+`, which is a repetition; two quantifiers in a row; names in `[[:...:]]`; `--`,
`~~` and `&&` in classes; and, in `(?i:...)`, anything that folds to several characters, such as `ss` and `ß`.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizer.patterns import Pattern

CATEGORIES = (
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No"),
    *("P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf"),
)
SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Ethiopic", "Devanagari"),
    *("Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Tibetan"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Mongolian"),
)
_SET = rf"\\(?:[sSdD]|[pP]\{{(?:{'|'.join((*CATEGORIES, *SCRIPTS))})\}})"
_ESCAPED = r"\\(?:[rntf]|u[0-9A-Fa-f]{4}|[!-/:;=?@\[-`{-~])"
_MEMBER = rf"(?:{_SET}|(?:{_ESCAPED}|[^\\\[\]-])(?:-(?:{_ESCAPED}|[^\\\[\]-]))?)"
_CLASS = rf"\[\^?-?(?:{_MEMBER}|\[(?!:)\^?-?{_MEMBER}+-?\])+-?\]"
_FOLDED = r"(?:['’ ]?\[[A-Za-z]+\]|['’ A-Za-z]*)"
_TOKEN = re.compile(
    rf"(?P<folded>\(\?i:{_FOLDED}(?:\|{_FOLDED})*\))|(?P<open>\((?:\?(?:[:=!>]|<[=!]))?(?!\?))|(?P<end>[|)])"
    rf"|(?P<set>{_SET})|(?P<character>{_ESCAPED}|[^\\^$*+?{{}}\[\]()|])|(?P<class>{_CLASS})"
)
_QUANTIFIER = re.compile(r"[*+?][?+]?|\{0*[1-9][0-9]{0,2}\}|\{([0-9]{1,3}),([0-9]{1,3})?\}\??")
_LIGATURES = re.compile("f[fil]|s[st]", re.IGNORECASE)  # the pairs of ASCII letters that fold to one character
_OPERATOR = re.compile("&&|~~|--")
_DEEPEST = 20


def unportable_part(pattern: Pattern) -> str | None:
    """The part of a pattern that HF's engine may interpret differently from ours; None if there is none."""
    parts = (_unportable(regex) for regex in pattern.regex.split("\n"))
    return next((repr(part) for part in parts if part is not None), None)


def _unportable(regex: str) -> str | None:
    """The first part of a regex with syntax that is not on the allow-list."""
    at = 0
    groups: list[int] = []  # starts of the open groups
    while at < len(regex):
        start = at
        token = _TOKEN.match(regex, at)
        if token is None:
            return regex[at : at + (2 if regex[at] == "\\" else 1)]
        at = token.end()
        behind = bool(groups) and regex.startswith(("(?<=", "(?<!"), groups[-1])
        if token["folded"] and (behind or _LIGATURES.search(re.sub(r"\[.*?\]", "", token[0][4:-1]))):
            return token[0]
        if token["open"]:
            if behind or len(groups) == _DEEPEST:
                return token[0]
            groups.append(start)
            continue
        if token["end"] == "|":
            continue
        if token["end"]:
            if not groups:
                return ")"
            start = groups.pop()
            behind = False
        if token["class"] and _OPERATOR.search(token[0]):
            return token[0]
        if quantifier := _QUANTIFIER.match(regex, at):
            at = quantifier.end()
            # Engines differ in how they leave a loop over empty matches.
            repeated = regex[start : quantifier.start()]
            least, most = (int(number or -1) for number in quantifier.groups())
            if behind or least >= most != -1 or regex[at : at + 1] in tuple("*+?{") or may_be_empty(repeated):
                return regex[start : at + 1]
    return regex[groups[-1] :] if groups else None


def may_be_empty(regex: str) -> bool:
    """Whether a regex can match the empty string; True if unknown."""
    # The standard library's parser computes the minimum width of a match, but has no Unicode classes.
    plain = re.sub(r"\\[pP](\{[^}]*\}|\w)", r"\\w", regex)
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # it takes no nested classes
            return bool(re._parser.parse(plain).getwidth()[0] == 0)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        return True

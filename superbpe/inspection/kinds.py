"""Kinds of superwords by content: function words, content words, punctuation, code, digits."""

from __future__ import annotations

import regex

KINDS = (
    "",
    "line breaks and wide spaces",
    "digits",
    "code",
    "punctuation",
    "function words only",
    "function and content words",
    "content words only",
)
"""Kinds of superwords; the first match counts. A token's `kind` is an index into this, 0 for other tokens."""

_ENGLISH = """
a an the this that these those some any no each every all both either neither such another other i you he she it
we they me him her us them my your his its our their mine yours hers ours theirs myself yourself himself herself
itself ourselves themselves who whom whose which what one and or but nor so yet for if then else than because
although though while whereas unless until since when where why how whether as of in on at by to from with
without within into onto upon over under above below between among through during before after about against
across along around behind beside beyond near off out up down toward towards per via am is are was were be been
being have has had having do does did doing will would shall should can could may might must not n't there here
also just only very too more most much many few less least own same again once ever never don't doesn't didn't
isn't aren't wasn't weren't can't couldn't won't wouldn't it's i'm you're we're they're that's
"""

FUNCTION_WORDS = frozenset(_ENGLISH.split())
"""English articles, pronouns, conjunctions, prepositions, auxiliaries and common adverbs. Superwords of other languages
count as content words."""

_LINES = regex.compile(r"[\n\r\t\v\f]|\s\s")
_DIGITS = regex.compile(r"\p{N}")
_CODE = regex.compile(r"[{}\[\]()<>=+*/\\|&^%$#@~_;`]|\p{Ll}\p{Lu}|\w[.:]{1,2}\w")
_PUNCTUATION = regex.compile(r"[^\s\p{L}\p{M}\p{N}'’]")


def kind(text: str) -> int:
    """The kind of a superword, an index into `KINDS`.

    >>> [KINDS[kind(text)] for text in (" of the", " in the world", " = {", ", and", " in 19")]
    ['function words only', 'function and content words', 'code', 'punctuation', 'digits']
    """
    for index, found in ((1, _LINES), (2, _DIGITS), (3, _CODE), (4, _PUNCTUATION)):
        if found.search(text):
            return index
    known = [word in FUNCTION_WORDS for word in text.lower().replace("’", "'").split()]
    return 5 if known and all(known) else 6 if any(known) else 7

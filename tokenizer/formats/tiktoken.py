r"""tiktoken's ranks: a file of base64 tokens and ranks; pattern and special tokens beside it.

tiktoken merges whatever two neighbours spell a token together, the lowest rank first, and takes a whole piece that is
a token as it is. The first is the same as a list with one merge per token: into the two parts in which the token's
own bytes end up (`recover_merges` in native/src/encode/rules.rs says why). The second is `ignore_merges`.
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, patterns
from tokenizer.alphabet import missing_byte
from tokenizer.definition import Definition, Described, Stored
from tokenizer.errors import UserError, quoted
from tokenizer.formats.cuts import COVERING
from tokenizer.formats.text import read_text
from tokenizer.patterns import Pattern
from tokenizer.preparation import refuse
from tokenizer.spelling import MOST_IDS, NO_TOKEN


def parse(path: Path) -> dict[bytes, int]:
    """The ranks of a .tiktoken file.

    Raises:
        UserError: it is missing or damaged.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            spelled = base64.b64decode(token, validate=True)
            found = _digits(rank)
        except (ValueError, binascii.Error):
            raise UserError(f"{path}, line {number}: {quoted(line[:80])} is not a base64 token and its rank") from None
        if spelled in ranks or not spelled:
            raise UserError(f"{path}, line {number}: the token {quoted(spelled)} is empty or there twice")
        ranks[spelled] = found
    return ranks


def _digits(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):  # int() also takes signs and underscores
        raise ValueError(text)
    return int(text)


def from_ranks(
    ranks: Mapping[bytes, int],
    *,
    pattern: str | Pattern,
    special_tokens: Mapping[str, int] | None = None,
) -> Stored:
    """The tokenizer that gives tiktoken's ids.

    Args:
        ranks: of every token's bytes; they are its ids.
        pattern: the name of a pattern, or tiktoken's `pat_str`. Text that a regex does not match, which tiktoken drops,
            becomes pieces of its own.
        special_tokens: string to id.

    Raises:
        UserError: a byte is no token, or ranks are taken twice or out of range.
    """
    if wrong := [token for token, rank in ranks.items() if not 0 <= rank < MOST_IDS]:
        raise UserError(
            f"the rank {ranks[wrong[0]]} of {quoted(wrong[0])} is out of range: ranks are ids, from 0 to {MOST_IDS - 1}"
        )
    if (pair := prefix_pair(special_tokens or {})) is not None:
        warnings.warn(
            f"the special token {pair[0]!r} begins another one, {pair[1]!r}: in a text that holds both, the longer is "
            "found here, and tiktoken may find the shorter",
            stacklevel=2,
        )
    ordered = sorted(ranks, key=ranks.__getitem__)
    if missing := missing_byte(lambda byte: bytes([byte]) in ranks):
        raise UserError(f"the ranks are not byte-level: {missing}")
    # A published pattern is a named one in another spelling, which engines other than tiktoken's read otherwise.
    pattern = patterns.equivalent(pattern) or patterns.resolve(pattern)
    ids = np.array([ranks[token] for token in ordered], dtype=np.int64)
    parts = _native.Encoder.recover_merges(ordered).reshape(-1, 2)
    made = parts[:, 0] != np.iinfo(np.uint32).max
    merges = np.column_stack([ids[parts[made]], ids[made]])
    definition = Definition(
        byte_ids=[ranks.get(bytes([byte]), NO_TOKEN) for byte in range(256)],
        merge_ids=merges.astype(np.uint32),
        n_phase1_merges=len(merges),
        pattern=pattern,
        special_tokens=dict(special_tokens or {}),
        ignore_merges=True,
        unmerged={
            token: ranks[token] for token, is_made in zip(ordered, made, strict=True) if len(token) > 1 and not is_made
        },
    )
    return Stored(definition, {"imported": {"format": "tiktoken"}})


def from_encoding(encoding: Any) -> Stored:
    """The tokenizer that gives the ids of a `tiktoken.Encoding`."""
    return from_ranks(encoding._mergeable_ranks, pattern=encoding._pat_str, special_tokens=encoding._special_tokens)


def export(tokenizer: Described) -> dict[str, Any]:
    """`pat_str`, `mergeable_ranks` and `special_tokens` with which tiktoken gives the same ids.

    Raises:
        UserError: it would not, for the reason named.
    """
    definition = tokenizer.definition
    if definition.mode != "one-pass":
        raise UserError("a two-pass tokenizer cannot be written for tiktoken, which knows one pass")
    refuse(definition.preparation, "the tokenizer cannot be written for tiktoken, which encodes text as it is")
    if (pair := prefix_pair(definition.special_tokens)) is not None:
        raise UserError(
            f"the tokenizer cannot be written for tiktoken: its special token {pair[0]!r} begins another one, "
            f"{pair[1]!r}, and in a text that holds both tiktoken may find the shorter. Write it as hf"
        )
    ordinary = definition.ordinary_ids()
    ranks = {definition.vocab[i]: i for i in ordinary.tolist()}
    # tiktoken also merges two parts for which there is no merge here, if their bytes together are a token. No token's
    # own bytes may end up as two parts: then its merges are ours, and ours all of them.
    in_tokens = definition.encoder.tokens_in_tokens()
    _check_order(definition, in_tokens == 1)
    parts = in_tokens[ordinary]
    if (parts == 2).any():
        token = definition.vocab[ordinary[int(np.flatnonzero(parts == 2)[0])]]
        raise UserError(
            f"the tokenizer cannot be written for tiktoken: merges leave {quoted(token)} in two parts, which "
            "tiktoken would "
            f"join since it is a token ({int((parts == 2).sum())} such tokens). Write it as hf"
        )
    if not definition.ignore_merges and (parts > 1).any():
        token = definition.vocab[ordinary[int(np.flatnonzero(parts > 1)[0])]]
        raise UserError(
            f"the tokenizer cannot be written for tiktoken: merges never make the token {quoted(token)}, but "
            "tiktoken takes "
            f"a whole pretoken that is a token as it is ({int((parts > 1).sum())} such tokens). Write it as hf"
        )
    return {
        "pat_str": covering(definition.fence or definition.pattern),
        "mergeable_ranks": dict(sorted(ranks.items(), key=lambda item: item[1])),
        "special_tokens": dict(definition.special_tokens),
    }


def prefix_pair(special_tokens: Collection[str]) -> tuple[str, str] | None:
    """A special token and a longer one that begins with it; None if there are none.

    tiktoken looks for special tokens by a regex with an alternative for each, in the order of a hash table. At a place
    of the text the first alternative that matches is taken, here (as in HF) the longest.
    """
    ordered = sorted(special_tokens)  # the strings that begin with another one follow it directly
    return next(((one, other) for one, other in pairwise(ordered) if other.startswith(one)), None)


def _check_order(definition: Definition, made: npt.NDArray[np.bool_]) -> None:
    """There one number is a token's id and the rank of its merge. `made`: by id, whether merges make it."""
    products = definition.merge_ids[definition.encoder.live_merges(), 2].astype(np.int64)
    products = products[made[products]]
    wrong = np.flatnonzero(np.diff(products) < 0)
    if len(wrong):
        first, second = (definition.vocab[i] for i in products[wrong[0] : wrong[0] + 2])
        raise UserError(
            f"the tokenizer cannot be written for tiktoken: there ids are ranks, and {quoted(second)} has a lower "
            "id than "
            f"{quoted(first)}, which is merged before it. Write it as hf"
        )


def covering(pattern: Pattern) -> str:
    r"""A regex whose matches are a pattern's pieces: its matches, and the gaps between them, which tiktoken would drop.

    A gap goes on as long as the pattern does not match at the next character.

    Raises:
        UserError: the pattern cannot be written as one regex that matches everything.
    """
    regex = pattern.regex
    known = patterns.equivalent(pattern)
    if regex in COVERING or (known is not None and known.regex in COVERING):
        return regex
    if not regex:
        return r"[\s\S]+"
    if "\n" in regex:
        raise UserError(
            f"the pattern {pattern.name} cannot be written for tiktoken: it cuts in several steps, and tiktoken in one"
        )
    if _may_be_empty(regex):
        raise UserError(
            f"the pattern {quoted(regex)} cannot be written for tiktoken: it can match nothing between two "
            "characters, which "
            "cuts here and is dropped there"
        )
    return rf"{regex}|(?:(?!{regex})[\s\S])+"


def _may_be_empty(regex: str) -> bool:
    """Whether a regex can match the empty string somewhere; also where that cannot be told."""
    # The standard library's parser knows the least width of a match, but no Unicode classes.
    plain = re.sub(r"\\[pP](\{[^}]*\}|\w)", r"\\w", regex)
    try:
        return bool(re._parser.parse(plain).getwidth()[0] == 0)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        return True


def to_encoding(tokenizer: Described, name: str = "superbpe") -> Any:
    """A `tiktoken.Encoding` that gives the same ids.

    Raises:
        UserError: there is none, or tiktoken is not installed.
    """
    parts = export(tokenizer)
    try:
        import tiktoken
    except ImportError:
        raise UserError("tiktoken is not installed: pip install tiktoken") from None
    return tiktoken.Encoding(name, **parts)


def file_text(ranks: Mapping[bytes, int]) -> str:
    """The content of a .tiktoken file."""
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())

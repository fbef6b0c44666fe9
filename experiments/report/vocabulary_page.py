"""The page of a vocabulary report: its numbers, and the tokenizers packed for search and live segmentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report import page
from experiments.report.packing import pack
from experiments.report.vocabulary import numbers
from superbpe.inspection import measures, tokens
from superbpe.inspection.tokens import KINDS
from tokenizer.patterns import equivalent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from experiments.report.vocabulary import Side
    from tokenizer.tokenizer import Tokenizer

# The same flags as in vocabulary.js.
_SUPERWORD, _PARTIAL, _SPECIAL, _UNREACHABLE, _UNUSED, _PHASE2, _RESIDUE = (1 << bit for bit in range(7))
# Escapes that JavaScript does not know or reads as other characters, and what our engine means.
_CLASSES = {"s": r"\p{White_Space}", "S": r"\P{White_Space}", "d": r"\p{Nd}", "D": r"\P{Nd}", '"': '"'}


def render(report: dict[str, Any], sides: Sequence[Side]) -> str:
    """Return the page."""
    packed = {
        str(i): _packed(one, [other for other in sides if other is not one], report["sample"])
        for i, one in enumerate(sides)
    }
    packed["contexts"] = _packed_contexts(sides[0])
    return page.render(
        "vocabulary.html",
        title=report["title"],
        packed=packed,
        report=report,
        numbers=numbers(report),
        kinds=page.script_json(list(KINDS)),
        about=page.script_json({"text": report["text"], "labels": [row["label"] for row in report["tokenizers"]]}),
    )


def to_javascript(tokenizer: Tokenizer) -> list[str] | None:
    """Regexes of a named pattern that cut a text as the tokenizer does, in order; None if there is no such pattern.

    A regex of a tokenizer's own is never run in a browser: it might take hours, and mean something else there.
    """
    named = equivalent(tokenizer.pattern if tokenizer.fence is None else tokenizer.fence)
    if tokenizer.mode == "two-pass" or named is None:
        return None
    sources = named.regex.split("\n") if named.regex else []
    return [re.sub(r"\\(.)", lambda match: _CLASSES.get(match[1], match[0]), source) for source in sources]


def _packed(one: Side, others: Sequence[Side], sample: str) -> str:
    tokenizer, about = one.tokenizer, one.tokens
    flags = (
        about.superword * _SUPERWORD
        + about.partial * _PARTIAL
        + about.special * _SPECIAL
        + one.unreachable * _UNREACHABLE
        + about.unused * _UNUSED
        + (about.phase == 2) * _PHASE2
    )
    group = np.zeros(len(flags), dtype=np.int64)
    for number, members in enumerate(one.near_duplicates, start=1):
        group[members] = number
    # Bit i: the i-th of the others lacks the token.
    missing = sum(tokens.missing(tokenizer, about, other.tokenizer) << i for i, other in enumerate(others))
    special = set(tokenizer.special_tokens.values())
    vocab = [b"" if i in special else token for i, token in enumerate(tokenizer.vocab)]
    columns: dict[str, npt.ArrayLike] = {
        "byteIds": np.asarray(tokenizer.byte_ids, dtype=np.int64) + 1,
        "left": tokenizer.merge_ids[:, 0],
        "right": tokenizer.merge_ids[:, 1],
        "made": tokenizer.merge_ids[:, 2],
        "lengths": np.fromiter(map(len, vocab), dtype=np.int64, count=len(vocab)),
        "bytes": np.frombuffer(b"".join(vocab), dtype=np.uint8),
        "ordinary": np.sort(tokenizer.ordinary_ids()) if tokenizer.ignore_merges else np.empty(0, dtype=np.int64),
        "sample": tokenizer.encode_ordinary(sample),
        "missing": missing + np.zeros_like(flags),
        "flags": flags,
        "kind": about.kind,
        "group": group,
        "rank": about.rank + 1,
    }
    facts: dict[str, Any] = {
        "pattern": to_javascript(tokenizer),
        "phases": tokenizer.n_phase1_merges < len(tokenizer.merge_ids),
        "specials": {str(i): string for string, i in tokenizer.special_tokens.items()},
    }
    if one.encoded is not None:
        columns["count"] = one.encoded.counts
        facts["tokens"] = len(one.encoded.ids)
    if (inside := one.occurrences) is not None:
        columns |= {"inside": inside.inside, "host": inside.host + 1, "place": inside.place}
        columns["flags"] = flags + inside.residue * _RESIDUE
    return pack(facts, columns)


def _packed_contexts(one: Side) -> str:
    if one.encoded is None:
        return ""
    contexts = measures.contexts(one.encoded, one.tokens, per_token=3, reach=48, most_bytes=6_000_000)
    columns: dict[str, npt.ArrayLike] = {
        "text": contexts.data,
        "starts": contexts.starts,
        "tokens": contexts.tokens,
        "places": contexts.places,
    }
    return pack({"reach": contexts.reach}, columns)

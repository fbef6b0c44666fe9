"""The page of a vocabulary report: its numbers, and the tokenizers packed for search and live segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report import findings, page
from experiments.report.engine import engine
from experiments.report.packing import pack
from experiments.report.vocabulary import Settings
from experiments.report.vocabulary_charts import figures
from superbpe.inspection import measures, tokens
from superbpe.inspection.tokens import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from experiments.report.vocabulary import Side

# The same flags as in vocabulary.js.
_SUPERWORD, _PARTIAL, _SPECIAL, _UNREACHABLE, _UNUSED, _PHASE2 = (1 << bit for bit in range(6))


def render(report: dict[str, Any], sides: Sequence[Side]) -> str:
    """Return the page."""
    settings = Settings(**report["settings"])
    packed = {str(i): _packed(one, [other for other in sides if other is not one]) for i, one in enumerate(sides)}
    packed["contexts"] = _packed_contexts(sides[0], settings)
    return page.render(
        "vocabulary.html",
        title=report["title"],
        figures=figures(report),
        packed=packed,
        report=report,
        findings=findings.vocabulary(report),
        kinds=page.script_json(list(KINDS)),
        about=page.script_json({"text": report["text"], "labels": [row["label"] for row in report["tokenizers"]]}),
    )


def _packed(one: Side, others: Sequence[Side]) -> str:
    facts, columns = engine(one.tokenizer)
    about = one.tokens
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
    missing = sum(tokens.missing(one.tokenizer, about, other.tokenizer) << i for i, other in enumerate(others))
    columns |= {
        "missing": missing + np.zeros_like(flags),
        "flags": flags,
        "kind": about.kind,
        "group": group,
        "rank": about.rank + 1,
    }
    if one.trained is not None:
        # Counts plus one, with 0 for unknown, split into low and high 32 bits.
        columns |= {"trained": (one.trained + 1) & 0xFFFFFFFF, "trainedHigh": (one.trained + 1) >> 32}
    if one.encoded is not None:
        columns["count"] = one.encoded.counts
        facts["tokens"] = len(one.encoded.ids)
    facts["phases"] = one.tokenizer.n_phase1_merges < len(one.tokenizer.merge_ids)
    facts["specials"] = {str(i): string for string, i in one.tokenizer.special_tokens.items()}
    return pack(facts, columns)


def _packed_contexts(one: Side, settings: Settings) -> str:
    if one.encoded is None:
        return ""
    found = measures.contexts(
        one.encoded,
        one.tokens,
        per_token=settings.contexts,
        reach=settings.context_bytes,
        most_bytes=settings.most_context_bytes,
    )
    columns: dict[str, npt.ArrayLike] = {
        "text": found.data,
        "starts": found.starts,
        "tokens": found.tokens,
        "places": found.places,
    }
    return pack({"reach": found.reach}, columns)

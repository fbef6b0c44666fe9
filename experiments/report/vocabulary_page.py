"""The page of a vocabulary report: its numbers, and both tokenizers packed for search and live segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report import page
from experiments.report.engine import engine
from experiments.report.packing import pack
from experiments.report.vocabulary import Settings
from experiments.report.vocabulary_charts import figures
from superbpe.inspection import contexts, tokens
from superbpe.inspection.kinds import KINDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from experiments.report.vocabulary import Side

# As in vocabulary.js.
_SUPERWORD, _PARTIAL, _SPECIAL, _UNREACHABLE, _UNUSED, _MISSING, _PHASE2 = (1 << bit for bit in range(7))


def render(report: dict[str, Any], first: Side, second: Side | None) -> str:
    """Return the page."""
    settings = Settings(**report["settings"])
    packed = {"first": _packed(first, second), "second": "" if second is None else _packed(second, first)}
    packed["contexts"] = _packed_contexts(first, settings)
    return page.render(
        "vocabulary.html",
        title=report["title"],
        figures=figures(report),
        packed=packed,
        report=report,
        kinds=page.script_json(list(KINDS)),
        about=page.script_json({"text": report["text"], "labels": [row["label"] for row in report["tokenizers"]]}),
    )


def _packed(one: Side, other: Side | None) -> str:
    facts, columns = engine(one.tokenizer)
    about = one.tokens
    missing = tokens.missing(one.tokenizer, about, other.tokenizer) if other else np.zeros_like(about.special)
    flags = (
        about.superword * _SUPERWORD
        + about.partial * _PARTIAL
        + about.special * _SPECIAL
        + one.unreachable * _UNREACHABLE
        + about.unused * _UNUSED
        + missing * _MISSING
        + (about.phase == 2) * _PHASE2
    )
    group = np.zeros(len(flags), dtype=np.int64)
    for number, members in enumerate(one.near_duplicates, start=1):
        group[members] = number
    columns |= {"flags": flags, "kind": about.kind, "group": group, "rank": about.rank + 1}
    if one.trained is not None:
        # In 32 bits, with 0 for unknown; a column of high halves where a corpus was that large.
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
    found = contexts.contexts(
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

"""The page of a fertility report: tokens that tokenizers need for a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.cli.console import percent, si, signed
from experiments.report import charts, page
from experiments.report.figures import Figure
from experiments.verdict import loses_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


GROUPS_DRAWN = 12
"""Most sources or scripts in a chart; the tables have all of them."""
WITHOUT_SPACES = ("Han", "Japanese", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")
"""Scripts of text without spaces between words, where a whitespace-separated word is a clause or a sentence."""
PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
SERVING = {
    "prefill_flops_per_byte": "reading: FLOPs per byte",
    "decode_flops_per_byte": "decoding: FLOPs per byte",
    "prefill_seconds_per_byte": "reading: µs per byte",
    "decode_seconds_per_byte": "decoding: µs per byte",
    "cache_bytes_per_byte": "KV cache: bytes per byte",
}
"""Measures of the cost of serving, and their names."""


def render(report: Mapping[str, Any]) -> str:
    """Return the page for the numbers of `fertility.json`."""
    groups = {
        by: list(dict.fromkeys(row["group"] for row in report["rows"] if row["by"] == by))
        for by in ("all", "kind", "source", "script")
    }
    return page.render(
        "fertility.html",
        title=report["title"],
        figures=figures(report),
        report=report,
        groups={by: names for by, names in groups.items() if by != "all" and len(names) > 1},
        rows={(row["by"], row["group"], row["tokenizer"]): row for row in report["rows"]},
        headline=headline(report),
        notes=notes(report),
        without_spaces=[name for name in groups["script"] if name in WITHOUT_SPACES],
        with_interval=with_interval,
        premium=premium,
        lost=lost,
        priced=priced,
        serving=SERVING,
    )


def headline(report: Mapping[str, Any]) -> str:
    """The tokenizer that needs the fewest tokens without losing text, against the reference."""
    overall = [row for row in report["rows"] if row["by"] == "all"]
    kept = [row for row in overall if not loses_text(row)]
    best = min(kept or overall, key=lambda row: row["tokens"])
    if len(overall) == 1:
        return f"{best['tokenizer']} needs a token per {best['bytes_per_token']:.3f} bytes."
    reference = next(row for row in overall if row["tokenizer"] == report["reference"])
    if best is reference or (best["parity_low"] is not None and best["parity_high"] >= 1):
        found = f"{reference['tokenizer']}: {reference['bytes_per_token']:.3f} bytes per token"
        return f"No tokenizer needs significantly fewer tokens than {found}."
    return (
        f"{best['tokenizer']} needs the fewest tokens, {premium(best)} against {reference['tokenizer']}: "
        f"{best['bytes_per_token']:.3f} bytes per token."
    )


def premium(row: Mapping[str, Any]) -> str:
    """Tokens against the reference: the change in percent, and half its interval."""
    if row["parity"] is None:
        return "–"
    change = f"{signed(100 * (row['parity'] - 1), 1)}\N{NO-BREAK SPACE}%"
    low, high = row["parity_low"], row["parity_high"]
    return change if low is None else f"{change}{PLUS_MINUS}{50 * (high - low):.1f}"


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """A measure and half its interval."""
    if row[name] is None:
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" if low is None else f"{row[name]:.3f}{PLUS_MINUS}{(high - low) / 2:.3f}"


def priced(row: Mapping[str, Any], reference: Mapping[str, Any], name: str) -> str:
    """A cost of serving and its change against the reference; empty if a tokenizer gives no tokens."""
    if row[name] is None or reference[name] is None:
        return ""
    change = f" ({signed(100 * (row[name] / reference[name] - 1), 1)}\N{NO-BREAK SPACE}%)"
    shown = f"{1e6 * row[name]:.3g}" if "seconds" in name else si(row[name])
    return shown + ("" if row is reference else change)


def lost(row: Mapping[str, Any]) -> str:
    """Text that a tokenizer loses; empty if nothing is lost."""
    parts = []
    if row["lost_bytes"]:
        parts.append(f"{percent(row['lost_bytes'] / row['bytes'], 2)} of the bytes")
    if row["changed_documents"]:
        parts.append(f"{row['changed_documents']:,} documents changed")
    return ", ".join(parts)


def notes(report: Mapping[str, Any]) -> list[str]:
    """Limits of the comparison: measured text that was trained on, and tokenizers that lose text."""
    found = [report["phase1"]] if report.get("phase1") else []
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == "all"}
    for arm in report["tokenizers"]:
        row, shared = overall[arm["name"]], arm["in_training"]
        if shared is not None and shared["documents"]:
            found.append(
                f"{arm['name']} was trained on {shared['documents']:,} of the {row['documents']:,} measured documents "
                f"({percent(shared['bytes'] / row['bytes'])} of the bytes; source: {_listed(shared['sources'])}; "
                f"training text: {_listed(arm['training_text'])}), so its numbers are too good"
            )
        if text := lost(row):
            found.append(f"{arm['name']} loses text ({text}): it may need fewer tokens for that reason alone")
    unknown = [arm["name"] for arm in report["tokenizers"] if arm["training_text"] is None]
    if unknown:
        found.append(f"Training text unknown, so the measured text may be in it: {_listed(unknown)}")
    found += [
        f"{arm['name']} was trained on {_listed(arm['training_text'])}, which is not here any more, so the measured "
        "text may be in it; name it with --training"
        for arm in report["tokenizers"]
        if arm["training_text"] is not None and arm["in_training"] is None
    ]
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def figures(report: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [arm["name"] for arm in report["tokenizers"]]
    source = f"{report['text']['documents']:,} documents, {report['made']}"
    level = f"{100 * report['confidence']:g} %"
    overall = [row for row in report["rows"] if row["by"] == "all"]
    ends = ("bytes_per_token_low", "bytes_per_token_high")
    found = [
        Figure(
            "bytes",
            "Bytes per token",
            charts.dots(_drawn(overall, "bytes_per_token"), labels, "bytes_per_token", "bytes per token", ends=ends),
            f"With {level} intervals over documents. Further right is fewer tokens. Larger vocabularies need fewer "
            "tokens, so compare tokenizers of about the same size.",
            source,
        )
    ]
    for by in ("source", "script"):
        rows = _drawn([row for row in report["rows"] if row["by"] == by], "parity")
        names = list(dict.fromkeys(row["group"] for row in rows))
        if len(names) < 2 or len(labels) < 2:
            continue
        drawn = names[:GROUPS_DRAWN]
        largest = "" if len(drawn) == len(names) else f" The {len(drawn)} largest of {len(names)}."
        found.append(
            Figure(
                f"parity-{by}",
                f"Tokens per token of {report['reference']}, by {by}",
                charts.dots(
                    [row for row in rows if row["group"] in drawn],
                    labels,
                    "parity",
                    "tokens per token of the reference",
                    ends=("parity_low", "parity_high"),
                    groups=drawn,
                    line=1,
                ),
                f"Left of the line, a tokenizer needs fewer tokens for the same documents. {level} intervals over "
                f"documents, paired.{largest}",
                source,
            )
        )
    return found


def _drawn(rows: Sequence[Mapping[str, Any]], measure: str) -> list[dict[str, Any]]:
    fields = ("tokenizer", "group", *(f"{measure}{end}" for end in ("", "_low", "_high")))
    return [{field: row[field] for field in fields} for row in rows]

"""The page of a fertility report: tokens that tokenizers need for a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.findings.verdict import loses_text
from experiments.numbers import percent, percent_change, si, signed
from experiments.progress import Lines, Table
from experiments.report import charts, page
from experiments.report.figures import Figure
from tokenizer.errors import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLE = "Tokens that a text needs"
GROUPS_DRAWN = 12
"""Most sources or scripts in a chart; the tables have all of them."""
NOT_MEASURED = "not measured"
ABOUT_STRR = (
    "STRR predicted multilingual benchmarks across published models, which is a correlation; no measure predicted "
    "English ones at equal size of the model (TokLens, 2026, aclanthology.org/2026.acl-srw.18)"
)
CUTS = {
    "strr": "STRR",
    "continued_words": Lines("continued", "words"),
    "digit_boundaries": Lines("digit", "boundaries"),
    "cut_characters": Lines("characters", "cut"),
}
"""Measures of what tokens cut, and their published names."""
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
    return page.render(
        "fertility.html",
        title=TITLE,
        figures=figures(report),
        report=report,
        tables=tables(report),
        headline=headline(report),
        notes=notes(report),
    )


def tables(report: Mapping[str, Any]) -> dict[str, Table]:
    """All tables: `comparison`, `serving`, and tokens by `kind`, `source` and `script` if there are several."""
    text, reference = report["text"], report["reference"]
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == "all"}
    header = ["tokenizer", "tokens", Lines("bytes per", "token"), Lines("tokens per", "word")]
    header += [Lines("tokens against", reference), "vocabulary", Lines("Rényi efficiency", f"α={report['alpha']:g}")]
    header += [Lines("text", "lost"), Lines("text in", "training")]
    compared = []
    for arm in report["tokenizers"]:
        row, superwords = overall[arm["name"]], f"{arm['superwords']:,} superwords" if arm["superwords"] else ""
        compared.append(
            [
                Lines(arm["name"], f"run by {arm['software']}" if arm["software"] else ""),
                f"{row['tokens']:,}",
                with_interval(row, "bytes_per_token"),
                with_interval(row, "tokens_per_word"),
                "reference" if arm["name"] == reference else difference(row),
                Lines(f"{row['vocabulary']:,}", f"{percent(row['used'] / max(row['vocabulary'], 1))} used", superwords),
                f"{row['renyi_efficiency']:.3f}",
                lost(row) or "none",
                "unknown" if arm["in_training"] is None else percent(row["in_training_bytes"] / row["bytes"]),
            ]
        )
    served = [[name, *(priced(row, overall[reference], x) for x in SERVING)] for name, row in overall.items()]
    words = [[name, *(with_interval(row, x) for x in (*CUTS, "gini"))] for name, row in overall.items()]
    found = {
        "comparison": Table(
            f"{si(text['bytes'])}B of text in {counted(text['documents'], 'document')}", header, compared
        ),
        "words": Table(f"What tokens cut. {ABOUT_STRR}", ["tokenizer", *CUTS.values(), "Gini"], words),
        "serving": Table(f"Serving, {report['deployment']['name']}", ["tokenizer", *SERVING.values()], served),
    }
    if original := report["original"]:
        of_source = {(row["tokenizer"], row["group"]): row for row in report["rows"] if row["by"] == "source"}
        names = _groups(report, "source")
        premiums = [[name, *(with_interval(of_source[arm, name], "premium") for arm in overall)] for name in names]
        found["premium"] = Table(f"Premium of each source, against {original}", ["source", *overall], premiums)
    for by in ("kind", "source", "script"):
        rows = {(row["tokenizer"], row["group"]): row for row in report["rows"] if row["by"] == by}
        grouped = []
        for group in _groups(report, by):
            base = rows[reference, group]
            density = with_interval(base, "bytes_per_token").partition("\n")[0]
            cells = [Lines(*difference(rows[name, group]).split("\n"), _strr(rows[name, group])) for name in overall]
            first = Lines(f"{base['tokens']:,}", f"{density} bytes per token", _strr(base))
            cells[list(overall).index(reference)] = first
            grouped.append([Lines(group, f"{counted(base['documents'], 'document')}, {si(base['bytes'])}B"), *cells])
        if len(grouped) > 1:
            found[by] = Table(f"Tokens by {by}, against {reference}", [by, *overall], grouped)
    return found


def _groups(report: Mapping[str, Any], by: str) -> list[str]:
    """Sources, kinds or scripts; of scripts only those with intervals, since the others have few documents."""
    rows = [row for row in report["rows"] if row["by"] == by and (by != "script" or row["parity_low"] is not None)]
    return list(dict.fromkeys(row["group"] for row in rows))


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
    change, _, ends = difference(best).partition("\n")
    interval = f" ({ends} %)" if ends else ""
    return (
        f"{best['tokenizer']} needs the fewest tokens: {change} against {reference['tokenizer']}{interval}, "
        f"{best['bytes_per_token']:.3f} bytes per token."
    )


def difference(row: Mapping[str, Any], name: str = "parity") -> str:
    """A ratio to the reference, by default of tokens: the change in percent, and its interval as a remark."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return "–"
    interval = "" if low is None else f"{signed(100 * (low - 1), 1)} to {signed(100 * (high - 1), 1)}"
    return Lines(f"{signed(100 * (value - 1), 1)} %", interval)


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """A measure, and its interval, if it has one, as a remark."""
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return NOT_MEASURED
    digits = ".3f" if value >= 0.1 else ".2g"
    return Lines(f"{value:{digits}}", "" if low is None else f"{low:{digits}}–{high:{digits}}")


def _strr(row: Mapping[str, Any]) -> str:
    return "" if row["strr"] is None else f"STRR {percent(row['strr'])}"


def priced(row: Mapping[str, Any], reference: Mapping[str, Any], name: str) -> str:
    """A cost of serving, and its change against the reference as a remark; empty if a tokenizer gives no tokens."""
    if row[name] is None or reference[name] is None:
        return ""
    shown = f"{1e6 * row[name]:.3g}" if "seconds" in name else si(row[name])
    return Lines(shown, "" if row is reference else percent_change(row[name], reference[name]))


def lost(row: Mapping[str, Any]) -> str:
    """Text that a tokenizer loses; empty if nothing is lost."""
    parts = []
    if row["lost_bytes"]:
        parts.append(f"{percent(row['lost_bytes'] / row['bytes'], 2)} of the bytes")
    if row["changed_documents"]:
        parts.append(f"{counted(row['changed_documents'], 'document')} changed")
    return ", ".join(parts)


def notes(report: Mapping[str, Any]) -> list[str]:
    """Limits of the comparison: measured text that was trained on, and tokenizers that lose text."""
    limits = [report["phase1"].rstrip(".")] if report["phase1"] else []
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == "all"}
    too_good: dict[str, list[str]] = {}
    for arm in report["tokenizers"]:
        name, row, shared, training = arm["name"], overall[arm["name"]], arm["in_training"], arm["training_text"]
        if shared is not None and shared["documents"]:
            known = f"{shared['documents']:,} of the {shared['looked_up']:,} measured documents "
            known += f"({percent(shared['bytes'] / row['bytes'])} of the bytes; source: {listed(shared['sources'])}; "
            too_good.setdefault(f"{known}training text: {listed(training)})", []).append(name)
        if shared is not None and shared["files"]:
            limits.append(f"{name} was trained on {listed(shared['files'])} (cut into other documents)")
        if text := lost(row):
            limits.append(f"{name} loses text ({text}): it may need fewer tokens for that reason alone")
    limits += [f"trained on {known}, so the numbers are too good: {listed(names)}" for known, names in too_good.items()]
    unknown: dict[str, list[str]] = {}
    for arm in report["tokenizers"]:
        unknown.setdefault(arm["unknown_training"], []).append(arm["name"])
    unknown.pop("", None)
    for reason, names in unknown.items():
        of = f"{'each of ' if len(names) > 1 else ''}{listed(names)}"
        limits.append(f"The measured text may be in training text of {of} that cannot be looked up: {reason}")
    return limits


def figures(report: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [arm["name"] for arm in report["tokenizers"]]
    drawn = []
    source = f"{counted(report['text']['documents'], 'document')}, {report['made']}"
    for by in ("source", "script") if len(labels) > 1 else ():
        names = _groups(report, by)
        if len(names) < 2:
            continue
        groups = names[:GROUPS_DRAWN]
        fields = ("tokenizer", "group", "parity", "parity_low", "parity_high")
        rows = [
            {field: row[field] for field in fields}
            for row in report["rows"]
            if row["by"] == by and row["group"] in groups
        ]
        title = "tokens per token of the reference"
        drawing = charts.dots(rows, labels, "parity", title, ends=("parity_low", "parity_high"), groups=groups, line=1)
        caption = "Left of the line, a tokenizer needs fewer tokens for the same documents. "
        caption += f"{100 * report['confidence']:g} % intervals over documents, paired."
        if len(names) > len(groups):
            caption += f" The {len(groups)} largest of {len(names)}."
        if by == "script":
            caption += " Scripts of too few documents for an interval are only in fertility.csv."
        drawn.append(Figure(f"parity-{by}", f"Tokens by {by}, against {report['reference']}", drawing, caption, source))
    return drawn

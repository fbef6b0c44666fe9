"""Headings that state what a section of a page shows, by section; a section without one is headed by its topic.

A heading claims nothing beyond the decisions on its page: a difference that the tests do not show is called undecided,
a withheld verdict is called withheld, and what is only measured is stated about the measured text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.cli.console import percent, signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]


def comparison(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the headings of a comparison, from the numbers of `report.json`."""
    found = {
        "sample": _range(
            "tokens for this text", {side["label"]: side["n_tokens"] for side in report["sample"]["sides"]}
        )
    }
    rows = report["tokenizers"]
    if len(rows) > 1:
        found["loss"] = _loss(report)
        whole = [row for row in rows if not row["text_lost"]]
        if rows[0] in whole and len(whole) > 1:
            tokens = {row["label"]: 1 / row["bytes_per_token"] for row in whole}
            found["compression"] = _fewest(tokens, rows[0]["label"], "the held-out text")
    if report["superwords"]:
        shares = {arm["label"]: arm["share_of_tokens"] for arm in report["superwords"]}
        found["superwords"] = _range("of the held-out tokens are superwords", shares, percent)
    return found


def _loss(report: Mapping[str, Any]) -> str:
    verdict, rows = report["verdict"], report["tokenizers"]
    if verdict["withheld"]:
        return f"No verdict about the tokenizers: {verdict['withheld']}"
    if not verdict["winner"]:
        return "Undecided which tokenizer predicts held-out text best"
    best = next(row for row in rows if row["key"] == verdict["winner"])
    others = f"all {len(rows) - 1} others" if len(rows) > 2 else next(row["label"] for row in rows if row is not best)
    return f"{best['label']} needs fewer bits per byte than {others}"


def _fewest(tokens: Mapping[str, float], reference: str, text: str) -> str:
    """Who needs the fewest tokens for the measured text. The text is the same, so this is a count, not an estimate."""
    best = min(tokens, key=lambda label: tokens[label])
    saved = percent(1 - tokens[best] / tokens[reference])
    if saved == percent(0):
        return f"No tokenizer needs fewer tokens than {reference} for {text}"
    return f"{best} needs {saved} fewer tokens than {reference} for {text}"


def _range(what: str, numbers: Mapping[str, float], form: Any = "{:,}".format) -> str:
    """The smallest and the largest number and whose they are."""
    low, high = (end(numbers, key=lambda label: numbers[label]) for end in (min, max))
    if form(numbers[low]) == form(numbers[high]):
        return f"{form(numbers[low])} {what}" + (f" in {low}" if len(numbers) == 1 else " in every tokenizer")
    return f"From {form(numbers[low])} ({low}) to {form(numbers[high])} ({high}) {what}"


def fertility(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the headings of a fertility report; those of sources and scripts by `source` and `script`."""
    overall = [row for row in report["rows"] if row["by"] == "all"]
    found = {"comparison": _range("bytes per token", _values(overall, "bytes_per_token"), "{:.3f}".format)}
    if len(overall) < 2:
        return found
    others = [row for row in overall if row["tokenizer"] != report["reference"]]
    best = min(others, key=lambda row: row["tokens"])["tokenizer"]
    for by in ("source", "script"):
        rows = [
            row for row in report["rows"] if row["by"] == by and row["tokenizer"] == best and row["parity"] is not None
        ]
        if len(rows) > 1:
            changes = {row["group"]: 100 * (row["parity"] - 1) for row in rows}
            what = f"tokens for {best} against {report['reference']}"
            unsure = sum(row["parity_low"] is None or row["parity_low"] <= 1 <= row["parity_high"] for row in rows)
            undecided = f"; undecided in {unsure} of {len(rows)} {by}s" if unsure else ""
            found[by] = _range(what, changes, lambda value: f"{signed(value, 1)} %") + undecided
    return found


def _values(rows: Sequence[Row], name: str) -> dict[str, float]:
    return {row["tokenizer"]: row[name] for row in rows if row[name] is not None}


def vocabulary(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the headings of a vocabulary report; those of other tokenizers by `against LABEL`."""
    one, *others = report["tokenizers"]
    never = "" if one["never_produced"] is None else f", and {one['never_produced']:,} never occur in the text"
    found = {
        "superwords": f"{one['superwords']:,} of {one['ordinary']:,} tokens of {one['label']} are superwords",
        "wasted": f"{one['unreachable']:,} tokens of {one['label']} are unreachable{never}",
    }
    for other, (here, there) in zip(others, report["only"], strict=True):
        found[f"against {other['label']}"] = (
            f"{here['tokens']:,} tokens are only in {one['label']}, {there['tokens']:,} only in {other['label']}"
        )
    return found

"""The page that compares the tokenizers of one run."""

from __future__ import annotations

from typing import Any

from experiments.console import si
from experiments.report import charts, page
from experiments.report.figures import Figure


def render(report: dict[str, Any]) -> str:
    """Return the page for the numbers of `report.json` (see `experiments.report.data`)."""
    return page.render("comparison.html", title=report["title"], figures=figures(report), report=report)


def version() -> str:
    """Return a hash of what draws the page."""
    return page.version("comparison.html", "comparison.py", "charts.py", "data.py")


def figures(report: dict[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [row["label"] for row in report["tokenizers"]]
    names = [row["name"] for row in report["provenance"]["artifacts"] if row["stage"].endswith("evaluation")]
    source = " and ".join(names)
    transitions = [
        {"tokenizer": row["label"], "vocab_size": row["transition"]}
        for row in report["tokenizers"]
        if row["transition"]
    ]
    found = [
        Figure(
            "compression",
            "Bytes per token against vocabulary size",
            charts.compression(report["compression"], labels, transitions),
            f"Each tokenizer cut to its first merges, on {si(report['measured_bytes'])} bytes of held-out text.",
            source,
        ),
        Figure(
            "loss",
            "Loss while training",
            charts.loss(report["loss"], labels),
            "Loss per byte of the text of each step, and its moving average. Steps differ because their documents do.",
            source,
        ),
    ]
    if report["verdict"]["low"] is not None:
        rows = [
            {"tokenizer": r["label"], **{k: r[k] for k in ("bits_per_byte", "low", "high")}}
            for r in report["tokenizers"]
        ]
        found.append(
            Figure(
                "interval",
                "Held-out bits per byte",
                charts.interval(rows, labels),
                "Each tokenizer's own interval is wide because documents differ in difficulty. The verdict rests on "
                "the difference within each document, which is why two overlapping intervals can still differ "
                "significantly.",
                source,
            )
        )
    if report["superwords"]["by_words"]:
        words = charts.words(report["superwords"]["by_words"])
        found.append(Figure("words", "How many words they hold", words, source=source))
    return found

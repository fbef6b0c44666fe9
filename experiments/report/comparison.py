"""The page that compares the tokenizers of one run."""

from __future__ import annotations

from typing import Any

from experiments.console import si
from experiments.report import charts, page
from experiments.report.figures import Figure

_NAMED = 4


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
    source = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} evaluations, listed at the end"
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
            "Loss while training, by text",
            charts.loss(report["loss"], labels),
            "Loss per byte of the text of each step, and its moving average. Steps differ because their documents do.",
            source,
        ),
        Figure(
            "loss_flops",
            "Loss while training, by computation",
            charts.loss(report["loss"], labels, "flops"),
            "The same losses: fewer tokens for the same text are fewer FLOPs.",
            source,
        ),
        Figure(
            "length",
            "Where the loss is",
            charts.length(report["by_length"], labels),
            "Share of the held-out loss by the length of the token that was to be predicted; the last point stands for "
            "all longer ones. It explains a difference; tokens of one length are not the same text in two tokenizers.",
            source,
        ),
        *_transitions(report, source),
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
        found.append(
            Figure(
                "tradeoff",
                "Better or cheaper",
                charts.tradeoff([{**row, "train_flops": r["train_flops"]} for row, r in _beside(rows, report)], labels),
                "Held-out loss and training FLOPs of every model; further left is cheaper, further down is better.",
                source,
            )
        )
    if report["superwords"]["by_words"]:
        words = charts.words(report["superwords"]["by_words"])
        found.append(Figure("words", "How many words they hold", words, source=source))
    return found


def _beside(rows: list[dict[str, Any]], report: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(rows, report["tokenizers"], strict=True))


def _transitions(report: dict[str, Any], source: str) -> list[Figure]:
    """Loss and compression against the transition, where at least three were tried at one size.

    A tokenizer without phase 2 is the transition at the end of the vocabulary.
    """
    by_size: dict[str, list[dict[str, Any]]] = {}
    for row in report["tokenizers"]:
        size = f"{row['vocab_size']:,}"
        transition = row["transition"] or row["vocab_size"]
        found = {key: row[key] for key in ("bits_per_byte", "bytes_per_token")}
        spread = {} if row["low"] is None else {"low": row["low"], "high": row["high"]}
        place = {"transition": transition, "share": transition / row["vocab_size"]}
        by_size.setdefault(size, []).append({"tokenizer": row["label"], "vocabulary": size, **place, **found, **spread})
    swept = {size: rows for size, rows in by_size.items() if len({row["transition"] for row in rows}) > 2}
    if not swept:
        return []
    rows = [row for found in swept.values() for row in found]
    plain = [{key: value for key, value in row.items() if key not in ("low", "high")} for row in rows]
    caption = "Where phase 2 takes over; 100 % is a tokenizer without one."
    return [
        Figure(
            "transition_loss",
            "Held-out bits per byte by transition",
            charts.transition(rows, "bits_per_byte", "bits per byte (held-out)", list(swept)),
            caption,
            source,
        ),
        Figure(
            "transition_compression",
            "Bytes per token by transition",
            charts.transition(plain, "bytes_per_token", "bytes per token (held-out)", list(swept)),
            caption,
            source,
        ),
    ]

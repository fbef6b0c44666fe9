"""The page that compares tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.cli.console import si
from experiments.report import charts, diagnostics_charts, findings, page
from experiments.report.figures import Figure

_NAMED = 4


def render(report: dict[str, Any]) -> str:
    """Return the page for the numbers of `report.json` (see `experiments.report.data`)."""
    return page.render(
        "comparison.html",
        title=report["title"],
        figures=figures(report),
        report=report,
        findings=findings.comparison(report),
    )


def version() -> str:
    """Return a hash of the files that render the page."""
    drawn = ("comparison.html", "comparison.py", "findings.py", "charts.py", "diagnostics_charts.py")
    stages = (f"../stages/{name}.py" for name in ("verdict", "comparison", "differences"))
    return page.version(*drawn, "data.py", "labels.py", "texts.py", "diagnostics.py", *stages)


def figures(report: dict[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [row["label"] for row in report["tokenizers"]]
    source = _named(labels, "held-out evaluations")
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
            f"Each tokenizer is cut to its first merges; measured on {si(report['measured_bytes'])}B of held-out text."
            + (" Dashed lines are the transitions to phase 2." if len(transitions) > 1 else ""),
            source,
        ),
        Figure(
            "loss",
            "Training loss by text",
            charts.loss(report["loss"], labels),
            "Loss per byte of each step's text, and its moving average. Steps differ because their documents differ.",
            source,
        ),
        Figure(
            "loss_flops",
            "Training loss by FLOPs",
            charts.loss(report["loss"], labels, "flops"),
            "The same losses by FLOPs: fewer tokens for the same text require fewer FLOPs.",
            source,
        ),
        Figure(
            "length",
            "Where the loss is",
            charts.length(report["by_length"], labels),
            "Share of the held-out loss by the length of the predicted token; the last point includes all longer "
            "tokens. Tokens of one length cover different text in different tokenizers." + _mean_lengths(report),
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
                "differences",
                f"Difference from {labels[0]}",
                charts.differences([row for row in report["differences"] if row["by"] == "all"], labels, labels[0]),
                "Differences on the same documents, with intervals at the level at which Holm's method tests them. An "
                f"interval left of 0 means fewer bits per byte than {labels[0]}." + _withheld(report),
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
        if max(r["train_bytes"] for r in report["tokenizers"]) > 1.05 * min(
            r["train_bytes"] for r in report["tokenizers"]
        ):
            found.append(
                Figure(
                    "budget",
                    "Loss by amount of text",
                    charts.tradeoff(
                        [{**row, "train_bytes": r["train_bytes"]} for row, r in _beside(rows, report)],
                        labels,
                        "train_bytes",
                    ),
                    "Held-out loss of every model and the text that it was trained on.",
                    source,
                )
            )
    if report["tuning"]:
        found.append(
            Figure(
                "tuning",
                "Learning rates of each tokenizer",
                charts.tuning([row for row in report["tuning"] if "bits_per_byte" in row], labels),
                "Short training runs, scored on training documents that they did not read. Large points are the "
                "factors that the models were trained with." + _tuning_warnings(report),
            )
        )
    found += diagnostics_charts.figures(report["training"], labels, _named(labels, "training logs"))
    for i, arm in enumerate(report["superwords"]):
        words = charts.words(arm["by_words"])
        found.append(Figure(f"words_{i}", f"Words per superword, {arm['label']}", words, source=source))
    return found


def _withheld(report: dict[str, Any]) -> str:
    reason = report["verdict"]["withheld"]
    return f" They are about these models; a verdict about the tokenizers is withheld ({reason})." if reason else ""


def _tuning_warnings(report: dict[str, Any]) -> str:
    warned = {row["tokenizer"]: row["warning"] for row in report["tuning"] if row["warning"]}
    return "".join(f" {label}: {warning}." for label, warning in warned.items())


def _mean_lengths(report: dict[str, Any]) -> str:
    """Explain the length of tokens that stand for different bytes in different places."""
    labels = [row["label"] for row in report["tokenizers"] if row["software"]]
    if not labels:
        return ""
    return f" The length of a token of {', '.join(labels)} is the mean length of the text that it stands for."


def _named(names: Sequence[str], what: str) -> str:
    return f"{what} of {', '.join(names) if len(names) <= _NAMED else f'all {len(names)} tokenizers'}"


def _beside(rows: list[dict[str, Any]], report: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(rows, report["tokenizers"], strict=True))


def _transitions(report: dict[str, Any], source: str) -> list[Figure]:
    """Loss and compression against the transition, if at least three transitions were tried with equal settings.

    A tokenizer without phase 2 counts as a transition at the end of the vocabulary.
    """
    by_line: dict[str, list[dict[str, Any]]] = {}
    for row in report["tokenizers"]:
        transition = row["transition"] or row["vocab_size"]
        found = {key: row[key] for key in ("bits_per_byte", "bytes_per_token")}
        spread = {} if row["low"] is None else {"low": row["low"], "high": row["high"]}
        place = {"transition": transition, "share": transition / row["vocab_size"]}
        for line in row["lines"]:
            point = {"tokenizer": row["label"], "vocabulary": line, **place, **found, **spread}
            by_line.setdefault(line, []).append(point)
    swept = {line: rows for line, rows in by_line.items() if len({row["transition"] for row in rows}) > 2}
    if not swept:
        return []
    rows = [row for found in swept.values() for row in found]
    plain = [{key: value for key, value in row.items() if key not in ("low", "high")} for row in rows]
    caption = "Transition to phase 2; 100 % is a tokenizer without phase 2."
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

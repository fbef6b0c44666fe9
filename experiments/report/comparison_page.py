"""The page that compares tokenizers."""

from __future__ import annotations

from typing import Any

from experiments.cli.console import si
from experiments.report import charts, page
from experiments.report.figures import Figure
from experiments.verdict import comparison_headings

_NAMED = 4


def render(report: dict[str, Any]) -> str:
    """Return the page for the numbers of `report.json` (see `experiments.report.data`)."""
    return page.render(
        "comparison.html",
        title=report["title"],
        figures=figures(report),
        report=report,
        headings=comparison_headings(report),
    )


def version() -> str:
    """Return a hash of the files that render the page."""
    stages = (f"../stages/{name}.py" for name in ("comparison", "differences"))
    files = ("comparison.html", "comparison_page.py", "charts.py", "data.py", "labels.py", "texts.py", "../verdict.py")
    return page.version(*files, *stages)


def figures(report: dict[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    rows, labels = report["tokenizers"], [row["label"] for row in report["tokenizers"]]
    evaluations, logs = (
        f"{what} of {', '.join(labels) if len(labels) <= _NAMED else f'all {len(labels)} tokenizers'}"
        for what in ("held-out evaluations", "training logs")
    )
    transitions = [{"tokenizer": r["label"], "vocab_size": r["transition"]} for r in rows if r["transition"]]
    drawn = [
        Figure(
            "compression",
            "Bytes per token against vocabulary size",
            charts.compression(report["compression"], labels, transitions),
            f"Each tokenizer is cut to its first merges; measured on {si(report['measured_bytes'])}B of held-out text."
            + (" Dashed lines are the transitions to phase 2." if len(transitions) > 1 else ""),
            evaluations,
        ),
        Figure(
            "loss",
            "Training loss",
            charts.loss(report["loss"], labels),
            "Loss per byte of each step's text, and its moving average. Steps differ because their documents differ.",
            logs,
        ),
        *_transitions(report, evaluations),
    ]
    if report["verdict"]["low"] is not None:
        withheld = report["verdict"]["withheld"]
        note = f" They are about these models; a verdict about the tokenizers is withheld ({withheld})."
        compared = [row for row in report["differences"] if row["by"] == "all"]
        drawn.append(
            Figure(
                "differences",
                f"Difference from {labels[0]}",
                charts.dots(
                    compared,
                    labels,
                    "percent",
                    f"% of the held-out bits per byte of {labels[0]}",
                    ends=("low", "high"),
                    line=0,
                    form="+.2f",
                ),
                "Differences on the same documents, with intervals that are corrected for the number of tokenizers. An "
                f"interval left of 0 means fewer bits per byte than {labels[0]}." + (note if withheld else ""),
                evaluations,
            )
        )
    return drawn


def _transitions(report: dict[str, Any], source: str) -> list[Figure]:
    """Loss against the transition, if at least three transitions were tried with equal settings.

    A tokenizer without phase 2 counts as a transition at the end of the vocabulary.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in report["tokenizers"]:
        transition = row["transition"] or row["vocab_size"]
        point = {"tokenizer": row["label"], "transition": transition, "share": transition / row["vocab_size"]}
        point |= {key: row[key] for key in ("bits_per_byte", "low", "high")}
        for line in row["lines"]:
            lines.setdefault(line, []).append({**point, "vocabulary": line})
    swept = {line: rows for line, rows in lines.items() if len({row["transition"] for row in rows}) > 2}
    if not swept:
        return []
    chart = charts.transition([row for rows in swept.values() for row in rows], list(swept))
    note = "Transition to phase 2; 100 % is a tokenizer without phase 2."
    return [Figure("transition_loss", "Held-out bits per byte by transition", chart, note, source)]

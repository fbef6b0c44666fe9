"""The page that compares tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.numbers import si
from experiments.report import charts, page
from experiments.report.figures import Figure, to_csv
from tokenizer.durable import write_json, write_whole

if TYPE_CHECKING:
    from pathlib import Path

DIFFERENCES = "differences.csv"
_NAMED = 4
_FEWEST_OF_A_SCRIPT = 10


def render(report: dict[str, Any]) -> str:
    """Return the page for the numbers of `report.json` (see `experiments.report.data`)."""
    return page.render(
        "comparison.html",
        title=report["title"],
        figures=figures(report),
        report=report,
        fewest=_FEWEST_OF_A_SCRIPT,
    )


def write(folder: Path, name: str, report: dict[str, Any]) -> list[Path]:
    """Write `NAME.html`, `NAME.json` and `differences.csv`, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.html", folder / f"{name}.json", folder / DIFFERENCES]
    write_json(written[1], report)
    write_whole(written[2], to_csv(report["differences"]))
    write_whole(written[0], render(report))
    return written


def version() -> str:
    """Return a hash of the files that render the page."""
    found = ("answer", "compared", "differences", "division", "further", "next_step", "verdict")
    files = ("comparison.html", "comparison_page.py", "charts.py", "data.py", "labels.py", "texts.py")
    return page.version(*files, "../stages/contamination.py", *(f"../findings/{name}.py" for name in found))


def figures(report: dict[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    rows, labels = report["tokenizers"], [row["label"] for row in report["tokenizers"]]
    named = ", ".join(labels) if len(labels) <= _NAMED else f"all {len(labels)} tokenizers"
    source = f"held-out evaluations of {named}"
    transitions = [{"tokenizer": r["label"], "vocab_size": r["transition"]} for r in rows if r["transition"]]
    drawn = [
        Figure(
            "compression",
            "Bytes per token against vocabulary size",
            charts.compression(report["compression"], labels, transitions),
            f"Each tokenizer is cut to its first merges; measured on {si(report['measured_bytes'])}B of held-out text."
            + (" Dashed lines are the transitions to phase 2." if transitions else ""),
            source,
        ),
    ]
    curves = (("bytes", "bytes of training text"), ("flops", "training FLOPs"))
    drawn += [
        Figure(
            f"learning_{amount}",
            f"Bits per byte over {title}",
            charts.learning(report["learning"], labels, amount, title),
            "Loss on the text of training, before each step, as means over stretches of steps. Each line is a model.",
            f"training of {named}",
        )
        for amount, title in (curves if report["learning"] else ())
    ]
    if report["verdict"]["low"] is not None:
        withheld = report["verdict"]["withheld"]
        note = f" The differences are about these models; a verdict about the tokenizers is withheld ({withheld})."
        compared = [row for row in report["differences"] if row["by"] == "all" and row["reference"] == labels[0]]
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
                "Paired differences, on the same documents: they can be certain although the tokenizers' own intervals "
                "overlap. Intervals are corrected for the number of tokenizers. An "
                f"interval left of 0 means fewer bits per byte than {labels[0]}." + (note if withheld else ""),
                source,
            )
        )
    return drawn

"""Find under-trained tokens of a model: `python -m experiments.undertrained MODEL [--out FILE.json]`.

MODEL is an `lm-...` artifact. Its tokenizer is found in the same folder of artifacts, or named with `--tokenizer`.
Candidates are the tokens whose output embeddings are closest to those of unused ids. A candidate is under-trained if
the model does not repeat it in a context that repeats it (Land & Bartolo, 2024). If the model's shards exist, the list
includes how often each token occurred in training. `--out` writes all results as JSON.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.cli.console import Reporter, console, finish, percent
from experiments.cli.options import Parser, command
from experiments.store.trained_models import open_model, training_counts
from lm.evaluate.undertrained import find_undertrained
from tokenizer.durable import write_json
from tokenizer.errors import UserError

_ENOUGH = 0.5
"""If the model repeats a smaller share of well-trained tokens than this, the repetition test says little."""


def _run(arguments: argparse.Namespace) -> None:
    reporter = Reporter(console)
    folder, out = Path(arguments.model), arguments.out and Path(arguments.out)
    if out and out.exists():
        raise UserError(f"{out} already exists; choose a new file")
    if out and not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist; choose a file in an existing folder")
    if arguments.top < 0:
        raise UserError(f"--top={arguments.top} must be at least 0")
    model, tokenizer = open_model(folder, arguments.tokenizer and Path(arguments.tokenizer), device=arguments.device)
    with reporter.stage("undertrained"):
        found = find_undertrained(
            model,
            tokenizer,
            unused=arguments.unused,
            share=arguments.share,
            threshold=arguments.threshold,
            controls=arguments.controls,
        )
    summary = found.summary(tokenizer, training_counts(folder))
    _show(summary, arguments.top, reporter)
    if out:
        write_json(out, summary)
    finish(*([out] if out else []), then=["generate", folder, "--prompt", "TEXT"])


def _show(summary: dict[str, Any], top: int, reporter: Reporter) -> None:
    kinds = [
        [name, *(f"{row[key]:,}" for key in ("tokens", "candidates", "undertrained"))]
        for name, row in summary["by_category"].items()
        if row["tokens"]
    ]
    title = f"{summary['n_undertrained']:,} of {summary['vocab_size']:,} tokens are under-trained"
    reporter.table(title, ["category", "tokens", "candidates", "under-trained"], kinds)
    counted = "never_seen" in summary
    rows = [
        [
            _shown(row["text"]),
            str(row["id"]),
            row["category"],
            f"{row['cosine']:.4f}",
            f"{row['max_probability']:.2g}",
            *([f"{row['training_count']:,}"] if counted else []),
        ]
        for row in summary["tokens"]
        if row["undertrained"]
    ]
    header = [
        "token",
        "id",
        "category",
        "cosine distance",
        "highest probability",
        *(["in training"] if counted else []),
    ]
    if rows and top:
        reporter.table(f"The {min(top, len(rows))} least trained", header, rows[:top])
    if counted:
        seen = f"{summary['never_seen_found']:,} of the {summary['never_seen']:,} tokens that training never saw"
        reporter.say(f"{seen} are among them")
    if summary["controls"] and summary["control_share"] < _ENOUGH:
        reporter.say(
            f"warning: the model repeats only {percent(summary['control_share'], 0)} of {summary['controls']} tokens "
            "that look well trained, so the repetition test proves little; rely on the distances",
            "yellow",
        )


def _shown(text: str) -> str:
    """A token in quotes, with escapes for unprintable and control characters."""
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'


def parser() -> Parser:
    """Options of the command."""
    options = Parser("undertrained", "List the under-trained tokens of a model.")
    options.add_argument("model", help="a language model's folder: artifacts/lm-...")
    options.add_argument("--tokenizer", help="the model's tokenizer, if it is not among the same artifacts")
    options.add_argument("--out", help="JSON file to write; must not exist yet")
    options.add_argument("--top", type=int, default=40, help="tokens to show (default 40)")
    options.add_argument("--share", type=float, default=0.02, help="share of ordinary tokens to verify (default 0.02)")
    options.add_argument(
        "--threshold", type=float, default=0.01, help="maximum probability of an under-trained token (default 0.01)"
    )
    options.add_argument("--controls", type=int, default=100, help="well-trained tokens to verify too (default 100)")
    options.add_argument("--unused", type=int, nargs="+", metavar="ID", help="ids that never occurred in training")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    return options


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())

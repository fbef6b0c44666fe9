"""Tokens that a model has hardly learnt: `python -m experiments.undertrained MODEL [--out FILE.json]`.

MODEL is an `lm-...` artifact; its tokenizer is the artifact beside it, unless `--tokenizer` names it. Tokens whose
output embedding is nearest to those of unused ids are candidates. Those that the model does not repeat when its context
does are under-trained (Land & Bartolo, 2024). Where the model's shards are beside it too, the list says how often each
token was in what it read. `--out` gets all of it as JSON.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.cli.console import Reporter, console, exit_code
from experiments.store.trained_models import open_model, training_counts
from lm.evaluate.undertrained import find_undertrained
from tokenizer.durable import write_json
from tokenizer.errors import UserError

_ENOUGH = 0.5
"""Where the model repeats a smaller share of well-trained tokens, that it does not repeat one says little."""


def _run(arguments: argparse.Namespace, reporter: Reporter) -> None:
    folder, out = Path(arguments.model), arguments.out and Path(arguments.out)
    if out and (out.exists() or not out.parent.is_dir()):
        raise UserError(f"{out} exists already, or its folder does not; name a new file")
    if arguments.top < 0:
        raise UserError(f"--top={arguments.top}: use 0 or more")
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
        reporter.say(f"all candidates: {out}")


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
            f"warning: the model repeats only {summary['control_share']:.0%} of {summary['controls']} tokens that look "
            "well trained: that it does not repeat the candidates proves little; go by the distances",
            "yellow",
        )


def _shown(text: str) -> str:
    """A token in quotes, with escapes for what a terminal does not show or would obey."""
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'


def run(argv: list[str] | None = None) -> int:
    """Reads, looks and tells; returns the exit code."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.undertrained", description="List tokens that a model has hardly learnt."
    )
    options.add_argument("model", help="a language model's folder: artifacts/lm-...")
    options.add_argument("--tokenizer", help="its tokenizer, where that is not the artifact beside it")
    options.add_argument("--out", help="JSON file to write, which does not exist yet")
    options.add_argument("--top", type=int, default=40, help="tokens to show (default 40)")
    options.add_argument("--share", type=float, default=0.02, help="share of ordinary tokens to verify (default 0.02)")
    options.add_argument("--threshold", type=float, default=0.01, help="highest probability (default 0.01)")
    options.add_argument("--controls", type=int, default=100, help="well-trained tokens to verify too (default 100)")
    options.add_argument("--unused", type=int, nargs="+", metavar="ID", help="ids that training never had")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    arguments = options.parse_args(argv)
    return exit_code(lambda: _run(arguments, Reporter(console)))


if __name__ == "__main__":
    sys.exit(run())

"""Extend a vocabulary: `python -m experiments.extend TOKENIZER TEXT... --vocab-size N --to FOLDER`.

TOKENIZER is in any format that `tokenizer.formats` reads. It keeps its tokens and their ids. One exception: in our own
layout, special tokens follow the merges, so they move to the new end unless `--keep-ids` is given. TEXT is files,
folders and globs (`PATH:3` counts three times), counted with the tokenizer's own pattern, or one `counts.parquet`.

Phase 1 continues by default. With `--superbpe RULES`, phase 2 continues from the whole tokenizer or from its first
tokens (`--transition`). In imported tokenizers, superwords follow the special tokens.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from experiments.cli.console import Reporter, console, exit_code, finish, si, training_summary
from experiments.cli.options import Parser, add_text_settings, add_tokenizer, open_exact, open_text
from experiments.cli.sizes import parse_count
from superbpe import PRESETS, Source, train_superbpe
from superbpe.transition import AUTO
from tokenizer import (
    Corpus,
    PretokenCounts,
    Tokenizer,
    UserError,
    count_pretokens,
    formats,
    storage,
    train_bpe,
)
from tokenizer.files import weighted
from tokenizer.train.counting import mix_counts
from tokenizer.urls import shown


def _corpora(arguments: argparse.Namespace) -> list[tuple[Corpus, int]]:
    """One corpus per weight."""
    paths: dict[int, list[str]] = {}
    for entry in arguments.text:
        path, weight = weighted(entry, "TEXT")
        paths.setdefault(weight, []).append(path)
    return [(open_text(arguments, of_weight), weight) for weight, of_weight in paths.items()]


def _counts(arguments: argparse.Namespace, start: Tokenizer, reporter: Reporter) -> PretokenCounts:
    if len(arguments.text) == 1 and arguments.text[0].endswith("counts.parquet"):
        return PretokenCounts.load(Path(arguments.text[0]))
    with reporter.stage("count"):
        counted = [
            (
                count_pretokens(
                    map(start.normalized, corpus.batches()) if start.preparation.forms else corpus,
                    start.pattern,
                    unit=arguments.unit or "document",
                    special_tokens=[*start.special_tokens, *start.preparation.added_tokens],
                    progress=reporter.progress,
                ),
                weight,
            )
            for corpus, weight in _corpora(arguments)
        ]
        counts = counted[0][0] if counted[0][1] == len(counted) == 1 else mix_counts(counted)
    reporter.say(f"{si(counts.n_distinct)} distinct pretokens in {si(counts.n_bytes)}B")
    return counts


def _phase1(arguments: argparse.Namespace, start: Tokenizer, reporter: Reporter) -> Tokenizer:
    if arguments.transition is not None:
        raise UserError(f"--transition {arguments.transition} requires --superbpe: it is where phase 2 starts")
    counts = _counts(arguments, start, reporter)
    folder = Path(arguments.to)
    with reporter.stage("bpe"):
        return train_bpe(
            counts,
            arguments.vocab_size,
            start=start,
            keep_ids=arguments.keep_ids,
            tie_break=arguments.tie_break,
            min_count=arguments.min_count,
            checkpoint=_checkpoint(folder),
            progress=reporter.progress,
        )


def _checkpoint(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.merges.npz")


def _phase2(arguments: argparse.Namespace, start: Tokenizer, reporter: Reporter) -> Tokenizer:
    rules = PRESETS[arguments.superbpe]
    if arguments.unit is not None:
        raise UserError(f"--unit is part of the rules {arguments.superbpe!r} ({rules.unit}); leave it out")
    if any(path.endswith("counts.parquet") for path in arguments.text):
        raise UserError("phase 2 reads the text itself, not counts of pretokens; name the text")
    # In our own layout, special tokens follow the superwords, as in a run of both phases.
    keep_ids = arguments.keep_ids or (arguments.transition is None and not start.definition.has_own_layout())
    whole = not keep_ids and arguments.transition is None and not rules.interleave
    if start.fence is not None and not keep_ids:
        old = len(start.merge_ids) - start.n_phase1_merges
        reporter.say(f"warning: the tokenizer's {old:,} superword merges are replaced by new ones", "yellow")
    with reporter.stage("superbpe"):
        return train_superbpe(
            start,
            [Source(corpus.batches, weight) for corpus, weight in _corpora(arguments)],
            vocab_size=arguments.vocab_size,
            rules=replace(rules, min_count=max(rules.min_count, arguments.min_count)),
            transition=arguments.transition,
            transition_merges=start.n_phase1_merges if whole else None,
            keep_ids=keep_ids,
            tie_break=arguments.tie_break,
            memory_bytes=arguments.memory_mb * 1_000_000,
            progress=reporter.progress,
        )


def _extend(arguments: argparse.Namespace, reporter: Reporter) -> None:
    folder = Path(arguments.to)
    if folder.exists():
        raise UserError(f"{folder} already exists; choose a new folder")
    start = open_exact(arguments.tokenizer, pattern=arguments.pattern)
    if start.fence is not None and not arguments.superbpe:
        raise UserError(f"{arguments.tokenizer} has superwords; add --superbpe RULES to continue phase 2")
    storage.disk.make_folder(folder.parent)
    extended = (_phase2 if arguments.superbpe else _phase1)(arguments, start, reporter)
    extended.provenance["phase2" if arguments.superbpe else "phase1"]["text"] = list(map(shown, arguments.text))
    formats.write(extended, folder, "superbpe")
    storage.disk.remove(_checkpoint(folder), missing_ok=True)
    if arguments.superbpe:
        new = len(extended.merge_ids) - extended.n_phase1_merges
        reporter.say(f"{new} superword merges, {len(extended.superword_ids())} superwords")
    else:
        reporter.detail(training_summary(extended))
    reporter.say(repr(extended))
    finish(folder, then=["inspect", folder, "--against", arguments.tokenizer])


def _transition(value: str) -> float | str:
    return value if value == AUTO else float(value)


def parser() -> Parser:
    """Options of the command."""
    options = Parser("extend", "Continue training a tokenizer to a larger vocabulary.")
    add_tokenizer(options)
    options.add_argument(
        "text",
        nargs="+",
        metavar="TEXT",
        help=".txt, .jsonl[.gz|.zst], .parquet, each as PATH or PATH:WEIGHT; or one counts.parquet",
    )
    options.add_argument(
        "--vocab-size", type=parse_count, required=True, help="size of the result, special tokens included"
    )
    options.add_argument("--to", required=True, metavar="FOLDER", help="folder to write; must not exist yet")
    options.add_argument(
        "--keep-ids", action="store_true", help="keep the ids of special tokens, for a model trained with them"
    )
    options.add_argument("--superbpe", choices=list(PRESETS), metavar="RULES", help=f"phase 2: {', '.join(PRESETS)}")
    options.add_argument(
        "--transition",
        type=_transition,
        help="with --superbpe: keep only this number or share of the tokens; or auto",
    )
    options.add_argument(
        "--memory-mb", type=int, default=4096, help="with --superbpe: memory limit; does not change the result"
    )
    add_text_settings(options)
    options.add_argument("--unit", choices=["document", "line"], help="unit of counting in phase 1 (default document)")
    options.add_argument("--tie-break", default="lowest-ids", help="tie-break of training (default lowest-ids)")
    options.add_argument("--min-count", type=int, default=1, help="rarer pairs are not merged (default 1)")
    return options


def run(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = parser().parse_args(argv)
    begins = "starts from scratch" if arguments.superbpe else "continues where this one stopped"
    return exit_code(lambda: _extend(arguments, Reporter(console)), f"the same command {begins}")


if __name__ == "__main__":
    sys.exit(run())

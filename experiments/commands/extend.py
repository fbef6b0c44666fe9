"""`superbpe extend TOKENIZER TEXT... --vocab-size N --to FOLDER`: continue training to a larger vocabulary.

`--multiple-of N` rounds the size up by training more merges.

The tokenizer keeps its tokens and their ids. One exception: in our own layout, special tokens follow the merges, so
they move to the new end unless `--keep-ids` is given. TEXT is counted with the tokenizer's own pattern.

Phase 1 continues by default. With `--superbpe RULES`, phase 2 starts from the tokens of phase 1, or from the first of
them (`--transition`), and replaces superwords; a copy that does not say where its phase 2 starts keeps its own. In
imported tokenizers, superwords follow the special tokens.

Chat templates and other settings of `transformers` are kept; the line `left:` names the rest of the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    Parser,
    add_rule,
    add_text,
    add_threads,
    add_tokenizer,
    add_vocab_size,
    open_exact,
    open_sources,
    out_folder,
    rounded,
    rules_of,
    say_left,
    size,
    transition,
    with_pattern,
)
from experiments.cli.console import finish
from experiments.numbers import si
from experiments.progress import Reporter, console
from experiments.shell import command_text, operand
from superbpe import PRESETS, train_superbpe
from tokenizer import Tokenizer, UserError, count_pretokens, train_bpe
from tokenizer.formats.carried import carried
from tokenizer.train.bpe import as_encoded_by, keeps_words_together

if TYPE_CHECKING:
    import argparse

    from superbpe.rules import Rules


def parser() -> Parser:
    """Arguments of the command."""
    after = "the same command continues phase 1 where this one stopped; phase 2 starts from scratch"
    options = Parser("extend", __doc__, after)
    add = options.add_argument
    add_tokenizer(options)
    add_text(options)
    add_vocab_size(options, "size of the result, special tokens included (with --multiple-of: as now)", required=False)
    add("--to", type=Path, required=True, metavar="FOLDER", help="new folder to write")
    add("--keep-ids", action="store_true", help="keep the ids of special tokens, for a model trained with them")
    add("--superbpe", choices=PRESETS, metavar="RULES", help=f"phase 2: {', '.join(PRESETS)}")
    add(
        "--transition", type=transition, metavar="SHARE", help="with --superbpe: keep this share of the tokens; or auto"
    )
    add_rule(options)
    add("--special", nargs="+", default=[], metavar="STRING", help="special tokens to add")
    add(
        "--memory",
        type=size,
        metavar="SIZE",
        help="memory for tables while text is read, such as 4GB (default: no limit)",
    )
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Train the larger tokenizer and write its folder."""
    if arguments.transition is not None and not arguments.superbpe:
        raise UserError(f"--transition {arguments.transition} requires --superbpe: it is where phase 2 starts")
    if arguments.vocab_size is None and arguments.multiple_of == 1:
        raise UserError("name the size of the result with --vocab-size, or --multiple-of to round the present one up")
    rules = rules_of(arguments)
    start = open_exact(
        arguments.tokenizer,
        pattern=arguments.pattern,
        end_of_text=arguments.end_of_text,
        add_special_tokens=arguments.special,
    )
    arguments.vocab_size = rounded(arguments.vocab_size or start.vocab_size, arguments.multiple_of)
    if start.fence is not None and not arguments.superbpe:
        raise UserError(f"{arguments.tokenizer} has superwords; add --superbpe RULES to replace them")
    if (copied := keeps_words_together(start)) and not arguments.superbpe:
        raise UserError(
            f"{arguments.tokenizer} is a copy of a tokenizer with superwords: its pattern {start.pattern} does not cut "
            "between words; extend the original, or add --superbpe RULES for more superwords"
        )
    if arguments.vocab_size < start.vocab_size and not arguments.superbpe:
        raise UserError(
            f"--vocab-size {arguments.vocab_size} is below the {start.vocab_size} tokens of {arguments.tokenizer}"
        )
    reporter = Reporter(console)
    if copied and arguments.transition is None:
        reporter.say(
            f"warning: {arguments.tokenizer} is a copy that does not say where its phase 2 starts, so its "
            f"{len(start.superword_ids()):,} superwords stay; extend the original, or name that size with --transition",
            "yellow",
        )
    with out_folder(arguments.to, "--to", new=True) as folder:
        extended = _phase1(arguments, start, reporter) if rules is None else _phase2(arguments, start, rules, reporter)
        extended.save(folder)
    if arguments.superbpe:
        new = len(extended.merge_ids) - extended.n_phase1_merges
        reporter.say(f"{new} superword merges, {len(extended.superword_ids())} superwords")
    reporter.say(repr(extended))
    command = command_text(["superbpe", "extend-model", operand(arguments.tokenizer), arguments.to, "<FOLDER>"])
    kept = extended.vocab[: start.vocab_size] == start.vocab
    hint = f"to extend the model: {command}" if kept else "the model needs its old ids; --keep-ids keeps them"
    say_left(carried(extended).left, hint)
    again = with_pattern(arguments.tokenizer, arguments.pattern)
    finish(arguments.to, then=["inspect", arguments.to, "--against", *again])


def _phase1(arguments: argparse.Namespace, start: Tokenizer, reporter: Reporter) -> Tokenizer:
    corpus = open_sources(arguments, arguments.text)
    with reporter.stage("count"):
        counts = count_pretokens(
            corpus,
            **as_encoded_by(start),
            threads=arguments.threads,
            memory_bytes=arguments.memory,
            progress=reporter.progress,
        )
    reporter.say(f"{si(counts.n_distinct)} distinct pretokens in {si(counts.n_bytes)}B")
    with reporter.stage("bpe"):
        return train_bpe(
            counts,
            arguments.vocab_size,
            start=start,
            keep_ids=arguments.keep_ids,
            progress=reporter.progress,
        )


def _phase2(arguments: argparse.Namespace, start: Tokenizer, rules: Rules, reporter: Reporter) -> Tokenizer:
    # In our own layout, special tokens follow the superwords, as in a run of both phases.
    keep_ids = arguments.keep_ids or (arguments.transition is None and not start.definition.has_own_layout())
    whole = not keep_ids and arguments.transition is None and not rules.interleave
    if start.fence is not None and not keep_ids:
        old = len(start.merge_ids) - start.n_phase1_merges
        reporter.say(f"warning: the tokenizer's {old:,} superword merges are replaced by new ones", "yellow")
    with reporter.stage("superbpe"):
        return train_superbpe(
            start,
            open_sources(arguments, arguments.text),
            vocab_size=arguments.vocab_size,
            rules=rules,
            transition=arguments.transition,
            transition_merges=start.n_phase1_merges if whole else None,
            keep_ids=keep_ids,
            threads=arguments.threads,
            memory_bytes=arguments.memory,
            progress=reporter.progress,
        )

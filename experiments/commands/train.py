"""`superbpe train TEXT... --vocab-size N --to FOLDER`: train a BPE or SuperBPE tokenizer on text files."""

from __future__ import annotations

import argparse
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.arguments import (
    STANDARD_INPUT,
    Parser,
    add_rule,
    add_text,
    add_threads,
    add_vocab_size,
    number,
    open_sources,
    out_folder,
    rounded,
    rules_of,
    size,
    text_options,
    transition,
    whole,
)
from experiments.cli.console import finish
from experiments.fertility.measures import gini
from experiments.numbers import si
from experiments.progress import Reporter, Table
from lm.tables import header
from superbpe import PHASE1, PRESETS, train_superbpe
from superbpe.rules import TRANSITION, Rules
from superbpe.transition import competes, resolve_transition
from tokenizer import UserError, count_pretokens, train_bpe
from tokenizer.formats.readers import opens_in
from tokenizer.patterns import FULL_STRENGTH, resolve
from tokenizer.train.balanced import Balanced, check_balance
from tokenizer.train.bpe import check_forbid, merges_that_fit, segment, warn_of_memory
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS, read_counts
from tokenizer.train.forced import NOT_FORCED, check_forced

if TYPE_CHECKING:
    from tokenizer import Corpus, PretokenCounts, Tokenizer


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser(
        "train",
        __doc__,
        epilog="Sweeps, mixtures, filters and language models are settings of `superbpe pipeline`.",
    )
    add = options.add_argument
    add_text(options)
    add(
        "--counts",
        action="store_true",
        help="TEXT is counts: records with a text (--field) and its count, or saved ones",
    )
    add("--pretokenized", action="store_true", help="with --counts: each text is one pretoken, which no pattern cuts")
    add(
        "--parallel",
        metavar="FIELD",
        help="balance NAME=PATH sources, in which records with equal values are translations",
    )
    add(
        "--ratios", nargs="+", type=_ratio, metavar="NAME=R",
        help="balance sources without translations: bytes that each needs for the same content",
    )  # fmt: skip
    add("--to", type=Path, required=True, metavar="FOLDER", help="new folder to write")
    add_vocab_size(options, "bytes, merges and special tokens together", required=True)
    add("--superbpe", choices=PRESETS, metavar="PRESET", help=f"train superwords: {', '.join(PRESETS)}")
    add(
        "--transition",
        type=transition,
        metavar="SHARE",
        help="part that phase 1 fills: a share of the vocabulary, a number of tokens, or auto (default: the preset's)",
    )
    add_rule(options)
    add("--pattern", help=f"name or regex (default: the preset's, otherwise {FULL_STRENGTH})")
    add(
        "--unit",
        choices=("document", "line"),
        help="text that no pretoken crosses (default: the preset's, otherwise document)",
    )
    add(
        "--special",
        nargs="+",
        default=list(DEFAULT_SPECIAL_TOKENS),
        metavar="STRING",
        help=f"special tokens (default: {' '.join(DEFAULT_SPECIAL_TOKENS)})",
    )
    add(
        "--forbid", nargs="+", default=[], metavar="REGEX", help="no token of phase 1 matches these (--rule forbid=...)"
    )
    add(
        "--force", nargs="+", default=[], metavar="STRING", dest="forced_tokens",
        help="strings that become tokens by the first merges",
    )  # fmt: skip
    add(
        "--memory",
        type=size,
        metavar="SIZE",
        help="memory for tables while text is read, such as 4GB (default: no limit)",
    )
    add(
        "--min-pretoken-count", type=whole(), default=1, metavar="N",
        help="leave rarer pretokens out of phase 1, which saves memory (default: 1)",
    )  # fmt: skip
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Train a tokenizer and write its folder."""
    preset: str | None = arguments.superbpe
    arguments.vocab_size = rounded(arguments.vocab_size, arguments.multiple_of)
    n_merges = merges_that_fit(arguments.vocab_size, arguments.special)
    rules = rules_of(arguments)
    _check_transition(arguments, rules)
    phase1 = PHASE1[preset] if preset else {"pattern": FULL_STRENGTH, "unit": "document"}
    pattern, unit = resolve(arguments.pattern or phase1["pattern"]), arguments.unit or phase1["unit"]
    _check_counts(arguments)
    vetoes = {"forbid": arguments.forbid, "special_tokens": arguments.special}
    check_forbid(arguments.forbid)
    if arguments.forced_tokens:
        if rules is not None:
            share = arguments.transition or TRANSITION[arguments.superbpe]
            if competes(rules, share):
                raise UserError(f"--force {arguments.forced_tokens[0]} {NOT_FORCED}")
            n_merges = resolve_transition(arguments.vocab_size, share) - 256
        check_forced(arguments.forced_tokens, pattern, n_merges=n_merges, unit=unit, **vetoes)
    reporter = Reporter()
    with out_folder(arguments.to, "--to", new=True) as folder:
        corpus = open_sources(arguments, arguments.text)
        if not arguments.counts:
            for path, _ in corpus.files:
                if isinstance(path, Path) and {"text", "count"} <= set(header(path)):
                    reporter.say(f"{path}: the column count is not used; add --counts if it counts texts", "yellow")
        common = {"threads": arguments.threads, "memory_bytes": arguments.memory, "progress": reporter.progress}
        _check_balance(arguments, corpus, rules)

        def count(text: Any) -> PretokenCounts:
            options = {"special_tokens": arguments.special, **common}
            if arguments.counts:
                options |= {"unit": arguments.unit, "pretokenized": arguments.pretokenized}
                return read_counts(text, arguments.pattern, **options)
            return count_pretokens(text, pattern, unit=unit, **options)

        with reporter.stage("count"):
            balance = {"parallel": arguments.parallel, "ratios": dict(arguments.ratios or ()) or None}
            balanced = Balanced.count(corpus, count, **balance) if any(balance.values()) else None
            counts = balanced.total if balanced else count(corpus)
        weights = "".join(
            f", {name} counted {weight} times" for name, weight in corpus.config.weights.items() if weight != 1
        )
        reporter.say(f"{si(counts.n_distinct)} distinct pretokens in {si(counts.n_bytes)}B{weights}")
        warn_of_memory(counts, arguments.memory, arguments.min_pretoken_count)
        options = {"forced_tokens": arguments.forced_tokens, "progress": reporter.progress, **vetoes}
        options["min_pretoken_count"] = arguments.min_pretoken_count
        with reporter.stage("phase 1"):
            tokenizer = train_bpe(balanced or counts, arguments.vocab_size, **options)
        if balanced:
            with reporter.stage("phase 1 without balance"):
                plain = train_bpe(counts, arguments.vocab_size, **options)
            reporter.table(_balance(balanced, plain, tokenizer))
        if rules is not None:
            with reporter.stage("phase 2"):
                tokenizer = train_superbpe(
                    tokenizer,
                    corpus,
                    vocab_size=arguments.vocab_size,
                    rules=rules,
                    transition=arguments.transition or TRANSITION[arguments.superbpe],
                    **common,
                )
        tokenizer.save(folder)
    if rules is not None:
        reporter.say(f"{len(tokenizer.superword_ids()):,} superwords")
    reporter.say(repr(tokenizer))
    for answer in opens_in(tokenizer):
        reporter.say(f"opens in {answer.reader}: {answer.text}")
    page = ["inspect", arguments.to, *([] if arguments.counts else text_options(arguments, corpus.config.all_paths))]
    finish(arguments.to, then=page if find_spec("altair") else ["export", arguments.to, "exported", "--to", "hf"])


def _check_balance(arguments: argparse.Namespace, corpus: Corpus, rules: Rules | None) -> None:
    """Raise a UserError for options that do not go with `--parallel` and `--ratios`."""
    names = [name for name, _ in arguments.ratios or ()]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--ratios names {repeated[0]} more than once")
    check_balance(
        corpus.config.weights, parallel=arguments.parallel, ratios=dict(arguments.ratios or ()),
        min_pretoken_count=arguments.min_pretoken_count, weighted=rules is not None,
        competing=rules is not None and competes(rules, arguments.transition or TRANSITION[arguments.superbpe]),
    )  # fmt: skip
    if arguments.parallel and arguments.counts:
        raise UserError("--parallel needs text, and counts have no documents; use --ratios")


def _balance(balanced: Balanced, plain: Tokenizer, tokenizer: Tokenizer) -> Table:
    """Costs of the sources, before and after balancing, and how unequal they are."""
    before, after = (balanced.costs(partial(segment, start=one)) for one in (plain, tokenizer))
    costs = list(before.values()), list(after.values())
    rows = [
        [name, *(f"{x[name]:,.{0 if balanced.parallel else 4}f}" for x in (before, after))]
        + [f"{x[name] / next(iter(x.values())):.3f}" for x in (before, after)]
        for name in balanced.sources
    ]
    cost = "tokens of parallel text" if balanced.parallel else "tokens per byte, times the ratio"
    header = ["source", "BPE", "balanced", "premium of BPE", "balanced"]
    title = f"{cost}; Gini coefficient of BPE {gini(costs[0]):.4f}, balanced {gini(costs[1]):.4f}"
    return Table(title, header, rows)


def _ratio(text: str) -> tuple[str, float]:
    name, _, ratio = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RATIO")
    return name, number(0)(ratio)


def _check_counts(arguments: argparse.Namespace) -> None:
    """Raise a UserError for options that do not go with `--counts`."""
    if arguments.counts and arguments.format is None and STANDARD_INPUT in arguments.text:
        raise UserError(
            "-: the standard input is read as plain text; name the format of the counts, as in --format jsonl"
        )
    if not arguments.counts:
        if arguments.pretokenized:
            raise UserError("--pretokenized is about counts; add --counts")
    elif arguments.superbpe:
        raise UserError(
            f"--superbpe {arguments.superbpe} needs text, and counts do not say what follows a word; leave it out, and "
            "train superwords on text afterwards, with superbpe extend"
        )
    elif arguments.on_error != "error":
        raise UserError(f"--on-error {arguments.on_error} is about text; correct the counts, or leave it out")


def _check_transition(arguments: argparse.Namespace, rules: Rules | None) -> None:
    """Raise a UserError unless phase 2 can start where `--transition` says."""
    if arguments.transition is None:
        return
    if rules is None:
        raise UserError(f"--transition {arguments.transition} needs phase 2; add --superbpe PRESET")
    if competes(rules, arguments.transition):
        return
    tokens = resolve_transition(arguments.vocab_size, arguments.transition)
    most = arguments.vocab_size - len(arguments.special)
    if not 256 <= tokens <= most:
        raise UserError(
            f"--transition {arguments.transition} is {tokens} tokens, which is not between 256 (bytes alone) and "
            f"{most} (--vocab-size without special tokens)"
        )

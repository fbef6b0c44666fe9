"""`superbpe trim TOKENIZER TEXT... --to FOLDER`: remove the tokens that a text does not need.

By default, tokens that TEXT does not contain are removed, and TEXT is encoded as before. `--vocab-size` and
`--least-count` remove more: the token with the fewest occurrences first, if it is part of no other token. Bytes,
special and added tokens stay, with the parts of every token that stays. Ids change: `ids.csv` has the old and the new
id of each token.

With `--model`, a causal language model of `transformers` loses the same rows, and is written with its tokenizer. The
other rows are copied bit for bit. Chat templates, generation_config.json and other settings are kept, with new ids; the
line `left:` names the rest of the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    Parser,
    add_text,
    add_threads,
    add_tokenizer,
    open_exact,
    open_text,
    out_folder,
    say_left,
    whole,
    with_pattern,
)
from experiments.cli.console import finish
from experiments.numbers import percent_change, si
from experiments.progress import Reporter, Table, console
from lm.hf import pretrained
from lm.hf.trimming import check_model, size_of, trim_model
from tokenizer import Tokenizer, UserError
from tokenizer.durable import write_whole
from tokenizer.errors import quoted
from tokenizer.formats.carried import carried
from tokenizer.formats.files import detect
from tokenizer.trim import Trimmed, count_ids, trim

if TYPE_CHECKING:
    import argparse

IDS = "ids.csv"


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("trim", __doc__)
    add = options.add_argument
    add_tokenizer(options)
    add_text(options)
    add("--vocab-size", type=whole(1), metavar="N", help="size of the result, special tokens included")
    add("--least-count", type=whole(0), metavar="N", help="remove tokens with fewer occurrences in TEXT (default: 1)")
    add("--to", type=Path, required=True, metavar="FOLDER", help="new folder to write")
    add("--model", type=Path, metavar="FOLDER", help="model of the tokenizer in safetensors, to trim too")
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Trim the tokenizer, and the model if there is one, and write the folder."""
    if arguments.vocab_size is not None and arguments.least_count is not None:
        raise UserError("--vocab-size and --least-count exclude each other; use one of them")
    tokenizer = open_exact(arguments.tokenizer, pattern=arguments.pattern, end_of_text=arguments.end_of_text)
    reporter, text = Reporter(console), open_text(arguments, arguments.text)
    with out_folder(arguments.to, "--to", new=True) as folder:
        model, named, before = None, list[int](), dict[str, int]()
        if arguments.model is not None:
            _check_own(arguments.model, tokenizer)
            tokenizer = pretrained.with_settings(tokenizer, arguments.model, tokenizer)
            model = pretrained.load(arguments.model)
            named, before = check_model(model, tokenizer), size_of(model)
        with reporter.stage("count"):
            counted = count_ids(tokenizer, text, threads=arguments.threads, progress=reporter.progress)
        size = {"vocab_size": arguments.vocab_size, "least_count": arguments.least_count}
        trimmed = trim(tokenizer, counted.counts, **size, keep=named, read=counted.read)
        with reporter.stage("encode"):
            again = count_ids(trimmed.tokenizer, text, threads=arguments.threads, progress=reporter.progress)
        if model is None:
            trimmed.tokenizer.save(folder)
        else:
            trim_model(model, trimmed.old_ids)
            pretrained.write(model, trimmed.tokenizer, folder)
        write_whole(folder / IDS, _csv(trimmed))
    rows = [_row("ids of the vocabulary", tokenizer.vocab_size, trimmed.tokenizer.vocab_size)]
    if model is not None:
        rows += [_row(name, before[name], now) for name, now in size_of(model).items()]
    rows.append(_row("tokens of the text", int(counted.counts.sum()), int(again.counts.sum())))
    title = f"Trimmed to the tokens that {si(counted.n_bytes)}B of text need"
    reporter.table(Table(title, ["", "before", "after", "change", "in percent"], rows))
    source = arguments.tokenizer
    say_left(carried(trimmed.tokenizer).left, f"the model still has the old ids; --model {source} trims it, too")
    pattern = with_pattern(arguments.tokenizer, arguments.pattern)
    finish(arguments.to, then=["inspect", arguments.to, "--against", *pattern])


def _row(name: str, before: int, after: int) -> list[str]:
    """A row of the table."""
    change = f"{after - before:+,}".replace("-", "−") if after != before else "0"
    return [name, f"{before:,}", f"{after:,}", change, percent_change(after, before, 2)]


def _csv(trimmed: Trimmed) -> str:
    """The old and the new id of each token."""
    lines = [f"{old},{new}" for new, old in enumerate(trimmed.old_ids.tolist())]
    return "\n".join(["old,new", *lines, ""])


def _check_own(folder: Path, tokenizer: Tokenizer) -> None:
    """Reject a tokenizer other than the one in the model's folder, if there is one."""
    try:
        detect(folder)
    except UserError:
        return
    for i, (own, token) in enumerate(zip(open_exact(str(folder)).vocab, tokenizer.vocab, strict=False)):
        if own and token and own != token:
            raise UserError(
                f"--model {folder} has another tokenizer: its token {i} is {quoted(own)}, not {quoted(token)}; name "
                f"the model's own tokenizer, such as {folder}"
            )

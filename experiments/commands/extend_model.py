"""`superbpe extend-model MODEL TOKENIZER OUT`: extend a model to a tokenizer with more tokens.

MODEL is a causal language model saved by `transformers`, with its tokenizer (or use `--old-tokenizer`). TOKENIZER is
the same tokenizer with more tokens and unchanged old ids, as made by `superbpe extend --keep-ids`. Each new token gets
a row in the embedding, and in the output head if it is not tied; padding rows of the model are used first. A new row
is the mean of the rows of the old tokens that the token consists of. Old rows are copied bit for bit.

Chat templates, generation_config.json and other settings of both folders are kept. Where both have a setting,
TOKENIZER's is kept, but MODEL's generation_config.json. The line `left:` names the rest, such as Python files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import TOKENIZER, Parser, open_exact, out_folder, say_left
from experiments.cli.console import finish
from experiments.progress import Reporter, console
from lm.hf import pretrained
from lm.hf.extension import constituents, extend_model
from tokenizer import UserError
from tokenizer.durable import new_folder
from tokenizer.formats import carried

if TYPE_CHECKING:
    import argparse


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("extend-model", __doc__)
    add = options.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a transformers model in safetensors")
    add("tokenizer", metavar="TOKENIZER", help=f"the larger tokenizer: {TOKENIZER}")
    add("out", type=Path, metavar="OUT", help="folder to write; must not exist yet")
    add("--old-tokenizer", help="the model's tokenizer, if its folder has none")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Extend the model and write it with its tokenizer."""
    source, out = arguments.model, arguments.out
    if out.exists():
        raise UserError(f"{out} already exists; choose a new folder")
    old = open_exact(arguments.old_tokenizer or str(source))
    new = open_exact(arguments.tokenizer)
    constituents(old, new)  # fails early if the tokenizers do not match
    new = pretrained.with_settings(new, source, old)
    with out_folder(out.absolute().parent, "OUT in"):
        model = pretrained.load(source)
        rows = model.get_input_embeddings().weight.shape[0]
        extend_model(model, old, new)
        with new_folder(out) as partial:
            pretrained.write(model, new, partial)
    Reporter(console).say(
        f"{new.vocab_size - old.vocab_size} new ids; {rows} rows extended to "
        f"{model.get_input_embeddings().weight.shape[0]}"
    )
    say_left(carried.carried(new).left)
    finish(out, then=["inspect", out])

"""`superbpe push TOKENIZER REPOSITORY`: upload a tokenizer to the Hugging Face Hub.

Its card has the training text, the sizes, the rules, and how to load it.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import Parser, add_tokenizer, open_exact, out_folder, say_left
from experiments.cli.console import finish
from experiments.progress import console
from experiments.shell import operand
from tokenizer.errors import UserError
from tokenizer.external.opening import is_repository_id
from tokenizer.external.push import push
from tokenizer.formats.carried import carried

if TYPE_CHECKING:
    import argparse


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("push", __doc__, "the upload may be incomplete; the same command repeats it")
    add = options.add_argument
    add_tokenizer(options)
    add("repository", metavar="REPOSITORY", help="ORGANIZATION/NAME; created if missing")
    add("--to", type=Path, metavar="FOLDER", help="write the files into a new folder instead of uploading")
    add("--license", help="license for the card, such as apache-2.0 (default: left to you)")
    add("--private", action="store_true", default=None, help="create a private repository")
    add("--hashes", action="store_true", help="upload the folders and document hashes of the training text too")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Upload the tokenizer, or write its files."""
    if not is_repository_id(arguments.repository):
        raise UserError(f"{arguments.repository!r} is not the id of a repository; write ORGANIZATION/NAME")
    if arguments.license is not None and not re.fullmatch(r"[a-z][a-z0-9.-]+", arguments.license):
        raise UserError(f"--license {arguments.license!r} is not an id of the Hub; write apache-2.0, mit, other, …")
    with nullcontext() if arguments.to is None else out_folder(arguments.to.absolute().parent, "--to, in"):
        tokenizer = open_exact(arguments.tokenizer, pattern=arguments.pattern, end_of_text=arguments.end_of_text)
        pushed = push(
            tokenizer, arguments.repository, to=arguments.to, license=arguments.license, private=arguments.private,
            hashes=arguments.hashes,
        )  # fmt: skip
    say_left(carried(tokenizer).left)
    if arguments.to is not None:
        console.print("nothing was uploaded; the next command uploads to huggingface.co")
    options = {"pattern": arguments.pattern, "end-of-text": arguments.end_of_text, "license": arguments.license}
    uploading = ["push", operand(arguments.tokenizer), arguments.repository]
    uploading += [f"--{name}={value}" for name, value in options.items() if value]
    uploading += [f"--{name}" for name in ("private", "hashes") if getattr(arguments, name)]
    finish(pushed, then=["inspect", arguments.repository] if arguments.to is None else uploading)

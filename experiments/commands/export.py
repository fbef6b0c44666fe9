"""`superbpe export TOKENIZER OUTPUT --to FORMAT`: write a tokenizer or a trained model in another format.

TOKENIZER and OUTPUT are files or folders as in the table of `tokenizer.formats`. Nothing is written unless the result
gives the same ids. If TOKENIZER is a model (`artifacts/lm-...`), OUTPUT is a folder for `AutoModelForCausalLM` and
`AutoTokenizer` (`--to hf`: Llama's layout, or Qwen3's for models with `qk_norm`), or a file for llama.cpp (`gguf`).
Its tokenizer is found among the same artifacts. The export is compared with the original before it gets its name.

Chat templates, other settings of `transformers` and generation_config.json are carried over to `hf` and `superbpe`. The
line `left:` names what is not carried over, such as Python files, and the record by which `fertility` and `pipeline`
tell whether a tokenizer was trained on a text: only our own folders have it, which open in transformers, too.
"""

from __future__ import annotations

import argparse
import itertools
from importlib.util import find_spec
from pathlib import Path

from experiments.cli.arguments import (
    Parser,
    add_text_settings,
    add_tokenizer,
    open_exact,
    open_text,
    out_folder,
    say_left,
    whole,
)
from experiments.cli.console import finish
from experiments.progress import Reporter, console, line
from tokenizer import formats
from tokenizer.corpus.seen import KEY
from tokenizer.errors import UserError
from tokenizer.formats import carried
from tokenizer.formats.hf import newest_readers
from tokenizer.formats.llama_cpp import CRASHES
from tokenizer.formats.tiktoken import NANOCHAT, for_nanochat

_TEXTS = 200
"""Documents of `--text` to compare a model on; more would take longer and show nothing new."""


def _special(text: str) -> tuple[str, int]:
    string, equals, number = text.rpartition("=")
    if not (string and equals and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not STRING=ID")
    return string, int(number)


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("export", __doc__)
    add = options.add_argument
    add_tokenizer(options)
    add(
        "output",
        metavar="OUTPUT",
        help="new folder; NAME.json for one tokenizer.json; NAME.tiktoken; NAME.gguf for llama.cpp",
    )
    add("--to", required=True, choices=[*formats.KINDS, "gguf"], help="format; of models: hf, gguf")
    add("--special", action="append", type=_special, metavar="STRING=ID", help="special token of a tiktoken input")
    add("--cut", type=whole(256), metavar="SIZE", help="keep only the first SIZE tokens")
    model = options.add_argument_group("for a model (TOKENIZER is artifacts/lm-...)")
    model.add_argument("--tokenizer", dest="of_model", type=Path, help="its tokenizer, if it is elsewhere")
    model.add_argument("--text", nargs="+", default=[], metavar="FILE", help="hf: text to compare both models on")
    model.add_argument("--mixed-digits", action="store_true", help="gguf: accept other ids where digits of scripts mix")
    add_text_settings(model)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Write the tokenizer or the model."""
    output = Path(arguments.output)
    is_model = _is_model(Path(arguments.tokenizer))
    if is_model and arguments.to not in ("hf", "gguf"):
        raise UserError(f"{arguments.tokenizer} is a model; write it with --to hf or --to gguf")
    if not is_model and arguments.to == "gguf":
        raise UserError(f"{arguments.tokenizer} is not a model; name one, artifacts/lm-..., for --to gguf")
    with out_folder(output.absolute().parent, "OUTPUT in"):
        if is_model:
            _export_model(arguments, output)
        else:
            _export_tokenizer(arguments, output)


def _is_model(path: Path) -> bool:
    """Whether a folder is a model that we trained; a model of `transformers` has a config.json."""
    weights = (path / "model.safetensors").is_file() and not (path / "config.json").exists()
    return weights or path.name.startswith("lm-")


def _export_tokenizer(arguments: argparse.Namespace, output: Path) -> None:
    tokenizer = open_exact(
        arguments.tokenizer,
        pattern=arguments.pattern,
        end_of_text=arguments.end_of_text,
        special_tokens=None if arguments.special is None else dict(arguments.special),
    )
    if arguments.cut is not None:
        tokenizer = tokenizer.cut(arguments.cut)
    written = formats.write(tokenizer, arguments.output, arguments.to)
    console.print(line(repr(tokenizer)), soft_wrap=True)
    if arguments.to == "nanochat":
        specials = for_nanochat(tokenizer.definition).special_tokens
        ids = ", ".join(f"{string} is {specials[string]}" for string in NANOCHAT)
        console.print(line(f"special tokens: {ids}"), soft_wrap=True)
    is_bare = arguments.to == "tiktoken" or (arguments.to == "hf" and output.suffix == ".json")
    left = [*(carried.names(tokenizer) if is_bare else ()), *carried.carried(tokenizer).left]
    if arguments.to in ("hf", "tiktoken") and KEY in tokenizer.provenance:
        left.append("the record of its training text")
    say_left(left)
    if arguments.to == "hf" and (note := newest_readers(tokenizer)) is not None:
        console.print(line(f"note: {note}".replace("`", "")), soft_wrap=True)
    finish(*written, then=["inspect", output] if find_spec("altair") else ())


def _export_model(arguments: argparse.Namespace, output: Path) -> None:
    from experiments.store.trained_models import open_model

    if arguments.end_of_text is not None:
        raise UserError("--end-of-text: a model's documents end with the token that it was trained with; leave it out")
    reporter = Reporter(console)
    model, tokenizer = open_model(Path(arguments.tokenizer), arguments.of_model)
    from lm.hf.export import export_hf  # Torch takes seconds to load
    from lm.hf.gguf import export_gguf

    if arguments.to == "gguf":
        file = export_gguf(model, tokenizer, output, mixed_digits=arguments.mixed_digits)
        reporter.say(
            f"architecture {file.architecture}, {file.tensors} tensors (fp32), pretokenizer "
            f"{file.pre}, context {model.context_tokens:,} tokens"
        )
        if file.pre in CRASHES:
            reporter.say(f"warning: llama.cpp opens it, but {CRASHES[file.pre]}", "yellow")
        finish(file.path)
        return
    import transformers

    transformers.utils.logging.disable_progress_bar()
    documents = open_text(arguments, arguments.text).documents() if arguments.text else ()
    with reporter.stage("export"):
        exported = export_hf(model, tokenizer, output, list(itertools.islice(documents, _TEXTS)))
    reporter.say(
        f"{exported.architecture}, {exported.vocab_size:,} ids ({exported.padding_rows} padding rows left out), "
        f"context {model.context_tokens:,} tokens"
    )
    reporter.say(
        f"checked with transformers: {exported.n_logits:,} logits, largest difference {exported.difference:.2g}; "
        f"ids and decoded text of {exported.n_texts:,} texts equal"
    )
    say_left(exported.left)
    if exported.tokenizer_note:
        reporter.say(f"warning: {exported.tokenizer_note}", "yellow")
    finish(exported.folder, then=["inspect", exported.folder])

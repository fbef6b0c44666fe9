"""Export a trained model to Hugging Face or llama.cpp: `python -m experiments.export_hf MODEL OUT [--to gguf]`.

MODEL is an `lm-...` artifact. Its tokenizer is found in the same folder of artifacts, or named with `--tokenizer`. OUT
becomes a folder for `AutoModelForCausalLM` and `AutoTokenizer`, in Llama's layout, or in Qwen3's for models with
`qk_norm`. The export is compared with the original before the folder gets its name; `--text` adds held-out text to the
comparison. With `--to gguf`, OUT becomes one file for llama.cpp, or an error says why llama.cpp would give other ids.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.cli.console import Reporter, console, finish
from experiments.cli.options import Parser, add_text_settings, command, open_text
from experiments.store.trained_models import open_model

_TEXTS = 200
"""Documents of `--text` to compare on; more would take longer and show nothing new."""


def _run(arguments: argparse.Namespace) -> None:
    from lm.hf.export import export_hf  # Torch takes seconds to load
    from lm.hf.gguf import export_gguf  # Torch takes seconds to load

    reporter = Reporter(console)
    folder = Path(arguments.model)
    model, tokenizer = open_model(folder, arguments.tokenizer and Path(arguments.tokenizer))
    if arguments.to == "gguf":
        written = export_gguf(model, tokenizer, Path(arguments.out), mixed_digits=arguments.mixed_digits)
        reporter.say(
            f"architecture {written.architecture}, {written.tensors} tensors (fp32), pretokenizer "
            f"{written.pre}, context {model.context_tokens:,} tokens"
        )
        finish(written.path)
        return
    texts: list[str] = []
    if arguments.text:
        for document in open_text(arguments, arguments.text).documents():
            texts.append(document)
            if len(texts) == _TEXTS:
                break
    with reporter.stage("export"):
        made = export_hf(model, tokenizer, Path(arguments.out), texts)
    reporter.say(
        f"{made.architecture}, {made.vocab_size:,} ids ({made.padding_rows} padding rows left out), "
        f"context {model.context_tokens:,} tokens"
    )
    reporter.say(
        f"checked with transformers: {made.n_logits:,} logits, largest difference {made.difference:.2g}; "
        f"ids and decoded text of {made.n_texts:,} texts equal"
    )
    if made.tokenizer_note:
        reporter.say(f"warning: {made.tokenizer_note}", "yellow")
    finish(made.folder, then=["inspect", made.folder])


def parser() -> Parser:
    """Options of the command."""
    options = Parser("export-model", "Write a trained model as a Hugging Face folder or a GGUF file.")
    options.add_argument("model", help="a language model's folder: artifacts/lm-...")
    options.add_argument("out", help="folder (or NAME.gguf) to write; must not exist yet")
    options.add_argument("--to", choices=("hf", "gguf"), default="hf", help="format to write (default hf)")
    options.add_argument("--tokenizer", help="the model's tokenizer, if it is not among the same artifacts")
    options.add_argument(
        "--mixed-digits",
        action="store_true",
        help="gguf: accept other ids in llama.cpp for numbers that mix ASCII and other digits",
    )
    options.add_argument("--text", nargs="+", help="held-out text to compare on: .txt, .jsonl[.gz|.zst], .parquet")
    add_text_settings(options)
    return options


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())

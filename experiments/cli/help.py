"""Text of `--help` for each stage: purpose, main settings, examples and flags."""

from __future__ import annotations

import textwrap
from shutil import get_terminal_size
from typing import NamedTuple

from rich.text import Text

from experiments.cli.compose import choices
from experiments.cli.console import console


class _Help(NamedTuple):
    command: str
    does: str
    settings: tuple[str, ...]
    example: str


_TEXT = ("corpus", "corpus.paths", "corpus.sources", "corpus.dataset", "corpus.heldout_fraction", "corpus.sample")
_COUNT = ("arms", *_TEXT, "pattern", "pattern.regex", "runner.memory_mb")
_PHASE1 = (*_COUNT, "bpe.vocab_size", "bpe.counts")
_PHASE2 = (*_PHASE1, "superbpe", "superbpe.transition", "superbpe.vocab_size", "superbpe.sources")
_MODELS = (*_PHASE2, "lm", "budget.train_bytes", "lm.train.seed", "lm.train.device", "runner.gpus")

STAGES = {
    "count": _Help(
        "count",
        "Counts the pretokens of the training text, or adds up existing counts (bpe.counts).",
        _COUNT,
        "corpus=files 'corpus.paths=[data/*.jsonl.zst]' pattern=llama3",
    ),
    "train_bpe": _Help(
        "train-bpe",
        "Phase 1: trains byte-level BPE on the counts, once for all arms that can share it.",
        _PHASE1,
        "corpus=files 'corpus.paths=[data/*.jsonl.zst]' bpe.vocab_size=32000",
    ),
    "train_superbpe": _Help(
        "train-superbpe",
        "Phase 2: trains superwords on top of the phase-1 merges up to the transition.",
        _PHASE2,
        "corpus=files 'corpus.paths=[data/*.jsonl.zst]' superbpe=uw-2025 superbpe.transition=0.8",
    ),
    "shard_corpus": _Help(
        "shard",
        "Encodes the corpus with every arm's tokenizer into memory-mapped shards; resumes after the last finished one.",
        (*_PHASE2, "shards.tokens_per_shard", "shards.shuffle_seed"),
        "corpus=files 'corpus.paths=[data/*.jsonl.zst]' shards.tokens_per_shard=50_000_000",
    ),
    "train_lm": _Help(
        "train-lm",
        "Trains one language model per arm on the same text; resumes from its last checkpoint.",
        _MODELS,
        "corpus=files 'corpus.paths=[data/*.jsonl.zst]' lm=small budget.train_bytes=2_000_000_000",
    ),
    "evaluate": _Help(
        "evaluate",
        "Compares the tokenizers by their models' loss per byte of held-out text, with an interval.",
        (*_MODELS, "eval.context_bytes", "eval.cluster"),
        "experiment=small corpus=files 'corpus.paths=[data/*.jsonl.zst]'",
    ),
    "report": _Help(
        "pipeline",
        "Trains the tokenizers of all arms on a corpus and one language model for each, compares them by loss per "
        "byte, and writes a report. "
        "Without arguments: the demonstration on the embedded corpus.",
        ("experiment", *_MODELS, "reference", "report.title"),
        "experiment=small corpus=files 'corpus.paths=[data/*.jsonl.zst]'",
    ),
    "bakeoff": _Help(
        "bakeoff",
        "Compares tokenizers over a ladder of budgets with three seeds: which is better at which budget, on which "
        "text and for which deployment. Without arguments: four tokenizers on the embedded corpus.",
        (
            "arms",
            *_TEXT,
            "bpe.vocab_size",
            "budget.train_bytes",
            "budget.train_flops",
            "budget.ladder",
            "lm.depths",
            "lm.n_seeds",
            "deployment",
        ),
        "'arms=[bpe,superbpe,llama3]' arms.llama3.file=llama3/tokenizer.json corpus=files 'corpus.paths=[data]'",
    ),
}

SETTINGS = {
    "arms": "tokenizers to compare: [bpe,superbpe,mine], with arms.mine.file=PATH for an existing one",
    "reference": "the arm that the others are compared with, if not the first",
    "experiment": "a complete set of settings",
    "corpus": "source of the text",
    "corpus.sources": "named parts with weights instead: {web: 'web/*.jsonl:3', code: code}",
    "corpus.paths": "files, folders and globs: .txt, .jsonl[.gz|.zst], .parquet",
    "corpus.dataset": "a Hugging Face dataset instead of files, with corpus=hf",
    "corpus.heldout_fraction": "share of the documents to hold out for evaluation",
    "corpus.sample": "share of the documents to use",
    "pattern": "pattern that splits text into pretokens, instead of the preset's",
    "pattern.regex": "any other pattern, with pattern=custom",
    "runner.memory_mb": "memory for count tables, in megabytes; the rest of the program needs about 250 more",
    "bpe.vocab_size": "vocabulary size: bytes, merges and special tokens together",
    "bpe.counts": "counts to train on instead of the corpus: [a/counts.parquet,b/counts.parquet:3]",
    "superbpe": "rules for superwords",
    "superbpe.transition": "where phase 2 starts: a share of the vocabulary, or a number of tokens",
    "superbpe.vocab_size": "size of the superword vocabulary, if not bpe.vocab_size",
    "superbpe.sources": "text for phase 2 instead of the corpus: [a.jsonl,b.jsonl:3]",
    "shards.tokens_per_shard": "tokens per file",
    "shards.shuffle_seed": "seed for shuffling the documents; null keeps their order",
    "lm": "size of the language model",
    "budget.train_bytes": "bytes of text that the reference's model trains on",
    "budget.ladder": "smaller budgets at which models are compared too: [0.25,0.5] of budget.train_bytes",
    "budget.train_flops": "training FLOPs of the reference's model, instead of its bytes",
    "lm.depths": "several numbers of layers, all trained at every budget: [2,4,8]",
    "lm.n_seeds": "models per tokenizer and budget",
    "deployment": "model whose serving cost is compared",
    "lm.train.seed": "random seed for the weights and the order of documents",
    "lm.train.device": "auto, cpu, cuda, cuda:1",
    "eval.context_bytes": "maximum context of a scored token, in bytes",
    "eval.cluster": "unit of sampling for the interval: document, source, or auto",
    "report.title": "heading of the report",
    "runner": "where the work is done: local, ray",
    "runner.threads": "threads (default: all cores)",
    "runner.gpus": "GPUs per model on a cluster; 0 for its cores",
    "artifacts": "folder or s3:// URL for results, shared between runs",
    "logger": "none, wandb, wandb-offline",
}
_RESUMES = "Earlier stages run first unless their results exist. After an interruption, the same command resumes."
_ALWAYS = ("runner", "runner.threads", "artifacts", "logger")


def show_help(stage: str) -> None:
    """Print the help of a stage."""
    console.print(Text(text(stage)), soft_wrap=True)


def text(stage: str) -> str:
    """Return the help of a stage, a key of `STAGES`."""
    help_ = STAGES[stage]
    command = f"superbpe {help_.command}"
    names = [*help_.settings, *_ALWAYS]
    width = max(map(len, names)) + 1
    columns = get_terminal_size().columns - 1
    settings = [
        textwrap.fill(
            f"{SETTINGS[name]}{_choices(name)}",
            columns,
            initial_indent=f"  {name + '=':<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name in names
    ]
    sweep = "superbpe.transition=0.7,0.8,0.9" if "superbpe.transition" in names else "pattern=gpt2,llama3"
    return "\n".join(
        [
            f"usage: {command} [KEY=VALUE ...] [--multirun] [FLAGS]",
            "",
            *(textwrap.fill(part, columns) for part in (help_.does, _RESUMES)),
            "",
            "main settings:",
            *settings,
            "",
            "examples:",
            f"  {command} {help_.example}",
            f"  {command} --multirun {sweep}",
            f"  {command} --multirun {sweep} hydra/launcher=joblib",
            "",
            "flags:",
            "  --cfg job       print every setting with its value instead of running",
            "  --multirun, -m  run KEY=A,B,C once per value, and print a table at the end",
            "  --config-dir D  folder with your own configurations",
            "  --hydra-help    show Hydra's other flags",
        ]
    )


def _choices(group: str) -> str:
    """List the choices of a configuration group; nothing for a key."""
    known = choices(group)
    return ": " + ", ".join(known) if known else ""

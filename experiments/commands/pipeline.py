"""`superbpe pipeline KEY=VALUE...`: the stages of an experiment, from text to report, or `--until` one of them."""

from __future__ import annotations

import argparse
import os
import textwrap
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from experiments.cli import job
from experiments.cli.arguments import Parser
from experiments.cli.compose import choices, explanation, keys, known_keys
from experiments.cli.console import complain
from experiments.cli.main import run as run_command
from experiments.cli.process import restore
from experiments.stages import TITLES
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = (
    *("experiment", "arms", "reference", "corpus", "corpus.paths", "corpus.sources", "corpus.dataset"),
    *("corpus.heldout_fraction", "corpus.sample", "pattern", "pattern.regex", "bpe.vocab_size", "bpe.counts"),
    *("superbpe", "superbpe.transition", "superbpe.sources", "shards.tokens_per_shard"),
    *("lm", "lm.n_seeds", "lm.depths", "lm.train.seed", "lm.train.device"),
    *("budget", "budget.train_bytes", "budget.train_flops", "budget.ladder"),
    *("eval.context_bytes", "eval.cluster", "deployment", "report.title"),
    *("runner", "runner.threads", "runner.memory_mb", "runner.gpus", "artifacts", "logger"),
)
"""Settings in `--help`; `--cfg job` prints all of them."""
_EXAMPLES = """\
examples:
  superbpe pipeline                         # the demonstration on the embedded corpus
  superbpe pipeline experiment=bakeoff      # four tokenizers, four budgets, three seeds
  superbpe pipeline experiment=small corpus=files 'corpus.paths=[data/*.jsonl.zst]'
  superbpe pipeline --until train-superbpe superbpe=uw-2025 superbpe.transition=0.8
  superbpe pipeline --multirun superbpe.transition=0.7,0.8,0.9 hydra/launcher=joblib"""


class _PipelineParser(Parser):
    """Settings written as flags (`--key=value`) are the most likely mistake."""

    def spelling(self) -> dict[str, str]:
        """Keys of the configuration by the keyword arguments of the library; without names that several groups have."""
        names = [key.rpartition(".")[2] for key in keys()]
        return {f"{name}=": f"{key}=" for key in keys() if names.count(name := key.rpartition(".")[2]) == 1}

    def error(self, message: str) -> Any:
        """Print the message, with the settings that unknown flags such as `--transition` probably mean, and exit."""
        flags = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in self._words if word in message]
        found = [key for flag in flags for key in known_keys() if key.rpartition(".")[2] == flag]
        meant = f": {' or '.join(f'{key}=…' for key in found)}" if found else "; --help shows the main ones"
        complain(UserError(f"{message}; settings are written KEY=VALUE, without dashes{meant}"))
        self.exit(2)

    def format_help(self) -> str:
        """The flags, the main settings with what their dataclasses say about them, and examples."""
        return "\n".join([super().format_help(), "main settings:", *map(_explained, SHOWN), "", _EXAMPLES, ""])


def _explained(key: str) -> str:
    known = choices(key)
    what = "a complete set of settings" if key == "experiment" else explanation(key)
    what = what if what[1].isupper() else what[0].lower() + what[1:]
    return textwrap.fill(
        f"{what}{': ' if known else ''}{', '.join(known)}",
        get_terminal_size().columns - 1,
        initial_indent=f"  {key + '=':<{max(map(len, SHOWN)) + 1}}  ",
        subsequent_indent=" " * (max(map(len, SHOWN)) + 5),
        break_long_words=False,
        break_on_hyphens=False,
    )


def parser() -> Parser:
    """Arguments of the command."""
    options = _PipelineParser(
        "pipeline",
        "Trains the tokenizers of all arms on a corpus and language models for each, compares them by loss per byte, "
        "and writes a report. Stages whose results exist are skipped, so after an interruption the same command "
        "resumes.",
        "the same command continues where this one stopped",
    )
    stages = [stage.replace("_", "-") for stage in TITLES]
    options.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, see below")
    options.add_argument(
        "--until", choices=stages, default=stages[-1], metavar="STAGE", help=f"last stage to run: {', '.join(stages)}"
    )
    options.add_argument(
        "--multirun", "-m", action="store_true", help="run KEY=A,B,C once per value, and print a table at the end"
    )
    options.add_argument(
        "--cfg", choices=("job", "hydra", "all"), help="print every setting with its value instead of running"
    )
    options.add_argument("--package", metavar="GROUP", help="with --cfg: print only this group")
    options.add_argument("--config-dir", metavar="FOLDER", help="folder with your own configurations")
    return options


def run(arguments: argparse.Namespace) -> int:
    """Run the stages, once or for every cell of a sweep."""
    return job.run(arguments)


def main(argv: Sequence[str]) -> int:
    """Run `python -m experiments.pipeline`; return the exit code.

    Under `torchrun`, rank 0 runs the stages; the other ranks take part in training and evaluation.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return run_command(["pipeline", *argv])
    from lm.evaluate import distributed as distributed_evaluation  # Torch takes a second to load
    from lm.train import distributed, loop

    restore()  # rank 0 handles signals while it runs a stage; the other ranks end on them

    def join(task: dict[str, Any]) -> None:
        (distributed_evaluation if distributed_evaluation.is_ours(task) else loop).join(task)

    try:
        return distributed.launch(lambda: run_command(["pipeline", *argv]), join)
    except UserError as error:
        complain(error)
        return 2

"""Cooldowns from a shared trunk against cosine schedules: `python -m experiments.benchmarks.cooldown [KEY=VALUE...]`.

Trains a ladder of budgets with the pipeline, several times: with `lm.train.decay=cosine`, where every budget is trained
from scratch, and with other decays, where all budgets of a seed share a trunk. Tokenizer, text, seeds and budgets are
the same. Differences are paired by seed, and intervals are Student's t over the seeds: they are about other seeds, not
about other held-out text. FLOPs and seconds are those of the training alone; a trunk counts once.

The defaults are sized for ten minutes on two cores. Settings of the pipeline change them: `lm.n_seeds=5`,
`budget.ladder=[0.01,0.1]`, `corpus=files corpus.paths=[...]`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from experiments import pipeline
from experiments.benchmarks import common
from experiments.cli.compose import load
from experiments.cli.console import Reporter, si
from lm.evaluate.significance import t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.store.artifacts import Artifact

CONTROL = "cosine"
SETTINGS = (
    *("corpus=embedded", "arms=[bpe]", "bpe.vocab_size=4096", "lm=demo", "lm.model.n_layers=2", "lm.n_seeds=3"),
    *("budget.train_bytes=4_000_000", "budget.ladder=[0.1,0.3]", "corpus.heldout_sample=0.1"),
    *("lm.train.warmup_steps=10", "lm.train.context_sample_bytes=1_000_000", "lm.train.decay_fraction=0.2"),
)
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rung:
    """The models of one budget.

    Attributes:
        n_bytes: Bytes of training text, mean over the seeds.
        steps: Steps of the training.
        bits_per_byte: Held-out loss of each seed.
    """

    n_bytes: float
    steps: int
    bits_per_byte: list[float]


@dataclass(frozen=True)
class Way:
    """A ladder trained with one decay.

    Attributes:
        decay: Shape of the decay.
        rungs: The budgets, smallest first.
        flops: FLOPs of the training of all models, with their trunks.
        seconds: Time of that training.
    """

    decay: str
    rungs: list[Rung]
    flops: float
    seconds: float


def measure(decay: str, settings: Sequence[str], folder: Path) -> Way:
    """Train and score the ladder with one decay; artifacts go into `folder`."""
    made: dict[str, Artifact[Any]] = {}

    def use(artifact: Artifact[Any]) -> None:
        made.setdefault(artifact.name, artifact)

    outcome = pipeline.run(
        load([*SETTINGS, f"artifacts={folder / 'artifacts'}", *settings, f"lm.train.decay={decay}"]),
        "evaluate",
        folder / decay,
        reporter=Reporter(Console(stderr=True)),
        on_artifact=use,
    )
    flops = seconds = 0.0
    trunks: dict[int, float] = {}  # FLOPs of the last trunk of every seed, where the next model starts
    for name, artifact in made.items():
        kind = name.partition("-")[0]
        if kind in ("lm", "trunk"):
            seed, total = artifact.contents.seed, artifact.contents.summary.flops
            flops += total - trunks.get(seed, 0.0)
            seconds += artifact.seconds
            if kind == "trunk":
                trunks[seed] = total
    rungs = []
    for each in outcome.rungs:
        arm = each.arms[0]
        models = [model.contents.summary for model in arm.lms]
        losses = [evaluation.bits_per_byte for evaluation in arm.evaluations]
        rungs.append(Rung(fmean(model.bytes for model in models), models[0].steps, losses))
    return Way(decay, rungs, flops, seconds)


def losses(ways: Sequence[Way]) -> Table:
    """Table of bits per byte by budget; the first way is the control."""
    table = Table(title="Held-out bits per byte, mean over the seeds")
    for column in ("bytes", "steps", "decay", "bits per byte", f"against {ways[0].decay}", "95 % interval"):
        table.add_column(column, justify="left" if column == "decay" else "right")
    for number, control in enumerate(ways[0].rungs):
        for way in ways:
            rung = way.rungs[number]
            cells = ["", ""] if way is ways[0] else difference(rung.bits_per_byte, control.bits_per_byte)
            size = [si(rung.n_bytes) + "B", f"{rung.steps:,}"] if way is ways[0] else ["", ""]
            table.add_row(*size, way.decay, f"{fmean(rung.bits_per_byte):.4f}", *cells)
    return table


def difference(found: Sequence[float], control: Sequence[float]) -> list[str]:
    """Mean of the paired relative differences, and its interval if there are several seeds; as text.

    >>> difference([1.01, 2.04], [1.0, 2.0])
    ['+1.50 %', '-4.85 to +7.85 %']
    """
    percent = [100 * (a / b - 1) for a, b in zip(found, control, strict=True)]
    mean, n = fmean(percent), len(percent)
    if n < 2:
        return [f"{mean:+.2f} %", "–"]
    half = float(t_quantile(_CONFIDENCE, n - 1)) * stdev(percent) / n**0.5
    return [f"{mean:+.2f} %", f"{mean - half:+.2f} to {mean + half:+.2f} %"]


def costs(ways: Sequence[Way]) -> Table:
    """Table of the training costs of all budgets and seeds; the first way is the control."""
    table = Table(title="Training of all models")
    for column in ("decay", "FLOPs", f"times {ways[0].decay}", "seconds", f"times {ways[0].decay}"):
        table.add_column(column, justify="left" if column == "decay" else "right")
    for way in ways:
        flops, seconds = way.flops / ways[0].flops, way.seconds / ways[0].seconds
        table.add_row(way.decay, si(way.flops), f"{flops:.2f}", f"{way.seconds:.1f}", f"{seconds:.2f}")
    return table


@common.command
def main(argv: list[str]) -> int:
    """Parse the command line, measure and print the tables; return the exit code."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of the pipeline")
    options.add_argument("--decays", nargs="+", default=["sqrt", "linear"], metavar="SHAPE", help="(sqrt linear)")
    options.add_argument("--folder", type=Path, help="keep artifacts here, so that an interrupted benchmark continues")
    arguments = options.parse_intermixed_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        ways = [measure(decay, arguments.settings, folder) for decay in (CONTROL, *arguments.decays)]
    common.CONSOLE.print(losses(ways))
    common.CONSOLE.print(costs(ways))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Train in the processes that torchrun starts: `torchrun --nproc-per-node N -m tests.lm.processes SHARDS FOLDER JSON`.

The JSON object holds settings of `TrainConfig` and of the model, and `stop_at`, after which step the second process
gets a Ctrl-C, which the first one has to learn of. Log entries go to FOLDER.jsonl.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from lm import parallel, training
from lm.model import ModelConfig
from lm.run import Run
from lm.shards import Shards
from lm.train_config import TrainConfig


def main(shards: Path, folder: Path, settings: dict) -> int:
    stop_at = settings.pop("stop_at", None)
    fail_at = settings.pop("fail_at", None)
    model = ModelConfig(**settings.pop("model"))
    config = TrainConfig(**settings)
    advance = Run.advance

    def stopped(run: Run):
        entry = advance(run)
        if run.step == stop_at and run.world.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if run.step == fail_at and run.world.rank == 0:
            raise OSError("disk full")
        return entry

    Run.advance = stopped

    def first() -> int:
        with folder.with_suffix(".jsonl").open("a") as file:
            for seed in (config.seed, config.seed + 1):  # two models, one after the other
                one = dataclasses.replace(config, seed=seed)
                place = folder / str(seed)
                try:
                    training.train(
                        model, one, Shards.open(shards), place, log=lambda row: file.write(json.dumps(row) + "\n")
                    )
                except KeyboardInterrupt:
                    return 130
        return 0

    return parallel.launch(first, training.join)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))

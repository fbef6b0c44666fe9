"""Train in several processes (torchrun): `python -m tests.lm.train.training_processes SHARDS FOLDER JSON`.

The JSON object holds the settings of the model and of training, and a list of jobs, done one after the other. A job
names its folder in FOLDER and may have

- `train`: settings of its own;
- `stop_at`: the step during which the second process gets a signal, which the first one has to learn of;
- `fail_at` and `fail_rank`: the step at which a process dies, and its rank;
- `absent`: the second process cannot take part.

A job's log entries go to FOLDER/<job>.jsonl.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from lm.data.shards import Shards
from lm.model.transformer import ModelConfig
from lm.train import distributed, loop
from lm.train import trainer as trainer_module
from lm.train.config import TrainConfig
from lm.train.trainer import Trainer
from tokenizer.errors import UserError

NOTHING = {"train": {}, "stop_at": None, "fail_at": None, "fail_rank": 0, "absent": False}


def main(shards: Path, root: Path, settings: dict) -> int:
    model, config = ModelConfig(**settings["model"]), TrainConfig(**settings["train"])
    advance = Trainer.advance
    jobs = iter(settings["jobs"])
    job = {}

    def watched(trainer: Trainer):
        entry = advance(trainer)
        if trainer.step == job.get("stop_at") and trainer.world.rank == min(1, trainer.world.size - 1):
            os.kill(os.getpid(), signal.SIGTERM)
        if trainer.step == job.get("fail_at") and trainer.world.rank == job["fail_rank"]:
            raise OSError("disk full")
        return entry

    Trainer.advance = watched

    resolve = trainer_module.resolve_device

    def absent(name: str, local_rank: int | None = None):
        if job.get("absent") and local_rank == 1:
            raise UserError("there is no second device")
        return resolve(name, local_rank)

    trainer_module.resolve_device = absent

    def first() -> int:
        root.mkdir(exist_ok=True)
        for current in jobs:
            job.update(NOTHING | current)
            with (root / f"{job['name']}.jsonl").open("a") as file:
                try:
                    loop.train(
                        model, dataclasses.replace(config, **job["train"]), Shards.open(shards), root / job["folder"],
                        log=lambda row, file=file: file.write(json.dumps(row) + "\n"),
                    )  # fmt: skip
                except KeyboardInterrupt:
                    file.write('{"stopped": true}\n')
                except UserError as error:
                    file.write(json.dumps({"refused": str(error)}) + "\n")
                except OSError as error:
                    print(f"failed: {error}", file=sys.stderr)
                    return 1
                if distributed._broken:
                    return 2
        return 0

    join = loop._join

    def watched_join(*arguments, **options) -> None:
        job.update(NOTHING | next(jobs))
        join(*arguments, **options)

    if os.environ["RANK"] != "0":
        loop._join = watched_join
    return distributed.launch(first)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))

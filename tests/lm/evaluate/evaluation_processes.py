"""Evaluate in two processes, with torchrun's variables set.

`python -m tests.lm.evaluate.evaluation_processes SHARDS MODEL OUT`. The evaluation goes to OUT. In a second evaluation
the other process fails, which OUT/told has to say; in a third one it does not find the model, as OUT/absent has to say.
"""

import os
import sys
from pathlib import Path
from unittest import mock

import torch

from lm.data.shards import Shards
from lm.evaluate import distributed as distributed_evaluation
from lm.evaluate import scoring
from lm.evaluate.config import EvalConfig
from lm.train import distributed
from tokenizer.errors import UserError

CONFIG = EvalConfig(context_bytes=16, min_context_bytes=6, batch_tokens=64)


def score(folder, shards):
    """Score shards with the model in a folder, in several groups of documents."""
    with mock.patch("lm.evaluate.scoring._TOKENS_PLANNED", 30):
        return distributed_evaluation.load_and_evaluate(folder, shards, shards.token_byte_lengths, CONFIG)[1]


def main(shards, model, out):
    """Score in the first process; the other joins in."""
    torch.set_num_threads(1)

    def first():
        score(model, shards).save(out)
        for name in ("told", "absent"):
            try:
                score(model, shards)
            except UserError as error:
                (out / name).write_text(str(error))
        return 0

    join, jobs = distributed_evaluation._join, []

    def watched(folder, *arguments):
        jobs.append(folder)
        broken = mock.Mock(side_effect=UserError("document 3 is not finite"))
        with (
            mock.patch("lm.evaluate.scoring._TOKENS_PLANNED", 30),
            mock.patch("lm.evaluate.scoring._queue", scoring._queue if len(jobs) == 1 else broken),
        ):
            join(folder if len(jobs) < 3 else out / "nowhere", *arguments)

    if os.environ["RANK"] != "0":
        distributed_evaluation._join = watched
    return distributed.launch(first)


if __name__ == "__main__":
    sys.exit(main(Shards.open(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])))

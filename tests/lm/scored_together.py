"""One of two processes that score the same documents together: RANK PORT SHARDS OUT."""

import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from lm.evaluation import EvalConfig, Evaluation, evaluate
from lm.model import ModelConfig, Transformer
from lm.shards import Shards


def score_small(folder: Path, *, together: bool = False) -> Evaluation:
    """Score shards with a small random model, in several groups of documents."""
    shards = Shards.open(folder)
    model = Transformer(ModelConfig(depth=1, width=32, head_width=16), shards.vocab_size, 16)
    model.initialize(0)
    config = EvalConfig(context_bytes=16, min_context_bytes=6, batch_tokens=64, bootstrap_samples=10)
    with mock.patch("lm.scoring._TOKENS_PLANNED", 30):
        return evaluate(model, shards, shards.token_byte_lengths, config, together=together)


def main() -> None:
    """Score together with the other process, and save."""
    rank, port, shards, out = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    score_small(shards, together=True).save(out / str(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

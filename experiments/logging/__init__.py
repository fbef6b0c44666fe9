"""Where the numbers of a run go: `metrics.jsonl` and wandb."""

"""Logging of metrics to `metrics.jsonl` and wandb."""

"""Logging of metrics to `metrics.jsonl` and W&B."""

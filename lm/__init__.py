"""The judge: shards, a small language model trained on them, and its loss per byte."""

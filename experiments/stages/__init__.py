"""The stages of an experiment. Each is a function from its inputs to an artifact."""

TITLES = {
    "count": "read and count the text",
    "train_bpe": "train BPE merges (phase 1)",
    "train_superbpe": "train superwords (phase 2)",
    "shard": "encode the text",
    "train_lm": "train language models",
    "evaluate": "evaluate the models on held-out text",
    "report": "write the report",
}
"""Titles of the stages of a run, in their order."""

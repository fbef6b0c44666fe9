"""The stages of an experiment. Each is a function from its inputs to an artifact."""

STAGES = ("count", "train_bpe", "train_superbpe", "shard", "train_lm", "evaluate", "report")
"""Names of the stages of a run, in their order."""

"""The stages of an experiment, each a function from what it reads to an artifact."""

"""The stages of an experiment. Each is a function from its inputs to an artifact."""

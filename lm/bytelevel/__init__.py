"""Exact probabilities of bytes under a model of tokens."""

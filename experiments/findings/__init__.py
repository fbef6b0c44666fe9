"""Findings of an experiment, and the sentences and tables about them."""

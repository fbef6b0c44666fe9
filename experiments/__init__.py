"""Experiments: one runnable module per job (`python -m experiments.NAME`), their artifacts and reports."""

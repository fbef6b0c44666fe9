"""The ladder of trainers, measured: `python -m experiments.benchmarks.ladder FILES`."""

"""Speed and memory, beside other people's software in the same run: `python -m experiments.benchmarks.NAME`."""

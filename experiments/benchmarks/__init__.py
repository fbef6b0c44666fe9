"""Speed and memory, compared with other software in the same run: `python -m experiments.benchmarks.NAME`."""

from experiments.cli.process import restore

restore()  # Ctrl-C raises: benchmarks remove their temporary files and stop their child processes

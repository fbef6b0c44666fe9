"""Run an experiment, also under `torchrun`: `python -m experiments.pipeline`, the same as `superbpe pipeline`."""

import sys

from experiments.commands.pipeline import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

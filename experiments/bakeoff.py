"""Compare tokenizers over budgets and seeds: `python -m experiments.bakeoff`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("report", "bakeoff")

"""Run all stages up to the report: `python -m experiments.pipeline`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("report")

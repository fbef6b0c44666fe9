"""Run all stages up to the report, like `experiments.pipeline`: `python -m experiments.report`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("report")

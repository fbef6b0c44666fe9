"""Everything up to the report, as `experiments.pipeline` does: `python -m experiments.report`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("report")

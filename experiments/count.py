"""Count the pretokens of the training text: `python -m experiments.count`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("count")

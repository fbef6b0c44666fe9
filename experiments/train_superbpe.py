"""Train the superword tokenizer (phase 2): `python -m experiments.train_superbpe`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("train_superbpe")

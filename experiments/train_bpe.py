"""Train BPE (phase 1): `python -m experiments.train_bpe`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("train_bpe")

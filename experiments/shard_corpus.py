"""Encode the corpus with every tokenizer: `python -m experiments.shard_corpus`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("shard_corpus")

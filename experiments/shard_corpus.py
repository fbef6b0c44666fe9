"""Encode the text with both tokenizers, with what that needs: `python -m experiments.shard_corpus`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("shard_corpus")

"""Train one language model per tokenizer: `python -m experiments.train_lm`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("train_lm")

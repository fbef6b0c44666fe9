"""Train one language model per tokenizer, with what that needs: `python -m experiments.train_lm`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("train_lm")

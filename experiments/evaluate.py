"""Compare the tokenizers on held-out text: `python -m experiments.evaluate`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main("evaluate")

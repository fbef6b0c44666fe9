"""Compare tokenizers by the tokens that they need for a text: `python -m experiments.fertility TOKENIZER... TEXT...`.

TOKENIZER is a folder, a file in any known format, or a repository of the Hugging Face Hub; TEXT a file that ends in
.txt, .jsonl or .parquet, also compressed. Both may be named: NAME=PATH. Writes `fertility.html`, a page that opens
offline, its numbers as `fertility.json` and `fertility.csv`, and with `--figures` the charts for papers.
"""

import sys

from experiments.fertility.command import run

if __name__ == "__main__":
    sys.exit(run())

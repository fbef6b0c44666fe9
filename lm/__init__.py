"""Language models: shards, training, loss per byte, byte-level probabilities, generation, export."""

import tokenizer  # noqa: F401  (an import of a missing package then names the extra)

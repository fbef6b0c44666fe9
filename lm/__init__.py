"""Language models: shards, training, loss per byte, byte-level probabilities, generation, export."""

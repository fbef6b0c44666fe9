"""Work on the parts of a corpus, and language models, on the machines of a Ray cluster."""

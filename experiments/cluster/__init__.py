"""Work on the parts of a corpus, on the machines of a Ray cluster."""

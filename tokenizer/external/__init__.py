"""Existing tokenizers: names and repositories, and those that other software runs.

`opening` recognizes formats, `hub` downloads, `software` runs SentencePiece, Unigram and WordPiece models with the
packages that define them, and `tokenizer` gives these the interface of our own tokenizers.
"""

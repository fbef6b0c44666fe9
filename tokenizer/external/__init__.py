"""Existing tokenizers: names and repositories, and those that other software runs.

`load` loads them, `opening` recognizes formats and downloads, `software` runs SentencePiece, Unigram and WordPiece
models with the packages that define them, `tokenizer` gives these the interface of our own tokenizers, and `push`
uploads to the hub.
"""

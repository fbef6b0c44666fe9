"""Documents from files and datasets."""

from tokenizer.corpus.corpus import Corpus, CorpusConfig

__all__ = ["Corpus", "CorpusConfig"]

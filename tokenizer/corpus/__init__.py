"""Documents from files and datasets."""

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus

__all__ = ["Corpus", "CorpusConfig"]

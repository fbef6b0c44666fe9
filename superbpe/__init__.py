"""SuperBPE: phase 2 of training, in which tokens may span words."""

from superbpe.rules import PHASE1, PRESETS, Rules
from superbpe.training import train_superbpe
from tokenizer.corpus.sources import Source

__all__ = ["PHASE1", "PRESETS", "Rules", "Source", "train_superbpe"]

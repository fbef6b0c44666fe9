"""SuperBPE: phase 2 of training, in which tokens may span words."""

from superbpe.rules import PRESETS, Rules
from superbpe.training import train_superbpe

__all__ = ["PRESETS", "Rules", "train_superbpe"]

"""Cost of perturbed text: more tokens, and more bits per byte of the original text.

Denominators are the bytes of the unperturbed documents, so that text which a perturbation makes longer does not seem
easier to predict. All differences are between the same documents and the same models; they decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm.evaluate.perturbations import PERTURBATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.perturbations import Perturbation
    from lm.evaluate.significance import Ratio
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class Perturbed:
    """Documents under one perturbation.

    Attributes:
        texts: All documents.
        changed: bool[n_documents], whether the perturbation changes a document.
    """

    perturbation: Perturbation
    texts: list[str]
    changed: NDArray[np.bool_]

    @property
    def to_score(self) -> list[str]:
        """The documents that differ from the original ones, which models have to score."""
        return [text for text, changed in zip(self.texts, self.changed, strict=True) if changed]


def perturb(documents: Sequence[str]) -> list[Perturbed]:
    """Documents under each perturbation that changes one of them."""
    perturbed = []
    for perturbation in PERTURBATIONS:
        texts = [perturbation(document) for document in documents]
        changed = np.array([new != old for new, old in zip(texts, documents, strict=True)])
        if changed.any():
            perturbed.append(Perturbed(perturbation, texts, changed))
    return perturbed


def change_of_tokens(tokenizer: TokenizerLike, documents: Sequence[str], perturbed: Perturbed) -> float:
    """Change of the number of tokens, as a share of the tokens of the original documents."""
    before, after = (len(tokenizer.encode_batch(texts)[0]) for texts in (documents, perturbed.texts))
    return after / before - 1


def change_of_bits(before: Sequence[Evaluation], scored: Sequence[Evaluation], perturbed: Perturbed) -> Ratio:
    """Change of the bits per byte of the original documents.

    Args:
        before: Evaluations of the original documents, one per seed.
        scored: Evaluations of `perturbed.to_score`, one per seed.
        perturbed: The perturbed documents.
    """
    losses = []
    for original, after in zip(before, scored, strict=True):
        change = np.zeros(len(original.text_nats))  # documents that stay as they are have no change
        change[perturbed.changed] = after.text_nats - original.text_nats[perturbed.changed]
        losses.append(change)
    return before[0].ratio(losses)

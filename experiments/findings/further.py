"""How much the text that tokenizers were trained on changes their differences."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from lm.evaluate.comparison import Further, percent_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.results import Luck


def luck_of(measured: Sequence[Luck | None], weights: Mapping[str, float]) -> Further:
    """Variance of the difference of each pair of arms from the text that their tokenizers were trained on, in points.

    Two halves of a text differ with 4 times the variance of the whole (docs/certainty.md). Arms of different texts add
    the variances of both. An arm without a measurement has none: the difference is about its vocabulary.

    Args:
        measured: The measurements of each arm; None for an arm without.
        weights: Weights of the kinds of text (`eval.weights`); empty for their shares of the bytes.
    """
    kinds = next((luck.kinds for luck in measured if luck is not None), [])
    return Further(
        luck=_variances(measured, weights),
        luck_degrees=max((len(luck.bits_per_byte) for luck in measured if luck is not None), default=0),
        luck_of_kinds={name: _variances(measured, {name: 1.0}) for name in kinds},
    )


def _variances(measured: Sequence[Luck | None], weights: Mapping[str, float]) -> dict[tuple[int, int], float]:
    """The variance of each pair on the kinds of text with these weights."""
    variances = {}
    for (i, one), (j, other) in itertools.combinations(enumerate(measured), 2):
        if one is not None and other is not None and one.halves == other.halves:
            variances[i, j] = _variance(percent_difference(_losses(one, weights), _losses(other, weights)), one.share)
        else:
            alone = [luck for luck in (one, other) if luck is not None]
            variances[i, j] = sum(_variance(100 * np.log(_losses(luck, weights)), luck.share) for luck in alone)
    return variances


def _losses(luck: Luck, weights: Mapping[str, float]) -> NDArray[np.float64]:
    """Bits per byte of all kinds with a weight, float64[n_splits, 2]."""
    chosen = np.array([weights.get(name, 0.0) for name in luck.kinds])
    shares = chosen if chosen.any() else np.array(luck.n_bytes)
    return np.asarray(np.array(luck.bits_per_byte) @ (shares / shares.sum()))


def _variance(by_half: NDArray[np.float64], share: float) -> float:
    """Variance of a number of the whole text, given that of each half of a share of the text, float64[n_splits, 2].

    Luck falls more slowly than text grows (docs/certainty.md): with its root, if only a share of it was divided.
    """
    return float(np.sqrt(share) * ((by_half[:, 0] - by_half[:, 1]) ** 2).mean() / 4)

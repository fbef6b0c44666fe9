"""Under-trained tokens: found by their embeddings, verified by prompting the model to repeat them.

The method is that of Land & Bartolo, "Fishing for Magikarp" (2024, arXiv 2405.05417). Output rows of ids that are never
a target all move in the same direction, away from what the model predicts. Rows near the mean of known unused ids
therefore belong to tokens that training has hardly seen. Known unused ids are those of bytes that never occur in UTF-8,
and ids without a token. Padding ids are not used: they get no gradient here.

Measured on models of this package (vocabulary of 1,500, 90 tokens never seen, 320 seen fewer than 5 times): the cosine
distance separates the 90 from all others, with tied and untied tables (at most 0.001 against at least 0.02), and its
ranks follow the training counts (correlation 0.96). Without the first principal component it separates them too, but no
longer orders rare tokens. The norm of the input embedding, the paper's first choice for untied tables, is wrong in
0.3 % of the pairs: without weight decay, unseen rows keep their initial norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lm.evaluate.repetition import repetition_probability
from tokenizer.alphabet import NOT_IN_UTF8
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike

CATEGORIES = ("ordinary", "byte", "special", "unreachable", "partial UTF-8", "no token")
_REACH = 2.0
"""Tokens within this many times the largest distance of an unused row from their mean are always candidates."""


@dataclass(frozen=True)
class Indicators:
    """Indicators of training for each id without padding; lower values mean less training.

    Attributes:
        cosine: float64[vocab_size], cosine distance of the output row to the mean of the unused rows.
        cosine_without_common: Cosine distance without the first principal component of the rows.
        input_norm: float64[vocab_size], Euclidean norm of the input row; None if the tables are tied.
    """

    cosine: NDArray[np.float64]
    cosine_without_common: NDArray[np.float64]
    input_norm: NDArray[np.float64] | None


@dataclass(frozen=True)
class Undertrained:
    """Result of a search for under-trained tokens.

    Attributes:
        indicators: Indicators of all ids.
        categories: int64[vocab_size], index into `CATEGORIES`.
        unused: Unused ids that the indicators refer to.
        limit: Maximum cosine distance of candidates.
        candidates: int64[n], ids of the candidates, least trained first.
        probability: float64[n], highest probability of each candidate when the model should repeat it.
        threshold: Candidates below this probability are under-trained.
        controls: int64[m], ids of tokens that look well trained.
        control_probability: float64[m], their probabilities. If many are below the threshold, the model cannot repeat
            tokens, and the verification means little.
    """

    indicators: Indicators
    categories: NDArray[np.int64]
    unused: NDArray[np.int64]
    limit: float
    candidates: NDArray[np.int64]
    probability: NDArray[np.float64]
    threshold: float
    controls: NDArray[np.int64]
    control_probability: NDArray[np.float64]

    @property
    def ids(self) -> NDArray[np.int64]:
        """int64[k]: ids of the under-trained tokens, least trained first."""
        return self.candidates[self.probability < self.threshold]

    @property
    def control_share(self) -> float:
        """Share of the control tokens that the model repeats."""
        return float((self.control_probability >= self.threshold).mean()) if len(self.controls) else 0.0

    def summary(self, tokenizer: TokenizerLike, counts: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """The result as a JSON-able dictionary.

        Args:
            tokenizer: The model's tokenizer.
            counts: int64[vocab_size], occurrences of each id in the training text, if known.
        """
        found = set(self.ids.tolist())
        rows = []
        for i, probability in zip(self.candidates.tolist(), self.probability.tolist(), strict=True):
            row = {
                "id": i,
                "text": tokenizer.vocab[i].decode("utf-8", errors="backslashreplace"),
                "category": CATEGORIES[self.categories[i]],
                "cosine": float(self.indicators.cosine[i]),
                "cosine_without_common": float(self.indicators.cosine_without_common[i]),
                "max_probability": probability,
                "undertrained": i in found,
            }
            if self.indicators.input_norm is not None:
                row["input_norm"] = float(self.indicators.input_norm[i])
            rows.append(row if counts is None else {**row, "training_count": int(counts[i])})
        by_category = {
            name: {
                "tokens": int((self.categories == n).sum()),
                "candidates": int((self.categories[self.candidates] == n).sum()),
                "undertrained": int((self.categories[self.ids] == n).sum()),
            }
            for n, name in enumerate(CATEGORIES)
        }
        summary: dict[str, Any] = {
            "tokenizer_sha256": tokenizer.sha256,
            "vocab_size": len(self.categories),
            "unused": self.unused.tolist(),
            "limit": self.limit,
            "threshold": self.threshold,
            "n_candidates": len(self.candidates),
            "n_undertrained": len(found),
            "controls": len(self.controls),
            "control_share": self.control_share,
            "by_category": by_category,
            "tokens": rows,
        }
        if counts is not None:
            unseen = np.flatnonzero(counts == 0)
            summary |= {"never_seen": len(unseen), "never_seen_found": len(found.intersection(unseen.tolist()))}
        return summary


def find_undertrained(
    model: Transformer,
    tokenizer: TokenizerLike,
    *,
    unused: Sequence[int] | None = None,
    share: float = 0.02,
    threshold: float = 0.01,
    controls: int = 100,
    most: int | None = None,
    batch_tokens: int = 8192,
) -> Undertrained:
    """Find under-trained tokens.

    Args:
        model: A trained model.
        tokenizer: Its tokenizer.
        unused: Ids that were never a target in training; None for `unused_ids`.
        share: Share of the ordinary tokens, those with the lowest indicators, that are candidates. Tokens close to the
            unused ids are candidates too.
        threshold: Candidates to which the model never gives this probability are under-trained.
        controls: Number of tokens with indicators above the median to verify as well, evenly spread.
        most: Maximum number of candidates to verify, least trained first; None for all.
        batch_tokens: Maximum number of tokens of a forward pass.

    Raises:
        UserError: If model and tokenizer do not match, no id is known to be unused, or a number is out of range.
    """
    _check(model, tokenizer, share, threshold, controls, most)
    reference = _reference(model, tokenizer, unused)
    found = indicators(model, reference)
    kinds = categories(tokenizer)
    ordinary = kinds == CATEGORIES.index("ordinary")
    limit = max(
        float(np.quantile(found.cosine[ordinary], share)) if ordinary.any() else 0.0,
        _REACH * float(found.cosine[reference].max()),
    )
    near = np.flatnonzero((found.cosine <= limit) & (kinds != CATEGORIES.index("no token")))
    near = near[np.argsort(found.cosine[near], kind="stable")][:most]
    usual = np.flatnonzero(ordinary & (found.cosine > np.median(found.cosine)))
    chosen = usual[np.linspace(0, len(usual) - 1, min(controls, len(usual))).round().astype(np.int64)]
    asked = np.concatenate([near, chosen])
    probability = repetition_probability(model, tokenizer, asked, batch_tokens=batch_tokens)
    return Undertrained(
        indicators=found,
        categories=kinds,
        unused=reference,
        limit=limit,
        candidates=near,
        probability=probability[: len(near)],
        threshold=threshold,
        controls=chosen,
        control_probability=probability[len(near) :],
    )


def _check(
    model: Transformer, tokenizer: TokenizerLike, share: float, threshold: float, controls: int, most: int | None
) -> None:
    if model.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"the model has {model.vocab_size} ids and the tokenizer {tokenizer.vocab_size}; use the model's own"
        )
    if not (0 < share < 1 and 0 < threshold < 1 and controls >= 0 and (most is None or most > 0)):
        raise UserError(
            f"share={share} and threshold={threshold} must be between 0 and 1, controls={controls} at least 0, and "
            f"most={most} positive"
        )


def _reference(model: Transformer, tokenizer: TokenizerLike, unused: Sequence[int] | None) -> NDArray[np.int64]:
    """The unused ids, in order, each once."""
    reference = np.unique(np.asarray(unused_ids(tokenizer) if unused is None else unused, np.int64))
    if len(reference) and not 0 <= reference.min() <= reference.max() < model.vocab_size:
        raise UserError(f"unused={reference.tolist()}: ids of this model are from 0 to {model.vocab_size - 1}")
    if not len(reference):
        raise UserError(
            "no id of this tokenizer is known to be unused: every byte may occur and every id has a token; name some "
            f"ids below {model.vocab_size} that do not occur in the training text"
        )
    return reference


def unused_ids(tokenizer: TokenizerLike) -> list[int]:
    """Ids that cannot occur: those of bytes that never occur in UTF-8, and ids without a token."""
    impossible = [tokenizer.byte_ids[byte] for byte in sorted(NOT_IN_UTF8)]
    return sorted([*(i for i in impossible if i >= 0), *(i for i, token in enumerate(tokenizer.vocab) if not token)])


def categories(tokenizer: TokenizerLike) -> NDArray[np.int64]:
    """Category of each id, int64[vocab_size], as an index into `CATEGORIES`.

    The first that applies: no token; special; byte (a single byte); partial UTF-8 (not whole characters); unreachable
    (its text is encoded as other ids); ordinary.
    """
    kinds = np.full(tokenizer.vocab_size, CATEGORIES.index("ordinary"))
    whole: list[int] = []
    spelled: list[str] = []
    for i, token in enumerate(tokenizer.vocab):
        try:
            spelled.append(token.decode())
            whole.append(i)
        except UnicodeDecodeError:
            kinds[i] = CATEGORIES.index("partial UTF-8")
    ids, offsets = tokenizer.encode_batch(spelled)
    single = np.diff(offsets) == 1
    itself = np.zeros(len(whole), bool)
    itself[single] = ids[offsets[:-1][single]] == np.array(whole)[single]
    kinds[np.array(whole, np.int64)[~itself]] = CATEGORIES.index("unreachable")
    kinds[[i for i in tokenizer.byte_ids if i >= 0]] = CATEGORIES.index("byte")
    kinds[list(tokenizer.special_tokens.values())] = CATEGORIES.index("special")
    kinds[[i for i, token in enumerate(tokenizer.vocab) if not token]] = CATEGORIES.index("no token")
    return kinds


@torch.no_grad()
def indicators(model: Transformer, unused: NDArray[np.int64]) -> Indicators:
    """Indicators of all ids without padding.

    Args:
        model: A trained model.
        unused: int64[n], ids that were never a target.
    """
    rows = model.lm_head.weight[: model.vocab_size].double()
    # The first principal component, from the covariance matrix [hidden_size, hidden_size].
    centred = rows - rows.mean(dim=0)
    first = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
    without = rows - torch.outer(rows @ first, first)
    place = torch.from_numpy(unused).to(rows.device)
    norms = None
    if not model.config.tie_embeddings:
        norms = model.model.embed_tokens.weight[: model.vocab_size].double().norm(dim=1).cpu().numpy()
    return Indicators(_cosine_distance(rows, place), _cosine_distance(without, place), norms)


def _cosine_distance(rows: torch.Tensor, unused: torch.Tensor) -> NDArray[np.float64]:
    mean = rows[unused].mean(dim=0, keepdim=True)
    distance: NDArray[np.float64] = (1 - torch.cosine_similarity(rows, mean, dim=1)).cpu().numpy()
    return distance

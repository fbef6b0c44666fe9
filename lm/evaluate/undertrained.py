"""Tokens that a model has hardly learnt: found by their embeddings, verified by asking the model to repeat them.

The method of Land & Bartolo, "Fishing for Magikarp" (2024, arXiv 2405.05417). Rows of the output table whose ids are
never a target all move the same way, away from what the model predicts. So rows near the mean of those that are
certainly unused belong to tokens that training has hardly seen. Certainly unused are ids of bytes that UTF-8 never has,
and ids without a token; padding ids are not, as they get no gradient at all here.

Measured on models of this package (vocabulary of 1,500, 90 tokens never seen, 320 seen less than 5 times): the cosine
distance separates the 90 from all others, tied or not (at most 0.001 against at least 0.02), and its ranks follow those
of the training counts (correlation 0.96). Without the first principal component it separates as well, but orders rare
tokens no longer. The norm of the input embedding, the paper's first choice for untied tables, errs here in 0.3 % of the
pairs: without weight decay, unseen rows keep the norm that they were drawn with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lm.data.shards import END_OF_TEXT
from tokenizer.alphabet import NOT_IN_UTF8
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.model.transformer import Transformer
    from tokenizer.tokenizer import Tokenizer

CATEGORIES = ("ordinary", "byte", "special", "unreachable", "partial UTF-8", "no token")
_REACH = 2.0
"""Tokens up to so many times as far from the mean unused row as the farthest unused one are candidates in any case."""


@dataclass(frozen=True)
class Indicators:
    """How little the rows of each real id look trained: the lower, the less.

    Attributes:
        cosine: float64[vocab_size], cosine distance of the output row to the mean of the unused ones.
        cosine_without_common: The same after the first principal component of the rows is taken out.
        input_norm: float64[vocab_size], Euclidean norm of the input row; None where the tables are one.
    """

    cosine: NDArray[np.float64]
    cosine_without_common: NDArray[np.float64]
    input_norm: NDArray[np.float64] | None


@dataclass(frozen=True)
class Undertrained:
    """What was found.

    Attributes:
        indicators: Of all ids.
        categories: int64[vocab_size], index into `CATEGORIES`.
        unused: Ids that the indicators refer to.
        limit: Candidates have a cosine distance of at most this.
        candidates: int64[n], their ids, the least trained first.
        probability: float64[n], the highest probability that the model gives each when asked to repeat it.
        threshold: Below this probability a candidate is under-trained.
        controls: int64[m], ids of tokens that look well trained.
        control_probability: float64[m], theirs. Where many are below the threshold, the model cannot repeat, and
            verification says little.
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
        """int64[k]: the under-trained tokens, the least trained first."""
        return self.candidates[self.probability < self.threshold]

    @property
    def control_share(self) -> float:
        """Share of well-trained tokens that the model does repeat."""
        return float((self.control_probability >= self.threshold).mean()) if len(self.controls) else 0.0

    def summary(self, tokenizer: Tokenizer, counts: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """All of it for a report, JSON-able.

        Args:
            tokenizer: The model's.
            counts: int64[vocab_size], occurrences in the text that the model was trained on, if they are known.
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
    tokenizer: Tokenizer,
    *,
    unused: Sequence[int] | None = None,
    share: float = 0.02,
    threshold: float = 0.01,
    controls: int = 100,
    most: int | None = None,
    batch_tokens: int = 8192,
) -> Undertrained:
    """Find tokens that the model has hardly learnt.

    Args:
        model: A trained model.
        tokenizer: Its tokenizer.
        unused: Ids that training certainly never had as a target; None for `unused_ids`.
        share: Of the ordinary tokens, those with the lowest indicators are candidates; so is what is near the unused.
        threshold: Candidates to which the model never gives this probability are under-trained.
        controls: Tokens with indicators above the median to verify as well, evenly spread.
        most: Verify no more candidates than these, the least trained; None for all.
        batch_tokens: Most tokens of a forward pass.

    Raises:
        UserError: Model and tokenizer do not belong together, no id is known to be unused, or a number is impossible.
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
    model: Transformer, tokenizer: Tokenizer, share: float, threshold: float, controls: int, most: int | None
) -> None:
    if model.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"the model has {model.vocab_size} ids and the tokenizer {tokenizer.vocab_size}; use the model's own"
        )
    if not (0 < share < 1 and 0 < threshold < 1 and controls >= 0 and (most is None or most > 0)):
        raise UserError(
            f"share={share} and threshold={threshold} must lie between 0 and 1, controls={controls} be 0 or more, and "
            f"most={most} be positive"
        )


def _reference(model: Transformer, tokenizer: Tokenizer, unused: Sequence[int] | None) -> NDArray[np.int64]:
    """The unused ids, in order, each once."""
    reference = np.unique(np.asarray(unused_ids(tokenizer) if unused is None else unused, np.int64))
    if len(reference) and not 0 <= reference.min() <= reference.max() < model.vocab_size:
        raise UserError(f"unused={reference.tolist()}: ids of this model are from 0 to {model.vocab_size - 1}")
    if not len(reference):
        raise UserError(
            "no id of this tokenizer is known to be unused: every byte token may occur and every id has a token; name "
            f"some ids below {model.vocab_size} that the training text never had"
        )
    return reference


def unused_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that no text has: of bytes that UTF-8 never uses, and those without a token."""
    impossible = [tokenizer.byte_ids[byte] for byte in sorted(NOT_IN_UTF8)]
    return sorted([*(i for i in impossible if i >= 0), *(i for i, token in enumerate(tokenizer.vocab) if not token)])


def categories(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """What kind of token each id is, int64[vocab_size], an index into `CATEGORIES`.

    The first that fits of: no token; special; byte (a single one); partial UTF-8 (not whole characters); unreachable
    (its own text has other ids); ordinary.
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
    """The indicators of all real ids.

    Args:
        model: A trained model.
        unused: int64[n], ids that were never a target.
    """
    rows = model.lm_head.weight[: model.vocab_size].double()
    # The first principal component, from the covariance: its size is the width's, not the vocabulary's.
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

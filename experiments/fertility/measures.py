"""Measures of a tokenizer on groups of documents, with confidence intervals over documents."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cli.arguments import with_sizes
from experiments.fertility.tallies import ALL, by_text
from experiments.store.manifest import command_line
from lm.evaluate.deployment import Deployment, serving_cost
from lm.evaluate.significance import Ratio
from superbpe.inspection.measures import renyi_entropy
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray

    from experiments.fertility.tallies import Documents, Group, Tally
    from tokenizer import Corpus

ALPHA, CONFIDENCE = 2.5, 0.95
LEAST_DOCUMENTS = 10
"""Fewer documents get no interval."""


def add_deployment(options: argparse.ArgumentParser) -> None:
    """Add `--deployment`, whose words `deployment` reads."""
    options.add_argument(
        "--deployment", nargs="+", default=["dense-8b"], metavar="PRESET|KEY=VALUE",
        help="model to price serving for: a preset of `deployment` and its other settings (dense-8b)",
    )  # fmt: skip


def deployments() -> dict[str, Traversable]:
    """Files of the presets of `deployment`, by name."""
    paths = sorted((files("configs") / "deployment").iterdir(), key=lambda path: path.name)
    return {path.name.removesuffix(".yaml"): path for path in paths}


def deployment(words: Sequence[str]) -> Deployment:
    """Read presets and settings; later ones override earlier ones. They are data, without interpolation.

    Raises:
        UserError: A preset or a setting is unknown, or a value is not allowed.
    """
    presets = deployments()
    kinds: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(Deployment)}
    settings: dict[str, Any] = {}
    for word in words:
        lines = presets[word].read_text(encoding="utf-8").splitlines() if word in presets else [word.replace("=", ": ")]
        for key, colon, value in (line.partition(": ") for line in lines if line and not line.startswith("#")):
            if not colon:
                hint = f"{did_you_mean(word, presets)} nor KEY=VALUE; the presets are {', '.join(presets)}"
                raise UserError(f"deployment: {word} is neither a preset{hint}")
            if key not in kinds:
                raise UserError(f"deployment: {key}={value}: unknown setting{did_you_mean(key, kinds)}")
            try:
                settings[key] = kinds[key](with_sizes(value))
            except ValueError:
                raise UserError(f"deployment: {key}={value} is not a number; write one, such as {key}=1000") from None
    return Deployment(**settings)


def report(
    arguments: argparse.Namespace, text: Corpus, documents: Documents, reference: str, deployed: Deployment
) -> dict[str, Any]:
    """The part of the numbers, as JSON, that does not depend on the tokenizers.

    Args:
        arguments: Those of the command.
        text: The text that the user named.
        documents: The measured documents.
        reference: Name of the tokenizer with which the others are compared.
        deployed: The model whose serving is priced.
    """
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "reference": reference,
        "alpha": getattr(arguments, "alpha", ALPHA),
        "confidence": CONFIDENCE,
        "least_documents": LEAST_DOCUMENTS,
        "text": {
            "files": [str(path) for path, _ in text.files],
            "documents": len(documents),
            "bytes": int(documents.n_bytes.sum()),
            "words": int(documents.n_words.sum()),
        },
        "deployment": {"name": " ".join(arguments.deployment), **asdict(deployed)},
        "rows": [],
    }


def rows(
    name: str,
    tally: Tally,
    documents: Documents,
    reference: Tally,
    *,
    alpha: float = ALPHA,
    deployed: Deployment,
    in_training: NDArray[np.bool_] | None = None,
) -> list[dict[str, Any]]:
    """Measure a tokenizer on every group.

    Args:
        name: Name of the tokenizer.
        tally: Its counts.
        documents: The documents.
        reference: Counts of the reference.
        alpha: Order of the Rényi entropy.
        deployed: The model whose serving is priced.
        in_training: bool[n_documents], whether a document is in its training text; None if that is unknown.

    Returns:
        A row for each group, as JSON: totals over its documents, divided once. `bytes_per_token` (compression),
        `tokens_per_word` (fertility; words are separated by white space) and `parity` (tokens divided by the
        reference's tokens of the same documents) have intervals, `…_low` and `…_high`; they are None if they are
        undefined. `vocabulary` is the number of ordinary tokens, without special tokens and unused ids; `used` are
        those that occur, and `renyi_efficiency` is the Rényi entropy of the token distribution over log2(vocabulary)
        (Zouhar et al. 2023), both for all text only. `lost_bytes` are bytes that no token stands for, or only the
        unknown token. The cost of serving is FLOPs and seconds per byte of text that is read (`prefill_…`) and
        decoded (`decode_…`), and bytes of the KV cache per byte of text; None without tokens.
    """
    ordinary = tally.tokenizer.ordinary_ids()
    efficiency = renyi_entropy(tally.counts, alpha) / math.log2(max(len(ordinary), 2)) if tally.counts.any() else 0.0

    def row(group: Group) -> dict[str, Any]:
        chosen, whole = group.documents[tally.measured[group.documents]], group.by == ALL
        sizes, words, tokens = documents.n_bytes[chosen], documents.n_words[chosen], tally.tokens[chosen]
        common = chosen[reference.measured[chosen]]
        ratios = {
            "bytes_per_token": ratio(*by_text(documents.hashes[chosen], sizes, tokens)),
            "tokens_per_word": ratio(*by_text(documents.hashes[chosen], tokens, words)),
            "parity": ratio(*by_text(documents.hashes[common], tally.tokens[common], reference.tokens[common])),
        }
        n_bytes, n_tokens = int(sizes.sum()), int(tokens.sum())
        cost = serving_cost(deployed, vocab_size=tally.tokenizer.vocab_size, tokens_per_byte=max(n_tokens, 1) / n_bytes)
        prices = {
            f"{phase}_{measure}_per_byte": getattr(getattr(cost, phase), f"{measure}_per_byte")
            for phase in ("prefill", "decode")
            for measure in ("flops", "seconds")
        } | {"cache_bytes_per_byte": cost.cache_bytes_per_byte}
        return {
            "tokenizer": name,
            "by": group.by,
            "group": group.name,
            "documents": len(chosen),
            "bytes": n_bytes,
            "words": int(words.sum()),
            "tokens": n_tokens,
            **{
                f"{key}{end}": x
                for key, ends in ratios.items()
                for end, x in zip(("", "_low", "_high"), ends, strict=True)
            },
            "vocabulary": len(ordinary),
            "used": int(np.count_nonzero(tally.counts[ordinary])) if whole else None,
            "renyi_efficiency": efficiency if whole else None,
            "changed_documents": int(np.count_nonzero(tally.changed[chosen])),
            "lost_bytes": int(tally.lost[chosen].sum()),
            "in_training_bytes": None if in_training is None else int(sizes[in_training[chosen]].sum()),
            **(prices if n_tokens else dict.fromkeys(prices)),
        }

    return [row(group) for group in documents.groups if tally.measured[group.documents].any()]


def ratio(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64]
) -> tuple[float | None, float | None, float | None]:
    """Ratio of totals over texts, and the ends of its interval; None if they are undefined.

    If both are counts of tokens, the interval is paired, since they are of the same documents.
    """
    if not denominators.any():
        return None, None, None
    measured = Ratio.of(numerators[None], denominators)
    interval = measured.known_interval(CONFIDENCE) if len(numerators) >= LEAST_DOCUMENTS else None
    return int(numerators.sum()) / int(denominators.sum()), *(interval or (None, None))

"""Loss per byte on held-out documents, with confidence intervals.

The rules (why they make two tokenizers comparable):

- `<|endoftext|>` precedes every document. Every text token is scored exactly once. The `<|endoftext|>`
  that ends a document is predicted after its last token, scored once per document, the last one included,
  and reported apart: it stands for no bytes.
- The denominator is the UTF-8 bytes of the original documents, asserted equal to the bytes of the tokens.
- Averages are micro-averages: all nats over all bytes.
- Contexts are measured in bytes (`lm.windows`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lm.bootstrap import percentile_interval, resampled_ratios
from lm.eval_config import EvalConfig as EvalConfig
from lm.scoring import score_documents
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from lm.model import Transformer
    from lm.shards import Shards
    from tokenizer.progress import Progress

Verdict = Literal["A better", "B better", "no significant difference"]
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one set of documents.

    Attributes:
        config: How it was scored.
        tokenizer_sha256: Name of the tokenizer.
        document_bytes: int64[n_documents], UTF-8 bytes of each original document.
        document_tokens: int64[n_documents], text tokens of each.
        text_nats: float64[n_documents], loss of the text tokens of each.
        eos_nats: float64[n_documents], loss of the `<|endoftext|>` that ends each.
        limited_bytes: Bytes scored in windows that the trained positions bounded.
        short_context_bytes: Bytes scored with less context than asked for though the document had it.
        context_bytes_sum: Sum of the context's bytes over all scored bytes.
    """

    config: EvalConfig
    tokenizer_sha256: str
    document_bytes: NDArray[np.int64]
    document_tokens: NDArray[np.int64]
    text_nats: NDArray[np.float64]
    eos_nats: NDArray[np.float64]
    limited_bytes: int
    short_context_bytes: int
    context_bytes_sum: int

    @property
    def bits_per_byte(self) -> float:
        """Loss of all text tokens in bits over all original bytes."""
        return float(self.text_nats.sum()) / math.log(2) / int(self.document_bytes.sum())

    def resampled_bits_per_byte(self) -> NDArray[np.float64]:
        """float64[bootstrap_samples]: bits per byte of resampled documents."""
        bits = self.text_nats / math.log(2)
        samples, seed = self.config.bootstrap_samples, self.config.seed
        return resampled_ratios(bits, self.document_bytes, samples=samples, seed=seed)

    def summary(self) -> dict[str, Any]:
        """The numbers to report, JSON-able; the interval is None if there are fewer than two documents."""
        n_bytes, n_tokens = int(self.document_bytes.sum()), int(self.document_tokens.sum())
        nats, n_documents = float(self.text_nats.sum()), len(self.text_nats)
        interval = None
        if n_documents > 1:
            interval = list(percentile_interval(self.resampled_bits_per_byte(), self.config.confidence))
        return {
            "bits_per_byte": self.bits_per_byte,
            "bits_per_byte_interval": interval,
            "confidence": self.config.confidence,
            "nats_per_byte": nats / n_bytes,
            "nats_per_token": nats / n_tokens,
            "nats_per_document": nats / n_documents,
            "eos_nats_per_document": float(self.eos_nats.mean()),
            "bytes_per_token": n_bytes / n_tokens,
            "n_documents": n_documents,
            "n_bytes": n_bytes,
            "n_tokens": n_tokens,
            "context_bytes": self.config.context_bytes,
            "min_context_bytes": self.config.min_context_bytes,
            "mean_context_bytes": self.context_bytes_sum / n_bytes,
            "position_limited_share": self.limited_bytes / n_bytes,
            "short_context_share": self.short_context_bytes / n_bytes,
            "tokenizer_sha256": self.tokenizer_sha256,
        }

    def save(self, folder: Path) -> None:
        """Write `documents.npz`, then `evaluation.json`, which says that the folder is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with (folder / "documents.npz").open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        scalars = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in (*_ARRAYS, "config")
        }
        content = {
            "format_version": _FORMAT_VERSION,
            "config": dataclasses.asdict(self.config),
            **scalars,
            "summary": self.summary(),
        }
        partial = folder / ".evaluation.json.partial"
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(folder / "evaluation.json")

    @classmethod
    def load(cls, folder: Path) -> Evaluation:
        """Read what `save` wrote.

        Raises:
            UserError: If the folder does not hold a whole evaluation.
        """
        try:
            content = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
            with np.load(folder / "documents.npz", allow_pickle=False) as file:
                arrays = {name: file[name] for name in _ARRAYS}
            version = content.pop("format_version")
            del content["summary"]
            evaluation = cls(**{**content, "config": EvalConfig(**content["config"])}, **arrays)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder} holds no whole evaluation ({error!r}); evaluate again") from error
        if version != _FORMAT_VERSION or len({len(array) for array in arrays.values()}) != 1:
            raise UserError(f"{folder} holds a damaged evaluation, or one of version {version}; evaluate again")
        return evaluation


_ARRAYS = ("document_bytes", "document_tokens", "text_nats", "eos_nats")


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same documents; B minus A.

    Attributes:
        bits_per_byte_a: Of A, likewise `bits_per_byte_b`.
        difference: bits_per_byte_b - bits_per_byte_a; negative means that B is better.
        interval: Of the difference (paired bootstrap over documents); None below two documents.
        confidence: Of the interval.
        n_documents: Documents that both scored.
        verdict: "no significant difference" if the interval contains 0.
    """

    bits_per_byte_a: float
    bits_per_byte_b: float
    difference: float
    interval: tuple[float, float] | None
    confidence: float
    n_documents: int
    verdict: Verdict

    def summary(self) -> dict[str, Any]:
        """The same, JSON-able."""
        content = dataclasses.asdict(self)
        return content | {"interval": list(self.interval) if self.interval else None}


def evaluate(
    model: Transformer,
    shards: Shards,
    token_byte_lengths: NDArray[Any],
    config: EvalConfig,
    *,
    progress: Progress | None = None,
) -> Evaluation:
    """Score every document of `shards`.

    Args:
        model: Anything with a `Transformer`'s forward, vocab_size, context_tokens and tokenizer_sha256.
        shards: The held-out documents.
        token_byte_lengths: int[vocab_size] raw bytes of each token, `Tokenizer.token_byte_lengths()`.
        config: Windows and intervals.
        progress: Called after every group of documents with ("evaluate", documents done, documents).

    Raises:
        UserError: If model and shards do not belong together, a token is longer than the context, or the
            tokens do not have the documents' bytes.
    """
    lengths = np.asarray(token_byte_lengths, np.int64)
    if len(lengths) != shards.vocab_size or model.vocab_size != shards.vocab_size:
        raise UserError(
            f"vocabularies differ: model {model.vocab_size}, shards {shards.vocab_size}, byte lengths "
            f"{len(lengths)}; use the tokenizer that wrote the shards and a model trained with it"
        )
    if model.tokenizer_sha256 and model.tokenizer_sha256 != shards.tokenizer_sha256:
        raise UserError(
            f"the model was trained with tokenizer {model.tokenizer_sha256[:12]}, the shards were written by "
            f"{shards.tokenizer_sha256[:12]}; use shards and model of one tokenizer"
        )
    if lengths.max() > config.context_bytes:
        raise UserError(
            f"context_bytes={config.context_bytes} is below the longest token ({lengths.max()} bytes); "
            f"use at least {lengths.max()}"
        )
    scores = score_documents(model, shards, lengths, config, progress)
    return Evaluation(
        config=config,
        tokenizer_sha256=shards.tokenizer_sha256,
        document_bytes=np.array(shards.document_bytes),
        document_tokens=np.diff(shards.document_ends, prepend=0) - 1,
        text_nats=scores.text_nats,
        eos_nats=scores.eos_nats,
        limited_bytes=scores.limited_bytes,
        short_context_bytes=scores.short_context_bytes,
        context_bytes_sum=scores.context_bytes_sum,
    )


def compare(a: Evaluation, b: Evaluation) -> Comparison:
    """Compare two evaluations of the same documents with a paired bootstrap over documents.

    Args:
        a: The baseline.
        b: The other.

    Raises:
        UserError: If they scored different documents, or scored them differently.
    """
    if not np.array_equal(a.document_bytes, b.document_bytes):
        raise UserError(
            f"the two evaluations scored different documents ({len(a.document_bytes)} and "
            f"{len(b.document_bytes)}, or of different sizes); evaluate both on the same held-out text"
        )
    # How many tokens a forward pass takes changes nothing.
    if dataclasses.replace(a.config, batch_tokens=1) != dataclasses.replace(b.config, batch_tokens=1):
        raise UserError(f"the two evaluations differ in their settings ({a.config} and {b.config}); use the same")
    interval = None
    verdict: Verdict = "no significant difference"
    if len(a.document_bytes) > 1:
        differences = b.resampled_bits_per_byte() - a.resampled_bits_per_byte()
        interval = percentile_interval(differences, a.config.confidence)
        if interval[0] > 0:
            verdict = "A better"
        elif interval[1] < 0:
            verdict = "B better"
    return Comparison(
        bits_per_byte_a=a.bits_per_byte,
        bits_per_byte_b=b.bits_per_byte,
        difference=b.bits_per_byte - a.bits_per_byte,
        interval=interval,
        confidence=a.config.confidence,
        n_documents=len(a.document_bytes),
        verdict=verdict,
    )

"""Text on a comparison page: segmented held-out documents, superwords, generated text."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.stages.shards import open_shards
from lm.model.generation import SamplingConfig, generate
from lm.model.language_model import LanguageModel
from lm.model.weights import load_model
from superbpe.inspection import tokens as inspection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from experiments.config import ReportConfig
    from experiments.stages.comparison import ArmResult, Result


def documents(each: ArmResult) -> Iterator[str]:
    """The held-out documents, decoded from the shards that were scored."""
    tokenizer = each.tokenizer
    shards = open_shards(each.heldout, each.arm)
    for i in range(shards.n_documents):
        yield tokenizer.decode(shards.document(i))


_SUPERWORDS = 60
"""Length of each list of superwords."""
_SEGMENTED_BYTES = 1_600
"""Length of the segmented part of a document."""
_PROMPT_BYTES = 80
_SAMPLING = SamplingConfig(temperature=0.8, top_p=0.8, max_new_bytes=240)


def original(result: Result) -> ArmResult:
    """The first arm whose tokenizer does not change text, so that its shards decode to the original documents.

    The first arm, if every tokenizer changes text.
    """
    return next((each for each in result.arms if not each.tokenizer.changes_text), result.arms[0])


def heldout(result: Result, n_bytes: int) -> list[str]:
    """The first held-out documents, about `n_bytes` in total."""
    taken, total = [], 0
    for document in documents(original(result)):
        taken.append(document)
        total += len(document.encode())
        if total >= n_bytes:
            break
    return taken


def superwords(result: Result, texts: Sequence[str], threads: int | None) -> list[dict[str, Any]]:
    """Superwords of every arm that has superwords."""
    return [_superwords(each, texts, threads) for each in result.arms if len(each.tokenizer.superword_ids())]


def _superwords(each: ArmResult, texts: Sequence[str], threads: int | None) -> dict[str, Any]:
    tokenizer = each.tokenizer
    counts = np.bincount(tokenizer.encode_batch(texts, threads=threads)[0], minlength=tokenizer.vocab_size)
    found = inspection.superwords(tokenizer, counts)
    frequent = sorted(found, key=lambda word: -word.count)
    longest = sorted(frequent, key=lambda word: -word.n_bytes)
    n_bytes = int(counts @ tokenizer.token_byte_lengths().astype("int64"))
    return {
        "label": each.label,
        "n": len(found),
        "vocab_size": tokenizer.vocab_size,
        "share_of_tokens": sum(word.count for word in found) / max(int(counts.sum()), 1),
        "share_of_bytes": sum(word.count * word.n_bytes for word in found) / max(n_bytes, 1),
        "unused": sum(word.count == 0 for word in found),
        "longest": [dataclasses.asdict(word) for word in longest[:_SUPERWORDS]],
        "most_frequent": [dataclasses.asdict(word) for word in frequent[:_SUPERWORDS]],
    }


def segmented(result: Result) -> dict[str, Any]:
    """One held-out document, segmented by every tokenizer."""
    number, document = _choose(result)
    shown = document.encode()[:_SEGMENTED_BYTES].decode("utf-8", errors="ignore")
    whole = len(shown) == len(document)
    if not whole and " " in shown:
        shown = shown[: shown.rindex(" ")]
    found = []
    for each in result.arms:
        pieces = inspection.segment(each.tokenizer, shown)
        found.append(
            {
                "label": each.label,
                "n_tokens": len(pieces),
                "bytes_per_token": len(shown.encode()) / max(len(pieces), 1),
                "pieces": [dataclasses.asdict(piece) for piece in pieces],
            }
        )
    return {"document": number, "whole": whole, "sides": found}


def _choose(result: Result) -> tuple[int, str]:
    """Return the first document that fills the sample, else the first document."""
    first = ""
    for number, document in enumerate(documents(original(result))):
        if len(document.encode()) >= _SEGMENTED_BYTES:
            return number, document
        first = first or document
    return 0, first


def generated(result: Result, settings: ReportConfig) -> dict[str, Any]:
    """Continuations of the beginnings of held-out documents by the models of the first seed."""
    prompts = _prompts(result, settings)
    if not prompts:
        return {"prompts": [], "sampling": {}, "sides": []}
    found = []
    for each in result.arms:
        model = LanguageModel(load_model(each.lm.path), each.tokenizer)
        samples = generate(model, prompts, _SAMPLING)
        found.append(
            {
                "label": each.label,
                "samples": [
                    {"text": sample.text, "n_tokens": len(sample.ids), "finish": sample.finish} for sample in samples
                ],
            }
        )
    return {"prompts": prompts, "sampling": dataclasses.asdict(_SAMPLING), "sides": found}


def _prompts(result: Result, settings: ReportConfig) -> list[str]:
    """Beginnings of the first held-out documents that are long enough, cut before a space."""
    prompts: list[str] = []
    for document in documents(original(result)):
        if len(prompts) == settings.n_samples:
            break
        start = document.encode()[:_PROMPT_BYTES].decode("utf-8", errors="ignore")
        if len(start) < len(document) and " " in start.strip():
            prompts.append(start[: start.rindex(" ")])
    return prompts

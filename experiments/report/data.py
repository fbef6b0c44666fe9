"""The numbers of a report, as they go into `report.json` and onto the page."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.artifacts import Artifact, command_line
from experiments.stages.models import loss_curve
from experiments.stages.verdict import detail, is_demonstration, percent, signed, verdict
from superbpe import history, inspection
from tokenizer import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.config import ReportConfig
    from experiments.stages.context import Context
    from experiments.stages.evaluation import Judged, Result
    from experiments.stages.text import Text
    from tokenizer.bpe import Tokenizer
    from tokenizer.corpus import Corpus

_LOSS_POINTS = 200
_SMOOTHING = 0.9


def gather(context: Context, text: Text, counts: Artifact, result: Result) -> dict[str, Any]:
    """Measure what the report shows beyond the evaluation, and return all of it, JSON-able."""
    config = context.config.report
    threads = context.config.runner.threads
    heldout = _heldout(text.corpus, config.curve_bytes)
    second = result.judged[1]
    return {
        "title": config.title,
        "demonstration": is_demonstration(context),
        "verdict": {
            "winner": result.winner.candidate.trained.key if result.winner else None,
            "sentence": verdict(result),
            "detail": detail(result),
            "difference": result.comparison.difference,
            "low": result.comparison.interval[0] if result.comparison.interval else None,
            "high": result.comparison.interval[1] if result.comparison.interval else None,
            "confidence": result.comparison.confidence,
            "documents": result.comparison.n_documents,
        },
        "tiles": _tiles(result),
        "tokenizers": [_row(judged) for judged in result.judged],
        "measured_bytes": sum(len(document.encode()) for document in heldout),
        "compression": [
            {"tokenizer": judged.candidate.trained.label, "vocab_size": size, "bytes_per_token": density}
            for judged in result.judged
            for size, density in _compression(judged.candidate.trained.tokenizer, heldout, config.curve_points, threads)
        ],
        "loss": [row for judged in result.judged for row in _loss(judged)],
        "superwords": _superwords(second, heldout, config, threads),
        "sample": _sample(result.judged, text.corpus, config),
        "provenance": _provenance(context, text, counts, result),
    }


def _compression(
    tokenizer: Tokenizer, documents: Sequence[str], points: int, threads: int | None
) -> list[tuple[int, float]]:
    """Vocabulary sizes, and bytes per token of the tokenizer cut to each."""
    found = history.measure(tokenizer, [Batch.from_texts(documents)], threads=threads)
    values = found.bytes_per_token()
    return [(size, float(values[size - found.first_size])) for size in inspection.curve_sizes(tokenizer, points)]


def _tiles(result: Result) -> list[dict[str, str]]:
    first, second = result.judged
    labels = f"{second.candidate.trained.label} against {first.candidate.trained.label}"
    tokens = percent(second.summary["n_tokens"], first.summary["n_tokens"])
    interval = result.comparison.interval
    spread = f" ({signed(interval[0])} to {signed(interval[1])})" if interval else ""
    return [
        {
            "value": percent(second.summary["bytes_per_token"], first.summary["bytes_per_token"]),
            "text": f"bytes per token, {labels}: {tokens} tokens for the same held-out text",
        },
        {
            "value": signed(result.comparison.difference),
            "text": f"bits per byte on held-out text{spread}; less is better",
        },
        {
            "value": percent(second.candidate.lm.contents["flops"], first.candidate.lm.contents["flops"]),
            "text": "training FLOPs for the same text",
        },
    ]


def _row(judged: Judged) -> dict[str, Any]:
    trained, model, summary = judged.candidate.trained, judged.candidate.lm.contents, judged.summary
    tokenizer = trained.tokenizer
    low, high = summary["bits_per_byte_interval"] or (None, None)
    two_phases = len(tokenizer.merges) > tokenizer.n_phase1_merges
    return {
        "key": trained.key,
        "label": trained.label,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "transition": 256 + tokenizer.n_phase1_merges if two_phases else None,
        "superwords": len(tokenizer.superword_ids()),
        "bytes_per_token": summary["bytes_per_token"],
        "bits_per_byte": summary["bits_per_byte"],
        "low": low,
        "high": high,
        "evaluation": summary,
        "train_tokens": model["tokens"],
        "train_bytes": model["bytes"],
        "train_steps": model["steps"],
        "train_flops": model["flops"],
        "train_seconds": model["seconds"],
        "parameters": model["parameters_total"],
        "context_tokens": model["context_tokens"],
    }


def _loss(judged: Judged) -> list[dict[str, Any]]:
    """The training loss, and its exponential moving average without the bias towards its start."""
    curve = loss_curve(judged.candidate.lm, _LOSS_POINTS)
    rows, average, weight = [], 0.0, 0.0
    for seen, bits in curve:
        average, weight = _SMOOTHING * average + bits, _SMOOTHING * weight + 1
        row = {"bytes_seen": seen, "bits_per_byte": bits, "smoothed": average / weight}
        rows.append({"tokenizer": judged.candidate.trained.label, **row})
    return rows


def _superwords(judged: Judged, heldout: Sequence[str], config: ReportConfig, threads: int | None) -> dict[str, Any]:
    tokenizer = judged.candidate.trained.tokenizer
    counts = inspection.token_counts(tokenizer, heldout, threads=threads)
    found = inspection.superwords(tokenizer, counts)
    n_bytes = int(counts @ tokenizer.token_byte_lengths().astype("int64"))
    return {
        "label": judged.candidate.trained.label,
        "n": len(found),
        "vocab_size": tokenizer.vocab_size,
        "share_of_tokens": sum(word.count for word in found) / max(int(counts.sum()), 1),
        "share_of_bytes": sum(word.count * word.n_bytes for word in found) / max(n_bytes, 1),
        "unused": sum(word.count == 0 for word in found),
        "longest": [dataclasses.asdict(word) for word in inspection.longest(found, config.n_superwords)],
        "most_frequent": [dataclasses.asdict(word) for word in inspection.most_frequent(found, config.n_superwords)],
        "by_words": [
            {"words": words, "superwords": number, "count": count}
            for words, number, count in inspection.by_words(found)
        ],
    }


def _sample(judged: Sequence[Judged], corpus: Corpus, config: ReportConfig) -> dict[str, Any]:
    number, document = _choose(corpus, config)
    shown = document.encode()[: config.sample_bytes].decode("utf-8", errors="ignore")
    whole = len(shown) == len(document)
    if not whole and " " in shown:
        shown = shown[: shown.rindex(" ")]
    sides = []
    for each in judged:
        pieces = inspection.segment(each.candidate.trained.tokenizer, shown)
        sides.append(
            {
                "label": each.candidate.trained.label,
                "n_tokens": len(pieces),
                "bytes_per_token": len(shown.encode()) / max(len(pieces), 1),
                "pieces": [dataclasses.asdict(piece) for piece in pieces],
            }
        )
    return {"document": number, "whole": whole, "sides": sides}


def _choose(corpus: Corpus, config: ReportConfig) -> tuple[int, str]:
    """Return the configured document, or else the first that fills the sample, or else the first of all."""
    first = ""
    for number, document in enumerate(corpus.documents("heldout")):
        if config.sample_document == number:
            return number, document
        if config.sample_document is None and len(document.encode()) >= config.sample_bytes:
            return number, document
        first = first or document
    return 0, first


def _heldout(corpus: Corpus, n_bytes: int) -> list[str]:
    taken, total = [], 0
    for document in corpus.documents("heldout"):
        taken.append(document)
        total += len(document.encode())
        if total >= n_bytes:
            break
    return taken


def _provenance(context: Context, text: Text, counts: Artifact, result: Result) -> dict[str, Any]:
    stages = [("corpus", text.artifact)] if text.artifact else []
    stages.append(("count", counts))
    for judged in result.judged:
        candidate, key = judged.candidate, judged.candidate.trained.key
        stages += [
            (f"{key} training", candidate.trained.record),
            (f"{key} tokenizer", candidate.trained.artifact),
            (f"{key} shards, training", candidate.readers[-1]),
            (f"{key} shards, held-out", candidate.heldout),
            (f"{key} language model", candidate.lm),
            (f"{key} evaluation", judged.artifact),
        ]
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "corpus": [list(fact) for fact in text.facts],
        "artifacts": [
            {
                "stage": stage,
                "name": artifact.name,
                "hash": artifact.hash,
                **{key: artifact.manifest[key] for key in ("seconds", "peak_memory_bytes", "made", "command")},
            }
            for stage, artifact in stages
        ],
        "versions": result.judged[0].artifact.manifest["versions"],
        "platform": result.judged[0].artifact.manifest["platform"],
        "config": OmegaConf.to_yaml(OmegaConf.create(dataclasses.asdict(context.config))),
    }

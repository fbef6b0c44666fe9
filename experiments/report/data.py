"""The numbers of a comparison, as they go into `report.json` and onto the page: any number of tokenizers and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.report import diagnostics, texts
from experiments.stages.models import loss_curve
from experiments.stages.verdict import conditions, detail, percent, signed, verdict
from lm.evaluate.token_statistics import TokenFacts, loss_by_bytes, loss_by_phase
from superbpe.inspection import history
from superbpe.inspection import vocabulary as inspection
from tokenizer import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.config import ReportConfig
    from experiments.stages.evaluation import Judged, Result
    from tokenizer.tokenizer import Tokenizer

_LOSS_POINTS = 200
_SMOOTHING = 0.9


def gather(
    result: Result,
    settings: ReportConfig,
    *,
    demonstration: bool,
    provenance: Mapping[str, Any],
    threads: int | None = None,
) -> dict[str, Any]:
    """Measure what a report shows beyond the evaluation, and return all of it, JSON-able.

    Args:
        result: The comparison.
        settings: What to show.
        demonstration: Whether to say that it is no evidence.
        provenance: Where everything came from, as `experiments.stages.reporting.provenance` says it.
        threads: For encoding; None for all cores.
    """
    heldout = texts.heldout(result, settings.curve_bytes)
    compared = result.shown
    winner = result.winner
    labels = [judged.candidate.trained.label for judged in result.judged]
    return {
        "title": settings.title,
        "demonstration": demonstration,
        "verdict": {
            "winner": winner.candidate.trained.key if winner else None,
            "sentence": verdict(result),
            "detail": detail(result),
            "difference": compared.difference,
            "low": compared.interval[0] if compared.interval else None,
            "high": compared.interval[1] if compared.interval else None,
            "confidence": compared.confidence,
            "documents": compared.n_documents,
            "seeds": compared.n_seeds,
        },
        "conditions": conditions(result),
        "tiles": _tiles(result),
        "tokenizers": [_row(judged, labels) for judged in result.judged],
        "pairs": _pairs(result),
        "groups": {name: _groups(result, name) for name in ("script", "source")},
        "measured_bytes": sum(len(document.encode()) for document in heldout),
        "compression": [
            {"tokenizer": judged.candidate.trained.label, "vocab_size": size, "bytes_per_token": density}
            for judged in result.judged
            for size, density in _compression(
                judged.candidate.trained.tokenizer, heldout, settings.curve_points, threads
            )
        ],
        "loss": [row for judged in result.judged for row in _loss(judged)],
        "by_length": [row for judged in result.judged for row in _by_length(judged)],
        "by_phase": [row for judged in result.judged for row in _by_phase(judged)],
        "superwords": texts.superwords(result, heldout, settings.n_superwords, threads),
        "early": _early(result),
        "sample": texts.segmented(result, settings),
        "generated": texts.generated(result, settings),
        "training": diagnostics.gather(result, settings),
        "provenance": dict(provenance),
    }


def _compression(
    tokenizer: Tokenizer, documents: Sequence[str], points: int, threads: int | None
) -> list[tuple[int, float]]:
    """Vocabulary sizes, and bytes per token of the tokenizer cut to each."""
    found = history.measure(tokenizer, [Batch.from_texts(documents)], threads=threads)
    values = found.bytes_per_token()
    return [(size, float(values[size - found.first_size])) for size in inspection.curve_sizes(tokenizer, points)]


def _tiles(result: Result) -> list[dict[str, str]]:
    """The main numbers of the second against the first; of more than two, of the one that the verdict is about."""
    first, second = (result.judged[i] for i in result.pair)
    labels = f"{second.candidate.trained.label} against {first.candidate.trained.label}"
    tokens = percent(second.summary["n_tokens"], first.summary["n_tokens"])
    interval = result.shown.interval
    spread = f" ({signed(interval[0])} to {signed(interval[1])})" if interval else ""
    costs = [judged.summary["cost"]["decode_flops_per_byte"] for judged in (first, second)]
    return [
        {
            "value": percent(second.summary["bytes_per_token"], first.summary["bytes_per_token"]),
            "text": f"bytes per token, {labels}: {tokens} tokens for the same held-out text",
        },
        {
            "value": signed(result.shown.difference),
            "text": f"bits per byte on held-out text{spread}; less is better",
        },
        {
            "value": percent(second.candidate.lm.contents["flops"], first.candidate.lm.contents["flops"]),
            "text": "training FLOPs",
        },
        {
            "value": percent(costs[1], costs[0]),
            "text": "FLOPs of inference per byte, the output head included",
        },
    ]


def _row(judged: Judged, labels: Sequence[str]) -> dict[str, Any]:
    trained, model, summary = judged.candidate.trained, judged.candidate.lm.contents, judged.summary
    tokenizer = trained.tokenizer
    low, high = summary["bits_per_byte_interval"] or (None, None)
    two_phases = len(tokenizer.merges) > tokenizer.n_phase1_merges
    return {
        "key": trained.key,
        "label": trained.label,
        "series": judged.series,
        "partner": None if judged.partner is None else labels[judged.partner],
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "vocab_used": int((judged.evaluations[0].token_counts > 0).sum()),
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
        "cost": summary["cost"],
        "downstream": judged.downstream,
    }


def _pairs(result: Result) -> list[dict[str, Any]]:
    labels = [judged.candidate.trained.label for judged in result.judged]
    return [
        {
            "a": labels[i],
            "b": labels[j],
            "difference": found.difference,
            "low": found.interval[0] if found.interval else None,
            "high": found.interval[1] if found.interval else None,
            "p_adjusted": found.p_adjusted,
            "verdict": found.verdict,
        }
        for (i, j), found in result.comparisons.items()
    ]


def _groups(result: Result, name: str) -> list[dict[str, Any]]:
    """Bits per byte and bytes per token of the documents of each source or script; nothing if there is one only."""
    rows = [
        {"tokenizer": judged.candidate.trained.label, **row}
        for judged in result.judged
        for row in judged.summary.get(f"by_{name}", [])
    ]
    return rows if len({row["name"] for row in rows}) > 1 else []


def _loss(judged: Judged) -> list[dict[str, Any]]:
    """The training loss, and its exponential moving average without the bias towards its start."""
    label = judged.candidate.trained.label
    rows, average, weight = [], 0.0, 0.0
    for point in loss_curve(judged.candidate.lm, _LOSS_POINTS):
        average, weight = _SMOOTHING * average + point.bits_per_byte, _SMOOTHING * weight + 1
        rows.append({"tokenizer": label, **point._asdict(), "smoothed": average / weight})
    return rows


def _by_length(judged: Judged) -> list[dict[str, Any]]:
    found = judged.evaluations[0]
    facts = TokenFacts.of(judged.candidate.trained.tokenizer)
    rows = loss_by_bytes(found.token_nats, found.token_counts, facts)
    return [{"tokenizer": judged.candidate.trained.label, **row} for row in rows]


def _by_phase(judged: Judged) -> list[dict[str, Any]]:
    found = judged.evaluations[0]
    facts = TokenFacts.of(judged.candidate.trained.tokenizer)
    rows = loss_by_phase(found.token_nats, found.token_counts, facts)
    return [{"tokenizer": judged.candidate.trained.label, **row} for row in rows]


def _early(result: Result) -> list[dict[str, Any]]:
    """What the first merges of phase 2 brought, of every tokenizer that has one."""
    return [
        {"tokenizer": judged.candidate.trained.label, **row}
        for judged in result.judged
        for row in judged.candidate.trained.record.contents.get("early", [])
        if row["merges"]
    ]

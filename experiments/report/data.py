"""The numbers of a comparison for `report.json` and the page, for any number of tokenizers and seeds."""

from __future__ import annotations

import dataclasses
import itertools
import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.findings import answer, division
from experiments.findings.differences import differences
from experiments.findings.next_step import next_step
from experiments.findings.verdict import at_scale_of, conditions, detail, lost_text, verdict
from experiments.numbers import percent_change, signed
from experiments.report import texts
from experiments.report.labels import describe_phase1
from experiments.stages.contamination import sentence
from experiments.stages.models import METRICS
from lm.evaluate.comparison import Comparison
from lm.evaluate.deployment import training_flops
from superbpe.inspection import history
from tokenizer import Batch
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from experiments.findings.compared import Findings, ScoredArm
    from lm.evaluate.deployment import Deployment
    from tokenizer.interface import TokenizerLike

_CURVE_BYTES, _CURVE_POINTS = 2_000_000, 10
"""Held-out text for the compression curve, and vocabulary sizes on it."""
_LEARNING_POINTS = 20
"""Points of a learning curve, from a twentieth of the text to all of it."""


def gather(
    result: Findings,
    *,
    deployment: Deployment,
    provenance: Mapping[str, Any],
    command: str,
    threads: int | None = None,
) -> dict[str, Any]:
    """Measure what a report shows beyond the evaluation, and return all numbers, JSON-able.

    Args:
        result: The comparison.
        deployment: The model that will be deployed, whose training FLOPs the page shows too.
        provenance: Output of `experiments.report.artifact.provenance`.
        command: Command line of the run, for the command that would settle what is open.
        threads: Threads for encoding; None for all cores.
    """
    heldout, parts = texts.heldout(result, _CURVE_BYTES), differences(result)
    compared = result.shown if len(result.arms) > 1 else None
    low, high = (compared.interval if compared else None) or (None, None)
    winner, labels = result.winner, result.labels
    step = next_step(list(result.tested.values()), result.arms[0].settings, command, result.seed_seconds)
    return {
        "title": f"{' and '.join(labels) if len(labels) == 2 else f'{len(labels)} tokenizers'} compared",
        "demonstration": result.demonstration,
        "trained_here": result.trained_here,
        "verdict": {
            "winner": winner.key if winner else None,
            "withheld": result.withheld,
            "sentence": verdict(result),
            "detail": " ".join(detail(result).splitlines()[:6]),
            "percent": compared.percent if compared else None,
            "low": low,
            "high": high,
            "confidence": result.arms[0].scores.confidence,
            "pooled": list(compared.pooled) if compared else [],
            "at_scale": at_scale_of(result),
        },
        "next": None if step is None else step._asdict(),
        "conditions": " ".join(
            filter(None, [conditions(result), describe_phase1({arm.label: arm.tokenizer for arm in result.arms})])
        ),
        "answer": _answer(result),
        "tiles": _tiles(result, parts),
        "tokenizers": [_row(arm, deployment) for arm in result.arms],
        "differences": parts,
        "learning": list(_learning(result)),
        "division": division.divide(result),
        "contamination": None
        if result.overlap is None
        else {**result.overlap.contents.save(), "sentence": sentence(result.overlap.contents)},
        "tuning": [
            {"tokenizer": label, **run.save(), "chosen": run.factor == tuned.factor, "warning": tuned.warning}
            for label, tuned in zip(result.labels, result.tuning, strict=False)
            if tuned is not None
            for run in tuned.runs
        ],
        "measured_bytes": sum(len(document.encode()) for document in heldout),
        "compression": [
            {"tokenizer": arm.label, "vocab_size": size, "bytes_per_token": density}
            for arm in result.arms
            for size, density in _compression(arm.tokenizer, heldout, _CURVE_POINTS, threads)
        ],
        "superwords": [
            texts.superwords(arm, heldout, threads) for arm in result.arms if len(arm.tokenizer.superword_ids())
        ],
        "sample": texts.segmented(result, heldout),
        "provenance": dict(provenance),
    }


def _answer(result: Findings) -> dict[str, Any] | None:
    """The table of `findings.answer`, with what training compute is worth; None with a single arm."""
    if len(result.arms) == 1:
        return None
    measured = answer.lines(result)
    table = answer.table("", measured)
    lines = [
        {name: value.summary() if isinstance(value, Comparison) else value for name, value in vars(line).items()}
        for line in measured
    ]
    priced, exchange = "scored" if result.as_given else "deployed", answer.exchange_sentences(result)
    return {"columns": table.header, "rows": table.rows, "priced": priced, "exchange": exchange, "lines": lines}


def _learning(result: Findings) -> Iterator[dict[str, Any]]:
    """Loss of each model on the text that it was trained on, as means over stretches that grow with the text."""
    for arm in result.arms:
        for number, model in enumerate(arm.lms, 1):
            if not (model.folder / METRICS).is_file():  # a model from elsewhere, or one in a bucket
                continue
            steps = [json.loads(line) for line in (model.folder / METRICS).read_text(encoding="utf-8").splitlines()]
            seen = [step["bytes_seen"] for step in steps]
            ends = np.unique(np.searchsorted(seen, np.geomspace(seen[-1] / 20, seen[-1], _LEARNING_POINTS)))
            for start, end in itertools.pairwise([0, *(ends + 1).tolist()]):
                yield {
                    "tokenizer": arm.label,
                    "model": number,
                    "bytes": seen[end - 1],
                    "flops": steps[end - 1]["flops"],
                    "bits_per_byte": fmean(step["train_bits_per_byte"] for step in steps[start:end]),
                }


def _compression(
    tokenizer: TokenizerLike, documents: Sequence[str], points: int, threads: int | None
) -> list[tuple[int, float]]:
    """Bytes per token of the tokenizer cut to several sizes; a tokenizer that cannot be cut has one point."""
    if not isinstance(tokenizer, Tokenizer) or not tokenizer.definition.has_own_layout():
        ids, _ = tokenizer.encode_batch(documents, threads=threads)
        return [(tokenizer.vocab_size, sum(len(document.encode()) for document in documents) / max(len(ids), 1))]
    return history.measure(tokenizer, [Batch.from_texts(documents)], threads=threads).curve(points)


def _tiles(result: Findings, parts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The main numbers: the two arms of `Findings.pair`, with the tokens for each kind of text, and some others."""
    if len(result.arms) == 1:
        return []
    first, second = (result.arms[i] for i in result.pair)
    interval, barred = result.shown.interval, result.shown.barred
    spread = f" ({signed(interval[0], 2)} to {signed(interval[1], 2)})" if interval else ""
    tokens = percent_change(second.scores.n_tokens, first.scores.n_tokens)
    density = {(row["group"], row["tokenizer"]): row["bytes_per_token"] for row in parts if row["by"] == "kind"}
    kinds = [
        f"{kind} {percent_change(value, density[kind, second.label])}"
        for (kind, label), value in density.items()
        if label == first.label
    ]
    tokens += " tokens for the held-out text" + (f" ({', '.join(kinds)})" if kinds else "")
    rest = [arm for i, arm in enumerate(result.arms) if i not in result.pair][:3]

    def change(value: Callable[[ScoredArm], float], start: str, end: str = "") -> dict[str, str]:
        others = ", ".join(f"{arm.label} {percent_change(value(arm), value(first))}" for arm in rest)
        text = f"{start} ({others}){end}" if rest else f"{start}{end}"
        return {"value": percent_change(value(second), value(first)), "text": text}

    of = f" of {second.label}" if rest else ""
    against, scope = f"bytes per token, {second.label} against {first.label}", ", including the output head"
    return [
        change(lambda arm: arm.scores.bytes_per_token, against, f": {tokens}"),
        {
            "value": "withheld" if barred else f"{signed(result.shown.percent, 2)} %",
            "text": barred or f"bits per byte{of} on held-out text{spread}; lower is better",
        },
        *([change(lambda arm: arm.lm.contents.trained.flops, f"training FLOPs{of}")] if result.trained_here else []),
        change(lambda arm: arm.scores.cost.decode_flops_per_byte, f"inference FLOPs per byte{of}", scope),
    ]


def _row(arm: ScoredArm, deployment: Deployment) -> dict[str, Any]:
    tokenizer, scores = arm.tokenizer, arm.scores
    low, high = scores.bits_per_byte_interval or (None, None)
    return {
        "key": arm.key,
        "label": arm.label,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "vocab_used": int((arm.evaluations[0].token_counts > 0).sum()),
        "transition": _transition(tokenizer),
        "software": arm.artifact.contents.software,
        "text_lost": lost_text(arm),
        "untraced": arm.untraced,
        "barred": arm.barred,
        "superwords": len(tokenizer.superword_ids()),
        "bytes_per_token": scores.bytes_per_token,
        "bits_per_byte": scores.bits_per_byte,
        "low": low,
        "high": high,
        "evaluation": scores.save(),
        **(_training(arm, deployment) if arm.trained_here else {}),
        "parameters": arm.lm.contents.parameters[0],
        "cost": dataclasses.asdict(scores.cost),
    }


def _training(arm: ScoredArm, deployment: Deployment) -> dict[str, Any]:
    model = arm.lm.contents.trained
    deployed = training_flops(deployment, vocab_size=arm.tokenizer.vocab_size, tokens=model.tokens, n_bytes=model.bytes)
    return {
        "train_tokens": model.tokens,
        "train_bytes": model.bytes,
        "train_steps": model.steps,
        "train_flops": model.flops,
        "deployed_flops": deployed,
        "train_seconds": model.seconds,
        "context_tokens": round(model.context_tokens),
    }


def _transition(tokenizer: TokenizerLike) -> int | None:
    """Size of the vocabulary at which phase 2 starts, without special tokens; None for a tokenizer without phase 2."""
    if not isinstance(tokenizer, Tokenizer) or len(tokenizer.merges) == tokenizer.n_phase1_merges:
        return None
    return 256 + tokenizer.n_phase1_merges

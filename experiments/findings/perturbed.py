"""Measures the tokenizers and models of a run on perturbed text: `superbpe compare RUN --perturb`.

Held-out documents get typing errors, another case, other spaces and more (`lm.evaluate.perturbations`); every tokenizer
encodes them, and the run's models score them. Prints a table and writes `robustness.json`.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.numbers import signed
from experiments.progress import Table
from lm.evaluate.comparison import enough
from lm.evaluate.perturbations import SHARE
from lm.evaluate.robustness import change_of_bits, change_of_tokens, perturb
from tokenizer.durable import write_json
from tokenizer.errors import UserError, counted

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.findings.compared import Findings, ScoredArm
    from experiments.progress import Reporter
    from lm.data.shards import TextLoss
    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.robustness import Perturbed

NUMBERS = "robustness.json"


def measure(result: Findings, out: Path, reporter: Reporter, *, documents: int) -> None:
    """Measure all tokenizers and models of a result on perturbed held-out documents, and print a table.

    `robustness.json` has `n_documents`, `n_bytes`, `share` of the words that random perturbations affect, `confidence`,
    and `rows`, one per perturbation that changes a document and tokenizer: `changed_documents`; `tokens`, the change of
    their number as a share; `bits`, the change of the bits per original byte, with its uncorrected interval `bits_low`
    to `bits_high`; and `text_lost`, what the tokenizer loses of the perturbed text, or "".

    Args:
        result: The tokenizers, their models and their scores of the unperturbed documents.
        out: Folder for `robustness.json`.
        reporter: Shows the progress.
        documents: Maximum number of documents.
    """
    if not result.trained_here:
        raise UserError("perturbed text is scored with models of the pipeline; these were trained elsewhere")
    with reporter.stage("robustness"):
        chosen, texts = draw(result, documents)
        jobs = [(version, arm) for version in perturb(texts) for arm in result.arms]
        rows = []
        for done, (version, arm) in enumerate(jobs):
            reporter.progress("perturbed texts", done, len(jobs))
            rows.append(_row(version, arm, chosen, texts))
    report = {
        "n_documents": len(texts),
        "n_bytes": sum(len(text.encode()) for text in texts),
        "share": SHARE,
        "confidence": result.arms[0].evaluations[0].config.confidence,
        "rows": rows,
    }
    write_json(out / NUMBERS, report)
    reporter.table(table(rows, len(texts)))


def _row(version: Perturbed, arm: ScoredArm, chosen: NDArray[np.bool_], texts: list[str]) -> dict[str, Any]:
    """Effect of a perturbation of the chosen documents on a tokenizer and its models."""
    from experiments.findings.verdict import describe_loss

    scores, losses = zip(*(_score(arm, number, version.to_score) for number in range(len(arm.lms))), strict=True)
    before = [evaluation.only(chosen) for evaluation in arm.evaluations]
    bits = change_of_bits(before, list(scores), version)
    known = enough(bits.effective_units, before[0].cluster()[0])
    low, high = (bits.known_interval(before[0].config.confidence) if known else None) or (None, None)
    return {
        "perturbation": version.perturbation.name,
        "title": version.perturbation.title,
        "tokenizer": arm.label,
        "changed_documents": int(version.changed.sum()),
        "tokens": change_of_tokens(arm.tokenizer, texts, version),
        "bits": float(bits.value),
        "bits_low": low,
        "bits_high": high,
        "text_lost": describe_loss(losses[0]),
    }


def draw(result: Findings, n: int) -> tuple[NDArray[np.bool_], list[str]]:
    """Draw held-out documents. The texts are those that one of the tokenizers spells, decoded from its shards.

    Args:
        result: The run.
        n: Maximum number of documents.

    Returns:
        bool[n_documents], the documents that were drawn, and their texts.
    """
    from experiments.stages.shards import open_shards

    opened = [(open_shards(arm.heldout, arm), arm.tokenizer) for arm in result.arms]
    shards, tokenizer = min(opened, key=lambda pair: np.count_nonzero(pair[0].normalized_bytes))
    spelled = np.flatnonzero(shards.normalized_bytes == 0)
    if not len(spelled):
        raise UserError(
            "no tokenizer of this run decodes its held-out documents to their own text; measure a run that also has a "
            "byte-level tokenizer"
        )
    chosen = np.zeros(shards.n_documents, bool)
    chosen[random.Random(0).sample(spelled.tolist(), min(n, len(spelled)))] = True
    return chosen, [tokenizer.decode(shards.document(i)) for i in np.flatnonzero(chosen).tolist()]


def _score(arm: ScoredArm, seed: int, texts: list[str]) -> tuple[Evaluation, TextLoss]:
    """Encode texts with a tokenizer, and score them with one of its models; also what the tokens lack of the texts."""
    from lm.data.sharding import temporary_shards
    from lm.evaluate.distributed import load_and_evaluate

    # Only the losses of the documents are used; the sources are those of the run.
    config = dataclasses.replace(arm.evaluations[seed].config, cluster="document")
    with temporary_shards(arm.tokenizer, texts) as shards:
        lengths = arm.tokenizer.token_byte_lengths()
        return load_and_evaluate(arm.lms[seed].path, shards, lengths, config, device="auto")[1], shards.text_loss


def table(measured: list[dict[str, Any]], n_documents: int) -> Table:
    """The table in the terminal."""
    header = ["", "tokenizer", "tokens", "bits per original byte", "interval", "text lost"]
    rows, last = [], ""
    for row in measured:
        interval = "" if row["bits_low"] is None else f"{signed(row['bits_low'])} to {signed(row['bits_high'])}"
        name = "" if row["title"] == last else row["title"]
        cells = [name, row["tokenizer"], f"{signed(100 * row['tokens'], 1)} %", signed(row["bits"]), interval]
        rows.append([*cells, row["text_lost"]])
        last = row["title"]
    return Table(f"Change under perturbations, {counted(n_documents, 'document')}", header, rows)

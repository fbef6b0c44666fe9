"""Tables and sentences that a run prints: fertility before training, and the result at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.cli.console import percent, percent_change, si, signed
from experiments.results import GROUPS
from experiments.stages.heldout import groupings
from experiments.stages.outlook import next_step
from experiments.stages.shards import open_shards
from experiments.store.manifest import command_line
from experiments.verdict import at_scale, decision, detail, verdict
from lm.evaluate.bits_per_byte import SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.results import HeldoutDocuments, ShardsFolder
    from experiments.stages.comparison import Result
    from experiments.stages.context import Context
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact

_SOURCES = 5
"""Most sources in the table of fertility."""
_GROUPS = 4
"""Most groups of documents in a table."""


def show_fertility(
    context: Context,
    heldout: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]],
    documents: Artifact[HeldoutDocuments],
) -> None:
    """Print the held-out bytes per token of every arm, and its tokens against the reference's by kind or source."""
    if len(heldout) < 2:
        return
    opened = [open_shards(shards, arm) for arm, shards in heldout]
    sizes = opened[0].document_bytes
    # Without `<|endoftext|>`, one per document.
    counts = [np.diff(shards.document_ends, prepend=0) - 1 for shards in opened]
    known = groupings(documents, sizes)
    unit = next(unit for unit in GROUPS if unit in known)
    groups = known[unit]
    order = np.argsort(-groups.sums(sizes), kind="stable")
    shown = order[:_SOURCES] if len(order) > 1 else order[:0]
    tokens_of = [groups.sums(each)[shown] for each in counts]
    rows = [
        [arm.label, f"{sizes.sum() / tokens.sum():.3f}", *(f"{share:.3f}" for share in found / tokens_of[0])]
        for (arm, _), tokens, found in zip(heldout, counts, tokens_of, strict=True)
    ]
    of = f", {len(shown)} largest of {len(order)} {unit}s" if len(order) > len(shown) else ""
    by = f", and tokens relative to {heldout[0][0].label} by {unit}{of}" if len(shown) else ""
    title = f"Held-out bytes per token{by}"
    context.reporter.table(title, ["", "bytes per token", *(groups.names[i] for i in shown)], rows)


def show_sizes(context: Context, results: Mapping[int, Result]) -> None:
    """Print the loss of every arm by the size of the models.

    Args:
        context: Context of the run.
        results: The comparison at the largest budget, by the number of layers.
    """
    rows = [
        [f"{size} layers", *(f"{arm.scores.bits_per_byte:.4f}" for arm in result.arms), verdict(result)]
        for size, result in results.items()
    ]
    labels = next(iter(results.values())).labels
    context.reporter.table("Held-out bits per byte by size, at the largest budget", ["", *labels, "verdict"], rows)


def show_result(context: Context, result: Result, mode: str, *, last: bool = True) -> None:
    """Print the result: the tables, the verdict and its uncertainty.

    Args:
        context: Context of the run.
        result: The comparison.
        mode: What is equal between the models (`budget.mode`).
        last: Whether nothing follows, so that the command that would settle what is open is printed here.
    """
    for each in result.arms:
        context.tracker.log(f"result/{each.key}", {**each.scores.save(), "flops": each.lm.contents.summary.flops})
    what = mode.removeprefix("equal_")
    names = {"flops": "FLOPs of training", "deployed_flops": "FLOPs of training the deployed model"}
    equal = names.get(what, f"{what} of training" + " text" * (what == "bytes"))
    say, table = context.reporter.say, context.reporter.table
    say("")
    table(f"Held-out text, equal {equal}", *result_table(result))
    shown = [name for name in GROUPS if len(result.arms[0].scores.by(name)) > 1]
    for name in shown[:1] + [name for name in shown[1:] if name != SOURCE]:  # sources that have kinds are many
        table(*_groups(result, name))
    if len(result.arms) > 2:
        table("All pairs, % of bits per byte", ["", "difference", "interval", "p", "better"], _pairs(result))
    say(verdict(result), style="bold")
    say(detail(result))
    if result.overlap is not None:
        say(result.overlap.sentence())
    if last and (known := at_scale(max(each.lm.contents.summary.flops for each in result.arms))):
        say(known)
    if result.demonstration:
        say(
            "A demonstration, not evidence: models this small, trained for minutes, say nothing about yours.",
            style="yellow",
        )
    settings = result.arms[0].arm.settings
    step = next_step(list(result.tested.values()), settings, command_line(), result.seed_seconds)
    if step is not None and last:
        say(step.sentence())
    context.tracker.summary({f"{each.key}/bits_per_byte": each.scores.bits_per_byte for each in result.arms})


def result_table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the main numbers, one row per tokenizer; the page has all others."""
    base, clean = result.arms[0], result.clean_bits_per_byte()
    columns = ["", "vocabulary", "superwords", "bytes per token", "bits per byte", f"change from {base.label}"]
    columns += ["clean documents"] * (clean is not None) + ["training FLOPs", "inference FLOPs per byte"]
    all_judged = len(result.judged) == len(result.arms)
    columns += [] if all_judged else ["part in the verdict"]
    rows = []
    for i, each in enumerate(result.arms):
        scores, tokenizer = each.scores, each.tokenizer
        interval = scores.bits_per_byte_interval
        change = percent_change(scores.bits_per_byte, base.scores.bits_per_byte)
        row = [
            each.label,
            f"{tokenizer.vocab_size:,}",
            f"{len(tokenizer.superword_ids()):,}",
            f"{scores.bytes_per_token:.3f}",
            f"{scores.bits_per_byte:.4f}" + (f" ({interval[0]:.4f}–{interval[1]:.4f})" if interval else ""),
            "" if each is base else "withheld" if each.barred or base.barred else change,
            *([] if clean is None else [f"{clean[i]:.4f}"]),
            si(each.lm.contents.summary.flops),
            si(scores.cost.decode_flops_per_byte),
            *([] if all_judged else ["none" if each.barred else "yes"]),
        ]
        rows.append(row)
    return columns, rows


def _groups(result: Result, name: str) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and rows of a table of bits per byte of the largest groups of documents."""
    tables = [{row.name: row for row in each.scores.by(name)} for each in result.arms]
    groups = list(tables[0].values())
    shown = groups[:_GROUPS]
    title = f"Bits per byte by {name}" + (f", the {len(shown)} largest" if len(shown) < len(groups) else "")
    header = ["", *(f"{group.name} ({percent(group.n_bytes / result.arms[0].scores.n_bytes)})" for group in shown)]
    rows = [[f"{table[group.name].bits_per_byte:.4f}" for group in shown] for table in tables]
    return title, header, [[label, *row] for label, row in zip(result.labels, rows, strict=True)]


def _pairs(result: Result) -> list[list[str]]:
    labels = result.labels
    return [
        [
            f"{labels[j]} against {labels[i]}",
            signed(found.percent, 2),
            f"{signed(found.interval[0], 2)} to {signed(found.interval[1], 2)}" if found.interval else "–",
            "–" if found.p_value is None else f"{found.p_value:.3f}",
            decision(result, (i, j)),
        ]
        for (i, j), found in result.comparisons.items()
    ]

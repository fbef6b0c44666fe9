"""Tables and sentences that a run prints: fertility before training, and the result at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.findings import answer, division
from experiments.findings.next_step import Step
from experiments.findings.verdict import BUDGETS, at_scale_of, conditions, detail, verdict
from experiments.numbers import percent_change, si
from experiments.progress import Lines, Table
from experiments.stages.contamination import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from experiments.findings.compared import Findings
    from experiments.progress import Reporter
    from experiments.results import ShardsFolder
    from experiments.stages.context import Context


def show_fertility(context: Context, arms: Sequence[tuple[str, ShardsFolder]]) -> None:
    """Print the held-out bytes per token of every arm, by label and held-out shards."""
    rows = [
        [label, f"{heldout.bytes_per_token:.3f}", percent_change(heldout.n_tokens, arms[0][1].n_tokens)]
        for label, heldout in arms
    ]
    if len(rows) > 1:
        header = ["", "bytes per token", f"tokens against {arms[0][0]}"]
        context.reporter.table(Table("Held-out bytes per token", header, rows))


def show_sizes(context: Context, results: Mapping[int, Findings]) -> None:
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
    title = "Held-out bits per byte by size, at the largest budget"
    context.reporter.table(Table(title, ["", *labels, "verdict"], rows))


def show_result(
    context: Context, result: Findings, mode: str, *, last: bool = True, numbers: Mapping[str, Any] | None = None
) -> None:
    """Print the result: the tables, the verdict and its uncertainty.

    Args:
        context: Context of the run.
        result: The comparison.
        mode: What is equal between the models (`budget.mode`).
        last: Whether no comparison over compute follows, which says the same.
        numbers: The numbers of the report; None without one.
    """
    for arm in result.arms:
        context.tracker.log(f"result/{arm.key}", {**arm.scores.save(), "flops": arm.lm.contents.trained.flops})
    say = context.reporter.say
    say("")
    show_findings(context.reporter, f"Held-out text, {BUDGETS[mode]}", result, numbers)
    if result.overlap is not None:
        say(sentence(result.overlap.contents))
    if last and (at_larger := at_scale_of(result)):
        say(at_larger)
    if result.demonstration:
        say(
            "A demonstration, not evidence: models this small, trained for minutes, say nothing about yours.",
            style="yellow",
        )
    context.tracker.log("summary", {f"{arm.key}/bits_per_byte": arm.scores.bits_per_byte for arm in result.arms})


def show_findings(reporter: Reporter, title: str, result: Findings, numbers: Mapping[str, Any] | None = None) -> None:
    """Print the answer by kind of text, where the gap comes from, main numbers, the verdict and its uncertainty."""
    if len(result.arms) > 1:
        reporter.table(answer.table(title, answer.lines(result)))
        for sentence in answer.exchange_sentences(result):
            reporter.say(sentence)
    if divided := numbers and numbers["division"]:
        label = result.arms[result.pair[1]].label
        if divided["missing"]:
            reporter.say(f"{division.TITLE}: not measured, because {divided['missing']}")
        else:
            reporter.table(division.table(divided, label))
    reporter.table(_main_numbers("Models" if len(result.arms) > 1 else title, result))
    reporter.say(verdict(result), style="bold")
    for line in detail(result).splitlines():
        reporter.say(line)


def show_comparison(reporter: Reporter, result: Findings, numbers: Mapping[str, Any]) -> list[str]:
    """Print a comparison that trained nothing, and return the words of the command that would settle what is open."""
    title = "The text, models as given" if result.as_given else "Held-out text"
    show_findings(reporter, title, result, numbers)
    if result.as_given:
        reporter.say(conditions(result))
    return Step(**numbers["next"]).follow(reporter) if numbers["next"] else []


def _main_numbers(title: str, result: Findings) -> Table:
    """The main numbers, one row per tokenizer; the page has all others."""
    context = f"{result.arms[0].scores.context_bytes:,} B of context"
    columns = ["", "vocabulary", "bytes per token", "bits per byte", f"inference FLOPs per byte, {context}"]
    differ = False
    if result.trained_here:
        columns.insert(-1, "training FLOPs")
        read = [arm.lm.contents.trained.bytes for arm in result.arms]
        differ = max(read) > 1.01 * min(read)
    if differ:
        columns.append("training text")
    rows = []
    for arm in result.arms:
        scores, tokenizer = arm.scores, arm.tokenizer
        interval = scores.bits_per_byte_interval
        parts = {"superwords": len(tokenizer.superword_ids()), "untrained": int(arm.untrained().sum())}
        row = [
            Lines(arm.label, "training text unknown" if arm.untraced else ""),
            Lines(f"{tokenizer.vocab_size:,}", *(f"{number:,} {name}" for name, number in parts.items() if number)),
            f"{scores.bytes_per_token:.3f}",
            Lines(f"{scores.bits_per_byte:.4f}", f"{interval[0]:.4f}–{interval[1]:.4f}" if interval else ""),
            si(scores.cost.decode_flops_per_byte),
        ]
        if result.trained_here:
            row.insert(-1, si(arm.lm.contents.trained.flops))
        if differ:
            row.append(f"{si(arm.lm.contents.trained.bytes)}B")
        rows.append(row)
    return Table(title, columns, rows)

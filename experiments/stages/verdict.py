"""The result of a comparison in tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.cli.console import duration, si
from experiments.stages.evaluation import FEWEST_DOCUMENTS, FEWEST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from experiments.stages.context import Context
    from experiments.stages.evaluation import Result

_GROUPS_SHOWN = 8


def show(context: Context, result: Result) -> None:
    """Print the result: the tables, the verdict and what it is worth."""
    for judged in result.judged:
        flops = judged.candidate.lm.contents["flops"]
        context.tracker.log(f"result/{judged.candidate.trained.key}", {**judged.summary, "flops": flops})
    title = f"Held-out text, {equal(context)}"
    say, table = context.reporter.say, context.reporter.table
    say("")
    labels = [judged.candidate.trained.label for judged in result.judged]
    change = ["change"] if len(labels) == 2 else []
    table(title, ["", *labels, *change], _table(result))
    for name in ("script", "source"):
        rows = _groups(result, name)
        if len(rows) > 1:
            table(f"Bits per byte by {name}", [name, "share of bytes", *labels, *change], rows)
    if len(labels) > 2:
        table("All pairs", ["", "difference", "interval", "p, after Holm", ""], _pairs(result))
    say(verdict(result), style="bold")
    say(detail(result))
    if is_demonstration(context):
        say(
            "A demonstration, not evidence: models this small, trained for minutes, say nothing about yours.",
            style="yellow",
        )
    context.tracker.summary(
        {f"{j.candidate.trained.key}/bits_per_byte": j.summary["bits_per_byte"] for j in result.judged}
    )


def _table(result: Result) -> list[list[str]]:
    """One row per quantity, so that the table fits a narrow terminal."""
    summaries = [judged.summary for judged in result.judged]
    models = [judged.candidate.lm.contents for judged in result.judged]
    tokenizers = [judged.candidate.trained.tokenizer for judged in result.judged]
    costs = [summary["cost"] for summary in summaries]
    two = len(summaries) == 2

    def row(name: str, values: Sequence[float], form: Callable[[float], str], *, compared: bool = True) -> list[str]:
        change = percent(values[1], values[0]) if compared and values[0] else ""
        return [name, *map(form, values), *([change] if two else [])]

    def text(name: str, values: Sequence[str]) -> list[str]:
        return [name, *values, *([""] if two else [])]

    intervals = [summary["bits_per_byte_interval"] for summary in summaries]
    rows = [
        row("vocabulary", [t.vocab_size for t in tokenizers], "{:,}".format, compared=False),
        row("superwords", [len(t.superword_ids()) for t in tokenizers], "{:,}".format, compared=False),
        row("bytes per token", [s["bytes_per_token"] for s in summaries], "{:.3f}".format),
        row("bits per byte", [s["bits_per_byte"] for s in summaries], "{:.4f}".format),
        text(
            f"{100 * result.comparison.confidence:g} % interval",
            [f"{i[0]:.4f}–{i[1]:.4f}" if i else "–" for i in intervals],
        ),
    ]
    if result.comparison.n_seeds > 1:
        rows.append(
            text(
                f"spread of {result.comparison.n_seeds} seeds",
                [f"± {s['seeds']['standard_deviation']:.4f}" for s in summaries],
            )
        )
    rows += [
        row("training bytes", [m["bytes"] for m in models], si),
        row("training steps", [m["steps"] for m in models], "{:,}".format),
        row("training tokens", [m["tokens"] for m in models], si),
        row("training FLOPs", [m["flops"] for m in models], si),
        row("training time", [m["seconds"] for m in models], duration),
        row("parameters", [m["parameters_total"] for m in models], si),
        row("reading: FLOPs per byte", [c["prefill_flops_per_byte"] for c in costs], si),
        row("decoding: FLOPs per byte", [c["decode_flops_per_byte"] for c in costs], si),
        row(f"cache ({costs[0]['kv_dtype']}): bytes per byte", [c["kv_bytes_per_byte"] for c in costs], si),
    ]
    seconds = [cost["decode_seconds_per_byte"] for cost in costs if "decode_seconds_per_byte" in cost]
    if len(seconds) == len(costs):
        rows.append(row("decoding: µs per byte", [1e6 * value for value in seconds], "{:.0f}".format))
    return rows


def _groups(result: Result, name: str) -> list[list[str]]:
    """Bits per byte of the largest groups of documents."""
    tables = [{row["name"]: row for row in judged.summary.get(f"by_{name}", [])} for judged in result.judged]
    whole = result.judged[0].summary["n_bytes"]
    rows = []
    for group, first in list(tables[0].items())[:_GROUPS_SHOWN]:
        values = [table[group]["bits_per_byte"] for table in tables]
        change = [percent(values[1], values[0])] if len(values) == 2 else []
        rows.append([group, f"{first['n_bytes'] / whole:.1%}", *(f"{value:.4f}" for value in values), *change])
    return rows


def _pairs(result: Result) -> list[list[str]]:
    labels = [judged.candidate.trained.label for judged in result.judged]
    return [
        [
            f"{labels[j]} − {labels[i]}",
            signed(found.difference),
            f"{signed(found.interval[0])} to {signed(found.interval[1])}" if found.interval else "–",
            "–" if found.p_adjusted is None else f"{found.p_adjusted:.3f}",
            {"A better": labels[i], "B better": labels[j]}.get(found.verdict, ""),
        ]
        for (i, j), found in result.comparisons.items()
    ]


def equal(context: Context) -> str:
    """Return what the models' training has in common, in words."""
    what = context.config.budget.mode.removeprefix("equal_")
    return f"equal {'FLOPs' if what == 'flops' else what} of training" + (" text" if what == "bytes" else "")


def percent(value: float, base: float) -> str:
    """Format a relative change with its sign."""
    return f"{100 * (value / base - 1):+.1f} %".replace("-", "−")


LEAST_EVIDENCE = 100_000_000
"""Models that read fewer bytes of text are a demonstration."""


def is_demonstration(context: Context) -> bool:
    """Return whether the result is no evidence: as configured, or by how little text the models read."""
    configured = context.config.report.demonstration
    return context.config.budget.train_bytes < LEAST_EVIDENCE if configured is None else configured


def verdict(result: Result) -> str:
    """Return the result in a sentence, which says how many training runs it rests on."""
    labels = [judged.candidate.trained.label for judged in result.judged]
    compared = result.comparison
    names = " and ".join(labels) if len(labels) == 2 else f"{len(labels)} tokenizers"
    if result.too_few:
        what, n = ("documents", compared.n_documents)
        if n >= FEWEST_DOCUMENTS:
            what, n = (f"{compared.cluster}s", compared.n_clusters)
        return f"Too few held-out {what} to tell {names} apart: {n}, and it takes {FEWEST_DOCUMENTS}."
    runs = "one training run each" if compared.n_seeds == 1 else f"{compared.n_seeds} seeds each"
    if result.winner is None:
        if len(labels) == 2:
            return f"No significant difference between {names} in how well they predict held-out text ({runs})."
        best = result.ranked[0]
        level = [labels[i] for i in result.ranked[1:] if not _apart(result, best, i)]
        lowest = f"{labels[best]} has the lowest held-out loss of {names}"
        return f"{lowest}, but is not told apart from {_some(level)} ({runs})."
    others = [judged for judged in result.judged if judged is not result.winner]
    other = min(others, key=lambda judged: float(judged.summary["bits_per_byte"]))
    better, worse = result.winner.summary["bits_per_byte"], other.summary["bits_per_byte"]
    winner, loser = result.winner.candidate.trained.label, other.candidate.trained.label
    if len(others) > 1:
        loser = f"all others, the next being {loser}"
    # A share of the first, as in the table's column of changes.
    if result.winner is result.judged[0]:
        share = f", which takes {worse / better - 1:.2%} more bits per byte"
    else:
        share = f": {1 - better / worse:.2%} fewer bits per byte"
    return f"{winner} predicts held-out text better than {loser}{share} ({runs})."


def _apart(result: Result, one: int, other: int) -> bool:
    """Whether two differ significantly, after correction."""
    return result.comparisons[min(one, other), max(one, other)].verdict != "no significant difference"


def _some(labels: Sequence[str], most: int = 2) -> str:
    """A list for a sentence, of which a long one shows its beginning."""
    shown = list(labels) if len(labels) <= most + 1 else [*labels[:most], f"{len(labels) - most} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def warn_of_few(context: Context, n_documents: int) -> None:
    """Say before training that there will be no verdict."""
    if n_documents < FEWEST_DOCUMENTS:
        context.reporter.say(
            f"warning: {n_documents} held-out documents are too few for a verdict, which takes {FEWEST_DOCUMENTS}; "
            "raise corpus.heldout_fraction, or name held-out text with corpus.heldout_paths",
            style="yellow",
        )


def conditions(result: Result) -> str:
    """Return a sentence about what the models had in common, as their runs say, and not as it was intended."""
    models: list[dict[str, Any]] = [judged.candidate.lm.contents for judged in result.judged]

    def equal(key: str, tolerance: float = 0.02) -> bool:
        values = [model[key] for model in models]
        return bool(max(values) <= min(values) * (1 + tolerance))

    context = "equally many bytes" if equal("context_bytes", 0) else "contexts of different sizes"
    if equal("bytes") and equal("steps", 0):
        return (
            "All models read the same documents in the same order, in equally many steps, and see "
            f"{context} of context."
        )
    same = [
        name
        for key, name in (("flops", "training FLOPs"), ("tokens", "training tokens"), ("steps", "training steps"))
        if equal(key, 0 if key == "steps" else 0.02)
    ]
    seen = f"between {si(min(m['bytes'] for m in models))}B and {si(max(m['bytes'] for m in models))}B of text"
    return (
        f"All models have equally many {' and '.join(same)}, and read {seen}."
        if same
        else f"The models' budgets differ: they read {seen}; the table has the numbers."
    )


def detail(result: Result) -> str:
    """Return a difference with its uncertainty: what is in it and what is not.

    It is the second's from the first; of more than two, that of `Result.pair`, and the winner's from the next best.
    """
    first, second = (result.judged[i].candidate.trained.label for i in result.pair)
    compared = result.shown
    shown = f"{second} − {first} = {signed(compared.difference)} bits per byte"
    unequal = _unequal(result)
    if compared.interval is None:
        return f"{shown}; one document allows no interval.{unequal}"
    low, high = compared.interval
    among = f"{compared.n_documents:,} held-out documents"
    if compared.cluster != "document":
        among = f"the {compared.n_clusters:,} {compared.cluster}s of {among}"
    if compared.n_seeds == 1:
        how = f"paired bootstrap over {among}; one training run each, so the spread between seeds is not in it"
    else:
        how = (
            f"Student's t over {compared.n_seeds} paired seeds and {among}; standard error from seeds "
            f"{compared.seed_error:.4f}, from documents {compared.document_error:.4f}"
        )
        if compared.n_seeds < FEWEST_SEEDS:
            how += f"; a claim about tokenizers takes {FEWEST_SEEDS} seeds"
    corrected = "" if len(result.judged) == 2 else ", before correcting for several comparisons"
    interval = f"{100 * compared.confidence:g} % interval {signed(low)} to {signed(high)}{corrected}"
    return f"{shown}, {interval} ({how}).{_lead(result)}{unequal}"


def _lead(result: Result) -> str:
    """How far the winner of more than two is ahead of the next best, which is what the verdict's sentence rests on."""
    first, second = result.ranked[:2]
    pair = min(first, second), max(first, second)
    found = result.comparisons[pair]
    if result.winner is not result.judged[first] or pair == result.pair or found.interval is None:
        return ""
    sign = 1 if pair[1] == first else -1
    low, high = sorted(sign * end for end in found.interval)
    labels = [result.judged[i].candidate.trained.label for i in (first, second)]
    p = "" if found.p_adjusted is None else f", {p_value(found.p_adjusted)} after Holm's correction"
    difference = f"{labels[0]} − {labels[1]} = {signed(sign * found.difference)} bits per byte"
    return f" {difference} ({signed(low)} to {signed(high)}{p})."


def _unequal(result: Result) -> str:
    """What else differs between the two and takes part in the difference."""
    notes = []
    compared = [result.judged[i] for i in result.pair]
    models: list[dict[str, Any]] = [judged.candidate.lm.contents for judged in compared]
    sizes = [judged.candidate.trained.tokenizer.vocab_size for judged in compared]
    if len(set(sizes)) > 1:
        notes.append(f" The vocabularies differ: {_listed(sizes)} tokens.")
    parameters = [int(model["parameters_total"]) for model in models]
    if len(set(parameters)) > 1:
        inner = [int(model["parameters_non_embedding"]) for model in models]
        where = "in the vocabulary tables alone" if len(set(inner)) == 1 else f"{_listed(inner)} of them in the layers"
        notes.append(f" The models differ: {_listed(parameters)} parameters, {where}.")
    return "".join(notes)


def _listed(values: Sequence[int]) -> str:
    *rest, last = (f"{value:,}" for value in values)
    return f"{', '.join(rest)} and {last}"


def p_value(value: float) -> str:
    """Format a p-value; far in a tail it is an order of magnitude at best."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def signed(value: float) -> str:
    """Format a difference of bits per byte with its sign."""
    return f"{value:+.4f}".replace("-", "−")

"""The result of a comparison, as tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from experiments.cli.console import duration, si
from experiments.results import GROUPS
from experiments.stages.comparison import FEWEST_DOCUMENTS, FEWEST_SEEDS
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from experiments.stages.comparison import ArmResult, Result
    from experiments.stages.context import Context
    from tokenizer.interface import TokenizerLike

# With more arms than this, tables have one row per arm, and a selection of the quantities.
_COLUMNS = 3
# Groups of documents in tables with one column per arm, and with one row per arm.
_GROUP_ROWS, _GROUP_COLUMNS = 8, 4


class _Quantity(NamedTuple):
    """A quantity and its value for each arm, as text.

    Attributes:
        name: Name of the quantity.
        values: A value per arm; with two arms, also the change.
        brief: A value per arm for the table with one row per arm; None to leave the quantity out.
    """

    name: str
    values: list[str]
    brief: list[str] | None = None


def show(context: Context, result: Result) -> None:
    """Print the result: the tables, the verdict and its uncertainty."""
    for each in result.arms:
        context.tracker.log(f"result/{each.key}", {**each.scores.save(), "flops": each.lm.contents.summary.flops})
    title = f"Held-out text, {equal(context)}"
    say, table = context.reporter.say, context.reporter.table
    say("")
    labels = result.labels
    change = ["change"] if len(labels) == 2 else []
    found = _table(result)
    if len(labels) <= _COLUMNS:
        table(title, ["", *labels, *change], [[each.name, *each.values] for each in found])
    else:
        chosen = {each.name: each.brief for each in found if each.brief is not None}
        by_arm = [[label, *values] for label, *values in zip(labels, *chosen.values(), strict=True)]
        table(title, ["", *chosen], by_arm)
        say("The report has all numbers of every arm.", style="dim")
    for name in GROUPS:
        if len(result.arms[0].scores.by(name)) > 1:
            table(*_groups(result, name))
    if len(labels) > 2:
        table("All pairs", ["", "difference", "interval", "p, after Holm", "better"], _pairs(result))
    say(verdict(result), style="bold")
    say(detail(result))
    if is_demonstration(context):
        say(
            "A demonstration, not evidence: models this small, trained for minutes, say nothing about yours.",
            style="yellow",
        )
    context.tracker.summary({f"{each.key}/bits_per_byte": each.scores.bits_per_byte for each in result.arms})


def _table(result: Result) -> list[_Quantity]:
    """All quantities of the result."""
    scores = [each.scores for each in result.arms]
    models = [each.lm.contents.summary for each in result.arms]
    tokenizers = [each.tokenizer for each in result.arms]
    costs = [score.cost for score in scores]
    two = len(scores) == 2
    others = [_others(tokenizer) for tokenizer in tokenizers]

    def row(
        name: str, values: Sequence[float], form: Callable[[float], str], *, compared: bool = True, brief: bool = False
    ) -> _Quantity:
        change = percent(values[1], values[0]) if two and compared and values[0] else ""
        cells = list(map(form, values))
        return _Quantity(name, [*cells, *([change] if two else [])], cells if brief else None)

    def text(name: str, values: Sequence[str], brief: list[str] | None = None) -> _Quantity:
        return _Quantity(name, [*values, *([""] if two else [])], brief)

    intervals = [score.bits_per_byte_interval for score in scores]
    rows = [
        row("vocabulary", [t.vocab_size for t in tokenizers], "{:,}".format, compared=False, brief=True),
        row("superwords", [len(t.superword_ids()) for t in tokenizers], "{:,}".format, compared=False),
        *([row("other tokens across pretokens", others, "{:,}".format, compared=False)] if any(others) else []),
        row("bytes per token", [score.bytes_per_token for score in scores], "{:.3f}".format, brief=True),
        row("bits per byte", [score.bits_per_byte for score in scores], "{:.4f}".format, brief=True),
        text(f"{100 * scores[0].confidence:g} % interval", [f"{i[0]:.4f}–{i[1]:.4f}" if i else "–" for i in intervals]),
    ]
    if not two and len(scores) > 1:
        changes = ["", *(percent(score.bits_per_byte, scores[0].bits_per_byte) for score in scores[1:])]
        rows.append(text(f"change from {result.labels[0]}", changes, changes))
    seeds = [score.seeds for score in scores if score.seeds is not None]
    if seeds:
        spread = [f"± {seed.standard_deviation:.4f}" for seed in seeds]
        rows.append(text(f"spread of {result.n_seeds} seeds", spread))
    rows += [
        row("training bytes", [m.bytes for m in models], si),
        row("training steps", [m.steps for m in models], "{:,}".format),
        row("training tokens", [m.tokens for m in models], si),
        row("training FLOPs", [m.flops for m in models], si, brief=True),
        row("training time", [m.seconds for m in models], duration),
        row("parameters", [m.parameters_total for m in models], si),
        row("reading: FLOPs per byte", [c.prefill_flops_per_byte for c in costs], si),
        row("decoding: FLOPs per byte", [c.decode_flops_per_byte for c in costs], si),
        row(f"KV cache ({costs[0].kv_dtype}): bytes per byte", [c.kv_bytes_per_byte for c in costs], si),
    ]
    losses = [lost_text(each) for each in result.arms]
    if any(losses):
        # The detail below the tables describes what is lost.
        brief = ["yes" if loss else "" for loss in losses]
        rows.append(text("held-out text lost", [loss or "none" for loss in losses], brief))
    seconds = [cost.decode_seconds_per_byte for cost in costs if cost.decode_seconds_per_byte is not None]
    if len(seconds) == len(costs):
        rows.append(row("decoding: µs per byte", [1e6 * value for value in seconds], "{:.0f}".format))
    return rows


def _others(tokenizer: TokenizerLike) -> int:
    """Phase-2 tokens that the phase-1 pattern would cut and that span fewer than two words."""
    if not isinstance(tokenizer, Tokenizer):
        return 0
    return len(set(tokenizer.crossing_ids().tolist()) - set(tokenizer.superword_ids().tolist()))


def lost_text(each: ArmResult) -> str:
    """Describe how much of the held-out text an arm changes or cannot represent; empty if nothing is lost."""
    loss = each.heldout.contents.text_loss
    if loss is None or not (loss.changed_documents or loss.unknown_tokens or loss.unaccounted_bytes):
        return ""
    unknown = f", {loss.unknown_tokens:,} unknown tokens" if loss.unknown_tokens else ""
    lacking = f", {loss.unaccounted_bytes:,} bytes covered by no token" if loss.unaccounted_bytes else ""
    return f"{loss.changed_documents:,} documents changed{unknown}{lacking}"


def _groups(result: Result, name: str) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and rows of a table of bits per byte of the largest groups of documents."""
    tables = [{row.name: row for row in each.scores.by(name)} for each in result.arms]
    found = list(tables[0].values())
    by_arm = len(tables) > _COLUMNS
    shown = found[: _GROUP_COLUMNS if by_arm else _GROUP_ROWS]
    title = f"Bits per byte by {name}" + (f", the {len(shown)} largest" if len(shown) < len(found) else "")
    shares = [f"{group.n_bytes / result.arms[0].scores.n_bytes:.1%}" for group in shown]
    values = [[table[group.name].bits_per_byte for table in tables] for group in shown]
    cells = [[f"{value:.4f}" for value in row] for row in values]
    if by_arm:
        header = ["", *(f"{group.name} ({share})" for group, share in zip(shown, shares, strict=True))]
        return title, header, [list(row) for row in zip(result.labels, *cells, strict=True)]
    header = [name, "share of bytes", *result.labels]
    rows = [[group.name, share, *row] for group, share, row in zip(shown, shares, cells, strict=True)]
    if len(tables) == 2:
        header.append("change")
        rows = [[*row, percent(second, first)] for row, (first, second) in zip(rows, values, strict=True)]
    return title, header, rows


def _pairs(result: Result) -> list[list[str]]:
    labels = result.labels
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
    """Return the quantity that is equal between the training runs, in words."""
    what = context.config.budget.mode.removeprefix("equal_")
    return f"equal {'FLOPs' if what == 'flops' else what} of training" + (" text" if what == "bytes" else "")


def percent(value: float, base: float) -> str:
    """Format a relative change with its sign."""
    return f"{100 * (value / base - 1):+.1f} %".replace("-", "−")


LEAST_EVIDENCE = 100_000_000
"""Models trained on fewer bytes of text are a demonstration."""


def is_demonstration(context: Context) -> bool:
    """Return whether the result is only a demonstration: as configured, or because the models read little text."""
    configured = context.config.report.demonstration
    return context.config.budget.train_bytes < LEAST_EVIDENCE if configured is None else configured


def verdict(result: Result) -> str:
    """Return the result as a sentence that includes the number of training runs."""
    labels, scores = result.labels, [each.scores for each in result.arms]
    runs = "one training run each" if result.n_seeds == 1 else f"{result.n_seeds} seeds each"
    if len(labels) == 1:
        return f"{labels[0]}: {scores[0].bits_per_byte:.4f} bits per byte on held-out text; nothing to compare it with."
    names = " and ".join(labels) if len(labels) == 2 else f"{len(labels)} tokenizers"
    if result.too_few:
        compared = next(iter(result.comparisons.values()))
        what, n = "documents", compared.n_documents
        if n >= FEWEST_DOCUMENTS:
            what, n = f"{compared.cluster}s", compared.n_clusters
        return (
            f"Too few held-out {what} to compare {names}: there are {n}, and at least {FEWEST_DOCUMENTS} are required."
        )
    if result.winner is None:
        if len(labels) == 2:
            return f"No significant difference between {names} in how well they predict held-out text ({runs})."
        best = result.ranked[0]
        level = [labels[i] for i in result.ranked[1:] if not _apart(result, best, i)]
        lowest = f"{labels[best]} has the lowest held-out loss of {names}"
        return f"{lowest}, but does not differ significantly from {_some(level)} ({runs})."
    others = [each for each in result.arms if each is not result.winner]
    other = min(others, key=lambda each: each.scores.bits_per_byte)
    better, worse = result.winner.scores.bits_per_byte, other.scores.bits_per_byte
    many = len(others) > 1
    loser = "all others" if many else other.label
    # Relative to the first arm, as in the table's column of changes.
    if result.winner is result.arms[0]:
        share = f"{worse / better - 1:.2%} more bits per byte"
        share = f"; the next best, {other.label}, needs {share}" if many else f", which needs {share}"
    else:
        share = f": {1 - better / worse:.2%} fewer bits per byte"
        share += f" than {other.label}, the next best" if many else ""
    runs += "; it loses some text" if lost_text(result.winner) else ""
    return f"{result.winner.label} predicts held-out text better than {loser}{share} ({runs})."


def _apart(result: Result, one: int, other: int) -> bool:
    """Return whether two arms differ significantly after the correction for multiple comparisons."""
    return result.comparisons[min(one, other), max(one, other)].verdict != "no significant difference"


def _some(labels: Sequence[str], most: int = 2) -> str:
    """Join labels for a sentence; a long list is shortened."""
    shown = list(labels) if len(labels) <= most + 1 else [*labels[:most], f"{len(labels) - most} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def warn_of_few(context: Context, n_documents: int) -> None:
    """Warn before training if there are too few held-out documents for a verdict."""
    if n_documents < FEWEST_DOCUMENTS:
        context.reporter.say(
            f"warning: {n_documents} held-out documents are too few for a verdict, which requires at least "
            f"{FEWEST_DOCUMENTS}; raise corpus.heldout_fraction, or name held-out text with corpus.heldout_paths",
            style="yellow",
        )


def conditions(result: Result) -> str:
    """Return a sentence about what the models had in common, measured on the actual runs."""
    models = [each.lm.contents.summary for each in result.arms]

    def equal(key: str, tolerance: float = 0.02) -> bool:
        values = [getattr(model, key) for model in models]
        return bool(max(values) <= min(values) * (1 + tolerance))

    context = "the same number of bytes" if equal("context_bytes", 0) else "contexts of different sizes"
    if equal("bytes") and equal("steps", 0):
        return (
            "All models read the same documents in the same order and in the same number of steps, and see "
            f"{context} of context."
        )
    same = [
        name
        for key, name in (("flops", "training FLOPs"), ("tokens", "training tokens"), ("steps", "training steps"))
        if equal(key, 0 if key == "steps" else 0.02)
    ]
    seen = f"between {si(min(m.bytes for m in models))}B and {si(max(m.bytes for m in models))}B of text"
    return (
        f"All models have equal {' and '.join(same)}, and read {seen}."
        if same
        else f"The models' budgets differ: they read {seen}; the table has the numbers."
    )


def detail(result: Result) -> str:
    """Return a difference with its uncertainty and what the uncertainty includes.

    With two arms, this is the second minus the first. With more, it is the difference of `Result.pair`, and that of
    the winner from the next best arm.
    """
    if len(result.arms) == 1:
        return "Choose further arms, such as arms=[bpe,superbpe], to compare."
    first, second = (result.labels[i] for i in result.pair)
    compared = result.shown
    shown = f"{second} − {first} = {signed(compared.difference)} bits per byte"
    unequal = _unequal(result)
    if compared.interval is None:
        return f"{shown}; no interval, because there is only one document.{unequal}"
    low, high = compared.interval
    among = f"{compared.n_documents:,} held-out documents"
    if compared.cluster != "document":
        among = f"the {compared.n_clusters:,} {compared.cluster}s of {among}"
    if compared.n_seeds == 1:
        how = f"paired bootstrap over {among}; one training run each, so it does not include the spread between seeds"
    else:
        how = (
            f"Student's t over {compared.n_seeds} paired seeds and {among}; standard error from seeds "
            f"{compared.seed_error:.4f}, from documents {compared.document_error:.4f}"
        )
        if compared.n_seeds < FEWEST_SEEDS:
            how += f"; a claim about tokenizers requires {FEWEST_SEEDS} seeds"
    corrected = "" if len(result.arms) == 2 else ", not corrected for multiple comparisons"
    interval = f"{100 * compared.confidence:g} % interval {signed(low)} to {signed(high)}{corrected}"
    return f"{shown}, {interval} ({how}).{_lead(result)}{unequal}"


def _lead(result: Result) -> str:
    """The difference between the winner of more than two arms and the next best arm."""
    first, second = result.ranked[:2]
    pair = min(first, second), max(first, second)
    found = result.comparisons[pair]
    if result.winner is not result.arms[first] or pair == result.pair or found.interval is None:
        return ""
    sign = 1 if pair[1] == first else -1
    low, high = sorted(sign * end for end in found.interval)
    labels = [result.labels[i] for i in (first, second)]
    p = "" if found.p_adjusted is None else f", {p_value(found.p_adjusted)} after Holm's correction"
    difference = f"{labels[0]} − {labels[1]} = {signed(sign * found.difference)} bits per byte"
    return f" {difference} ({signed(low)} to {signed(high)}{p})."


def _unequal(result: Result) -> str:
    """Other differences between the two arms that may contribute to the difference in loss."""
    notes = [
        f" {each.label} loses text ({lost}): its score covers only the text that it keeps."
        for each in result.arms
        if (lost := lost_text(each))
    ]
    compared = [result.arms[i] for i in result.pair]
    models = [each.lm.contents.summary for each in compared]
    sizes = [each.tokenizer.vocab_size for each in compared]
    if len(set(sizes)) > 1:
        notes.append(f" The vocabularies differ: {_listed(sizes)} tokens.")
    parameters = [model.parameters_total for model in models]
    if len(set(parameters)) > 1:
        inner = [model.parameters_non_embedding for model in models]
        where = "only in the embeddings" if len(set(inner)) == 1 else f"{_listed(inner)} of them in the layers"
        notes.append(f" The models differ: {_listed(parameters)} parameters, {where}.")
    return "".join(notes)


def _listed(values: Sequence[int]) -> str:
    *rest, last = (f"{value:,}" for value in values)
    return f"{', '.join(rest)} and {last}"


def p_value(value: float) -> str:
    """Format a p-value; a very small one is only accurate to an order of magnitude."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def signed(value: float) -> str:
    """Format a difference of bits per byte with its sign."""
    return f"{value:+.4f}".replace("-", "−")

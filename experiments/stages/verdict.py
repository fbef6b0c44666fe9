"""The result of a comparison, as tables and sentences."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from experiments.cli.console import percent, percent_change, si, signed
from experiments.results import GROUPS
from lm.evaluate.bits_per_byte import SOURCE, sampling_unit
from lm.evaluate.comparison import DETECTABLE, FEWEST_EFFECTIVE, FEWEST_SEEDS
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from experiments.stages.comparison import ArmResult, Result
    from experiments.stages.context import Context
    from lm.data.shards import TextLoss
    from tokenizer.interface import TokenizerLike

_TOO_FEW = {
    "document": " Hold out more documents: corpus.heldout_fraction or corpus.heldout_paths.",
    "source": " If the sources are parts of one collection, eval.cluster=document compares documents instead.",
}
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
        table("All pairs", ["", "difference", "interval, after Holm", "p, after Holm", "better"], _pairs(result))
    say(verdict(result), style="bold")
    say(detail(result))
    if result.overlap is not None:
        say(result.overlap.sentence())
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
        change = percent_change(values[1], values[0]) if two and compared and values[0] else ""
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
    if (clean := clean_bits_per_byte(result)) is not None:
        rows.append(row("bits per byte, clean documents", clean, "{:.4f}".format, brief=True))
    if not two and len(scores) > 1:
        changes = [
            "withheld"
            if result.arms[0].barred or each.barred
            else percent_change(each.scores.bits_per_byte, scores[0].bits_per_byte)
            for each in result.arms
        ]
        changes[0] = ""
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
    if any(each.barred for each in result.arms):
        parts = ["none" if each.barred else "yes" for each in result.arms]
        rows.append(text("part in the verdict", parts, parts))
    return rows


def clean_bits_per_byte(result: Result) -> list[float] | None:
    """Loss of each arm on the documents without overlap with the training text; None if that is not known."""
    clean = result.clean
    if clean is None or not result.arms[0].compared[0].document_bytes[clean].any():
        return None
    return [fmean(model.only(clean).bits_per_byte for model in each.compared) for each in result.arms]


def _others(tokenizer: TokenizerLike) -> int:
    """Phase-2 tokens that the phase-1 pattern would cut and that span fewer than two words."""
    if not isinstance(tokenizer, Tokenizer):
        return 0
    return len(set(tokenizer.crossing_ids().tolist()) - set(tokenizer.superword_ids().tolist()))


def lost_text(each: ArmResult) -> str:
    """Describe how much of the held-out text an arm changes or cannot represent; empty if nothing is lost."""
    return describe_loss(each.heldout.contents.text_loss)


def describe_loss(loss: TextLoss | None) -> str:
    """Describe how much of a text its tokens change or cannot represent; empty if nothing is lost."""
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
    shares = [percent(group.n_bytes / result.arms[0].scores.n_bytes) for group in shown]
    values = [[table[group.name].bits_per_byte for table in tables] for group in shown]
    cells = [[f"{value:.4f}" for value in row] for row in values]
    if by_arm:
        header = ["", *(f"{group.name} ({share})" for group, share in zip(shown, shares, strict=True))]
        return title, header, [list(row) for row in zip(result.labels, *cells, strict=True)]
    header = [name, "share of bytes", *result.labels]
    rows = [[group.name, share, *row] for group, share, row in zip(shown, shares, cells, strict=True)]
    if len(tables) == 2:
        header.append("change")
        rows = [[*row, percent_change(second, first)] for row, (first, second) in zip(rows, values, strict=True)]
    return title, header, rows


def _pairs(result: Result) -> list[list[str]]:
    labels = result.labels
    return [
        [
            f"{labels[j]} − {labels[i]}",
            signed(found.difference),
            f"{signed(found.interval[0])} to {signed(found.interval[1])}" if found.interval else "–",
            "–" if found.p_adjusted is None else f"{found.p_adjusted:.3f}",
            decision(result, (i, j)),
        ]
        for (i, j), found in result.comparisons.items()
    ]


def equal(context: Context) -> str:
    """Return the quantity that is equal between the training runs, in words."""
    what = context.config.budget.mode.removeprefix("equal_")
    return f"equal {'FLOPs' if what == 'flops' else what} of training" + (" text" if what == "bytes" else "")


LEAST_EVIDENCE = 100_000_000
"""Models trained on fewer bytes of text are a demonstration."""


def is_demonstration(context: Context) -> bool:
    """Return whether the result is only a demonstration: as configured, or because the models read little text."""
    configured = context.config.report.demonstration
    return context.config.budget.train_bytes < LEAST_EVIDENCE if configured is None else configured


def verdict(result: Result) -> str:
    """Return the result as a sentence that includes the number of training runs.

    If the verdict about the tokenizers is withheld, the sentence is about these models, or says what is missing.
    """
    labels = [result.labels[i] for i in result.judged]
    if len(result.arms) == 1:
        loss = result.arms[0].scores.bits_per_byte
        return f"{result.labels[0]}: {loss:.4f} bits per byte on held-out text; nothing to compare it with."
    left_out = f" Not part of the verdict: {'; '.join(each.barred for each in result.arms if each.barred)}."
    left_out = left_out if len(labels) < len(result.arms) else ""
    if len(labels) < 2:
        return f"No verdict about the tokenizers: {result.withheld}."
    names = " and ".join(labels) if len(labels) == 2 else f"{len(labels)} tokenizers"
    if result.too_few:
        found = next(each for each in result.comparisons.values() if each.too_few and not each.barred)
        n, worth, fewest = found.n_clusters, found.effective_clusters, FEWEST_EFFECTIVE[found.cluster]
        return (
            f"Too few held-out {found.cluster}s to compare {names}: there are {n:,}, worth {worth:.1f} of equal size, "
            f"and at least {fewest} are required.{left_out}"
        )
    runs = "one training run each" if result.n_seeds == 1 else f"{result.n_seeds} seeds each"
    runs += "; it loses some text" if result.leader is not None and lost_text(result.leader) else ""
    said = _decided(result) if result.leader is not None else _undecided(result, names)
    required = f" A verdict about the tokenizers requires {FEWEST_SEEDS} seeds." if result.withheld else ""
    return f"{said} ({runs}).{required}{left_out}"


def _decided(result: Result) -> str:
    assert result.leader is not None
    others = [result.arms[i] for i in result.judged if result.arms[i] is not result.leader]
    other = min(others, key=lambda each: each.scores.bits_per_byte)
    label, many = result.leader.label, len(others) > 1
    better, worse = result.leader.scores.bits_per_byte, other.scores.bits_per_byte
    # Relative to the first arm, as in the table's column of changes.
    if result.leader is not result.arms[result.judged[0]]:
        share = f": {percent(1 - better / worse, 2)} fewer bits per byte" + (
            f" than {other.label}, the next best" * many
        )
    else:
        next_best = f"the next best, {other.label}," if many else "the other"
        share = f"; {next_best} needs {percent(worse / better - 1, 2)} more bits per byte"
    if result.withheld:
        return f"{_of_these(result)}, the {'lowest' if many else 'lower'} held-out loss is that of {label}{share}"
    return f"{label} predicts held-out text better than {'all others' if many else other.label}{share}"


def _undecided(result: Result, names: str) -> str:
    if len(result.judged) == 2:
        between = f"these {_count(result)} models" if result.withheld else names
        return f"No significant difference between {between} in how well they predict held-out text"
    best, *rest = result.ranked
    pairs = {i: result.comparisons[min(best, i), max(best, i)] for i in rest}
    level = _some([result.labels[i] for i, found in pairs.items() if found.lower is None])
    if result.withheld:
        lowest = f"{_of_these(result)}, the lowest held-out loss is that of {result.labels[best]}, which"
    else:
        lowest = f"{result.labels[best]} has the lowest held-out loss of {names}, but"
    return f"{lowest} does not differ significantly from {level}"


def _count(result: Result) -> str:
    n_models = len(result.judged) * result.n_seeds
    return "two" if n_models == 2 else f"{n_models}"


def _of_these(result: Result) -> str:
    return f"Of these {_count(result)} models"


def decision(result: Result, pair: tuple[int, int]) -> str:
    """Return the result of one comparison for a table: the better tokenizer, or why there is none."""
    found = result.comparisons[pair]
    if found.withheld:
        return f"withheld: {found.withheld}"
    return "undecided" if found.lower is None else result.labels[pair["AB".index(found.lower)]]


def _some(labels: Sequence[str], most: int = 2) -> str:
    """Join labels for a sentence; a long list is shortened."""
    shown = list(labels) if len(labels) <= most + 1 else [*labels[:most], f"{len(labels) - most} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def warn_of_few(context: Context, n_documents: int, n_sources: int) -> None:
    """Warn before training if there are too few held-out documents or sources for a verdict."""
    remedy = "raise corpus.heldout_fraction, or name held-out text with corpus.heldout_paths"
    if context.config.corpus.heldout_sample < 1:
        remedy = "raise corpus.heldout_sample"
    n, unit = n_documents, sampling_unit(context.config.eval.cluster, n_sources)
    if unit == SOURCE:
        n = n_sources
        remedy = "if they are arbitrary parts of one collection, set eval.cluster=document"
    if n < FEWEST_EFFECTIVE[unit]:
        context.reporter.say(
            f"warning: {n} held-out {unit}s are too few for a verdict, which requires at least "
            f"{FEWEST_EFFECTIVE[unit]}; {remedy}",
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
    the leader from the next best arm.
    """
    if len(result.arms) == 1:
        return "Choose further arms, such as arms=[bpe,superbpe], to compare."
    first, second = (result.labels[i] for i in result.pair)
    compared = result.shown
    shown = f"{second} − {first} = {signed(compared.difference)} bits per byte"
    unequal = _unequal(result)
    if compared.interval is None:
        return f"{shown}; no interval, because one {compared.cluster} has all of the text.{unequal}"
    low, high = compared.interval
    among = f"{compared.n_documents:,} held-out documents"
    if compared.cluster != "document":
        among = f"the {compared.n_clusters:,} {compared.cluster}s of {among}"
    how = f"Student's t over {among}, worth {compared.effective_clusters:.1f} of equal size"
    if compared.n_seeds == 1:
        how += "; one training run each, so it does not include the spread between seeds"
    else:
        how += (
            f", and {compared.n_seeds} paired seeds; standard error from seeds {compared.seed_error:.4f}, "
            f"from {compared.cluster}s {compared.document_error:.4f}"
        )
    n = sum(not each.barred for each in result.comparisons.values())
    corrected = f", corrected for {n} comparisons" if n > 1 else ""
    interval = f"{100 * compared.level:.4g} % interval {signed(low)} to {signed(high)}{corrected}"
    return f"{shown}, {interval} ({how}).{_lead(result)}{_more(result)}{unequal}"


def _more(result: Result) -> str:
    """What would allow a verdict, or decide an undecided one."""
    compared = result.shown
    if compared.barred:
        return ""
    if compared.too_few:
        return _TOO_FEW[compared.cluster]
    if compared.needed is None or compared.lower is not None:
        return ""
    clusters, seeds = compared.needed
    difference = f"a difference of {percent(DETECTABLE)}"
    if clusters <= compared.n_clusters and seeds is not None and seeds <= compared.n_seeds:
        return f" This run would show {difference} with a probability of 80 %."
    sample = f"about {max(clusters, compared.n_clusters):,} {compared.cluster}s like these"
    if seeds is None:
        return f" With a probability of 80 %, {sample} would show {difference} between two models like these."
    return f" With a probability of 80 %, {max(seeds, compared.n_seeds)} seeds and {sample} would show {difference}."


def _lead(result: Result) -> str:
    """The difference between the leader of more than two arms and the next best arm."""
    if len(result.ranked) < 2:
        return ""
    first, second = result.ranked[:2]
    pair = min(first, second), max(first, second)
    found = result.comparisons[pair]
    if result.leader is not result.arms[first] or pair == result.pair or found.interval is None:
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
    notes += [f" {result.left_out}"] if result.left_out else []
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

"""Every sentence that says what was found: verdicts and their uncertainty.

A sentence claims nothing beyond its decision: a difference that the tests do not show is called undecided, a withheld
verdict is called withheld, and what is only measured is stated about the measured text.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from experiments.numbers import percent, si, signed
from experiments.progress import Lines
from lm.evaluate.comparison import FEWEST_EFFECTIVE, FEWEST_SEEDS, Decision
from tokenizer.errors import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.findings.compared import Findings, ScoredArm
    from lm.evaluate.comparison import Comparison
    from lm.scaling.equivalent import Answer, Equivalent
    from lm.scaling.gaps import Gap

    Report = Mapping[str, Any]

AT_SCALE = (
    "What is known of superwords at scale: in a public bake-off, with one run per tokenizer (marin-community/marin, "
    "issue 6796), SuperBPE with 128k tokens needed 3 % fewer bits per byte than Llama 3's tokenizer in models of 4e17 "
    "to 2e18 training FLOPs, but 0.4 % more at 6e19 and 1.9 % more at 2.6e20; with 64k tokens it needed 0.2 to 1.1 % "
    "fewer. In a study of 988 models up to 7B, the best compression falls as compute grows (arXiv 2605.01188). The "
    "SuperBPE paper found gains downstream at 8B parameters, and slightly worse bits per byte (arXiv 2503.13423): the "
    "two can disagree (marin, issue 524). K-EXAONE, a model of 236B in production, has superwords."
)
"""Published results beyond the budgets of small models, shown beside their verdicts."""
_SMALL = 6e19
"""Training FLOPs of the smallest budget of that bake-off."""
_ASYMMETRIC = 1.25
"""Ratio of the longer side of an interval to the shorter one that needs an explanation."""

ANSWERS: dict[Answer, str] = {
    "yes": "worth it",
    "no": "not worth it",
    "undecided": "undecided",
    "withheld": "no verdict",
    "unknown": "not measured",
}
"""Whether a tokenizer is worth it, in words."""
BUDGETS = {
    "equal_bytes": "equal bytes of training text",
    "equal_tokens": "equal training tokens",
    "equal_flops": "equal training compute",
    "equal_deployed_flops": "equal compute of training the deployed model",
}
"""Names of the quantity that the models have in common, by `budget.mode`."""


# Tokenizers at one budget.


def verdict(result: Findings) -> str:
    """The result of a comparison as a sentence that includes the number of training runs.

    If the verdict about the tokenizers is withheld, the sentence is about these models, or says what is missing.
    """
    labels = [result.labels[i] for i in result.judged]
    if len(result.arms) == 1:
        loss = result.arms[0].scores.bits_per_byte
        return f"{result.labels[0]}: {loss:.4f} bits per byte on held-out text; nothing to compare it with."
    if len(labels) < 2:
        return f"No verdict about the tokenizers: {result.withheld}."
    barred = "; ".join(arm.barred for arm in result.arms if arm.barred)
    barred = f" Not part of the verdict: {barred}." if barred else ""
    for label, points in result.suspects.items():
        barred += (
            f" Warning: against {result.labels[0]}, {label} saves {points:.1f} points more tokens on held-out than on "
            "training text: it may have been trained on the held-out text."
        )
    names = " and ".join(labels) if len(labels) == 2 else f"{len(labels)} tokenizers"
    if any(comparison.too_few for comparison in result.tested.values()):
        shown = result.shown
        n, counts_as, fewest = shown.n_clusters, shown.effective_clusters, FEWEST_EFFECTIVE[shown.cluster]
        return (
            f"Too few held-out {shown.cluster}s to compare {names}: there are {n:,}, which count as {counts_as:.1f} of "
            f"equal size, and at least {fewest} are required.{barred}"
        )
    runs = "one training run each" if result.n_seeds == 1 else f"{result.n_seeds} seeds each"
    required = f" A verdict about the tokenizers requires {FEWEST_SEEDS} seeds." if result.withheld else ""
    sizes = [result.arms[i].tokenizer.vocab_size for i in result.judged]
    unequal = ""
    if min(sizes) < max(sizes):
        unequal = f" The vocabularies have {min(sizes):,} to {max(sizes):,} tokens, which is part of the difference."
    return f"{_outcome(result, names)} ({runs}).{unequal}{required}{barred}"


def _outcome(result: Findings, names: str) -> str:
    """The comparisons with the reference in words, about these models if the verdict about tokenizers is withheld."""

    def subject(labels: Sequence[str]) -> str:
        if not result.withheld:
            return _listed(labels)
        if len(labels) > 1:
            return f"the models of {_listed(labels)}"
        return f"the {labels[0]} model" if result.n_seeds == 1 else f"the {labels[0]} models"

    tested = sorted(result.tested.items(), key=lambda item: item[1].percent)
    reference, parts = subject(result.labels[:1]), []
    for found in (Decision.BETTER, Decision.WORSE, Decision.UNDECIDED):
        group = {result.labels[j]: comparison.percent for j, comparison in tested if comparison.decision is found}
        if not group:
            continue
        others, cost = subject(list(group)), _cost(result, list(group))
        several = len(group) > 1 or (bool(result.withheld) and result.n_seeds > 1)
        ends = [percent(end(map(abs, group.values())) / 100, 2) for end in (min, max)]
        size = ends[0] if ends[0] == ends[1] else f"{ends[0].removesuffix(' %')} to {ends[1]}"
        if found is Decision.BETTER:
            verb = "predict" if several else "predicts"
            parts.append(f"{others} {verb} held-out text better than {reference}: {size} fewer bits per byte{cost}")
        elif found is Decision.WORSE:
            better = "" if result.withheld else f"{reference} predicts held-out text better than {others}: "
            than = f" than {reference}" if result.withheld else ""
            parts.append(f"{better}{others} need{'' if several else 's'} {size} more bits per byte{than}{cost}")
        elif len(tested) == 1:
            between = f"these {_count(result)} models" if result.withheld else names
            parts.append(f"no significant difference between {between} in how well they predict held-out text")
        else:
            parts.append(f"no significant difference between {reference} and {others}")
    start, sentence = _budget(result), "; ".join(parts)
    names_first = not (start or result.withheld or sentence.startswith("no significant"))
    return sentence if names_first else _capitalised(start + sentence)


def _cost(result: Findings, labels: Sequence[str]) -> str:
    """The training FLOPs of arms against the reference's, if they may differ and do so by more than 5 %."""
    if not result.trained_here:
        return ""
    first, *_ = flops = {arm.label: arm.lm.contents.trained.flops for arm in result.arms}
    changes = sorted(100 * (flops[label] / flops[first] - 1) for label in labels)
    if _mode(result).endswith("flops") or max(map(abs, changes)) <= 5:
        return ""
    if changes[0] < 0 < changes[-1]:
        return f", with {signed(changes[0], 0)} to {signed(changes[-1], 0)} % training FLOPs"
    which, values = ("fewer", [-change for change in changes[::-1]]) if changes[-1] < 0 else ("more", changes)
    ends = dict.fromkeys(signed(end, 0).removeprefix("+") for end in (values[0], values[-1]))
    return f", for {' to '.join(ends)} % {which} training FLOPs"


def _budget(result: Findings) -> str:
    """The start of a sentence: the quantity that the judged models share; "as given" for models from elsewhere."""
    if mode := _mode(result):
        return f"at {BUDGETS[mode]}, "
    return "" if result.trained_here else "as given, "


def _mode(result: Findings) -> str:
    """The judged models' `budget.mode`; empty if they differ or it is unknown."""
    modes = {result.arms[i].settings.get("budget.mode") or "" for i in result.judged}
    return modes.pop() if len(modes) == 1 else ""


def _count(result: Findings) -> str:
    n_models = len(result.judged) * result.n_seeds
    return "two" if n_models == 2 else f"{n_models}"


def decision(compared: Comparison, labels: Sequence[str]) -> str:
    """The result of a comparison for a table: the better of two tokenizers, or why there is none."""
    better = {Decision.BETTER: labels[1], Decision.WORSE: labels[0]}
    return better.get(compared.verdict, compared.verdict)


def detail(result: Findings) -> str:
    """The difference of `Findings.pair`, what its uncertainty includes and what is unequal; a line per further arm."""
    if len(result.arms) == 1:
        return _untraced(result).lstrip()
    first, compared = result.labels[0], result.shown
    difference = _difference(result, result.pair[1])
    others = [f"{_difference(result, j)}." for j in result.tested if j != result.pair[1]]
    if compared.interval is None:
        why = f"no interval, because there are too few {compared.cluster}s"
        return Lines(f"{difference}; {why}.{_unequal(result)}", *others)
    among = f"{compared.n_documents:,} held-out documents"
    if compared.cluster != "document":
        among = f"the {compared.n_clusters:,} {compared.cluster}s of {among}"
    how = f"Student's t over {among}, which count as {compared.effective_clusters:.1f} of equal size"
    if compared.kinds:
        how += f", within {len(compared.kinds)} kinds of text"
        if compared.weights:
            how += f" weighted {_listed([f'{name} {percent(share, 0)}' for name, share in compared.weights.items()])}"
    if compared.n_seeds == 1:
        how += "; one training run each, so it does not include the spread between seeds"
    else:
        over = f" (pooled over {_listed(compared.pooled, most=len(compared.pooled))})" if compared.pooled else ""
        how += (
            f", and {compared.n_seeds} paired seeds; standard error from seeds {compared.seed_error:.2f}{over}, "
            f"from {compared.cluster}s {compared.document_error:.2f}"
        )
    if compared.luck_error:
        how += f", from the text of the tokenizers {compared.luck_error:.2f}"
    fixed = [label for i, label in enumerate(result.labels) if not result.luck or result.luck[i] is None]
    if fixed and compared.n_seeds >= FEWEST_SEEDS:
        how += f"; about these vocabularies, without the luck of their training text: {_listed(fixed)}"
    if compared.rates_change:
        how += f"; other learning rates that are about as good change it by up to {compared.rates_change:.2f}"
    n = len(result.tested)
    corrected = f", corrected for {n} comparisons with {first} ({100 * compared.confidence:g} % together)"
    corrected = corrected if n > 1 and compared.tested else ""
    note = asymmetry(compared.percent, compared.interval, compared.cluster)
    return Lines(f"{difference}{corrected} ({how}).{note}{_division(result)}{_unequal(result)}", *others)


def _difference(result: Findings, other: int) -> str:
    """The difference of an arm from the reference, with its interval."""
    compared = result.comparisons[0, other]
    text = f"{result.labels[other]} against {result.labels[0]}: {signed(compared.percent, 2)} % bits per byte"
    if (ends := compared.interval) is not None:
        text += f", {100 * compared.level:.4g} % interval {signed(ends[0], 2)} to {signed(ends[1], 2)}"
    return text


def _division(result: Findings) -> str:
    """Divide the difference between superwords and a reference with another phase 1, if an arm is their phase 1 alone.

    The arm `bpe_same` is one. The parts are measured and not tested.
    """
    settings = [result.arms[i].settings for i in result.judged]
    phase1 = [tuple(values.get(key) for key in ("pattern", "bpe.unit")) for values in settings]
    recipes = [values.get("recipe") for values in settings]
    if 0 not in result.judged or recipes[0] != "bpe":
        return ""
    places = range(1, len(settings))
    superwords = next((j for j in places if recipes[j] == "superbpe" and phase1[j] != phase1[0]), None)
    same = next((i for i in places if recipes[i] == "bpe" and superwords and phase1[i] == phase1[superwords]), None)
    if superwords is None or same is None:
        return ""
    first, middle, last = (result.judged[i] for i in (0, same, superwords))
    whole, part = (result.comparisons[first, other].percent for other in (last, middle))
    rest = 100 * ((100 + whole) / (100 + part) - 1)
    labels = result.labels
    return (
        f" Of the {signed(whole, 2)} % of {labels[last]}, pattern and unit account for {signed(part, 2)} % "
        f"({labels[middle]} against {labels[first]}), and superwords for {signed(rest, 2)} % "
        f"({labels[last]} against {labels[middle]})."
    )


def asymmetry(value: float, interval: Sequence[float], cluster: str) -> str:
    """A sentence about an interval that is longer on one side; empty if it is not."""
    below, above = value - interval[0], interval[1] - value
    if max(below, above) <= _ASYMMETRIC * min(below, above):
        return ""
    side = "above" if above > below else "below"
    return (
        f" The interval is longer {side} the measured value, because a few {cluster}s differ much more in that "
        "direction than the others, or because large ones pull the value towards themselves."
    )


def at_scale(flops: float, *, superwords: bool) -> str:
    """Published results at scale, to stand beside verdicts about models of little compute; empty for others.

    Args:
        flops: Training FLOPs of the largest model.
        superwords: Whether one of the tokenizers has superwords.
    """
    return AT_SCALE if superwords and flops < _SMALL else ""


def at_scale_of(result: Findings) -> str:
    """`at_scale` for the models and tokenizers of a comparison."""
    if not result.trained_here:
        return ""
    flops = max(arm.lm.contents.trained.flops for arm in result.arms)
    return at_scale(flops, superwords=any(len(arm.tokenizer.superword_ids()) for arm in result.arms))


def _unequal(result: Findings) -> str:
    """Differences between the arms, other than the tokenizer, that may contribute to the difference in loss."""
    notes = [
        f" {arm.label} loses text ({lost}): its score covers only the text that it keeps."
        for arm in result.arms
        if (lost := lost_text(arm))
    ]
    if result.left_out:
        notes.append(f" {result.left_out}")
    notes.append(_untraced(result))
    parameters, inner = zip(*(arm.lm.contents.parameters for arm in result.arms), strict=True)
    if len(set(parameters)) > 1:
        sizes = [f"{arm.label} {n:,}" for arm, n in zip(result.arms, parameters, strict=True)]
        where = " (in the embeddings only)"
        if len(set(inner)) > 1:
            sizes = [f"{size} ({n:,})" for size, n in zip(sizes, inner, strict=True)]
            where = " (of them in the layers)"
        notes.append(f" The models differ in parameters{where}: {_listed(sizes, len(sizes))}.")
    return "".join(notes)


def _untraced(result: Findings) -> str:
    """The existing tokenizers that may have been trained on the held-out text."""
    labels: dict[str, list[str]] = {}
    for arm in result.arms:
        labels.setdefault(arm.untraced, []).append(arm.label)
    labels.pop("", None)
    return "".join(
        f" Training text unknown: {_listed(names, len(names))} may have been trained on the held-out text, which would "
        f"make the numbers too good ({why})."
        for why, names in labels.items()
    )


def conditions(result: Findings) -> str:
    """A sentence about what the models had in common, measured on the actual runs."""
    if not result.trained_here:
        starts = _listed(
            [f"{arm.label} {arm.settings.get('start', 'its end of text')}" for arm in result.arms],
            most=len(result.arms),
        )
        budgets = "Training budgets are as stated" if _mode(result) else "What the models have in common is unknown"
        return (
            f"{budgets}; whether they were trained on this text is unknown. The token before each document: {starts}."
        )
    models = [arm.lm.contents.trained for arm in result.arms]

    def equal(key: str, tolerance: float = 0.02) -> bool:
        values = [getattr(model, key) for model in models]
        return bool(max(values) <= min(values) * (1 + tolerance))

    if equal("bytes") and equal("steps", 0):
        context = "the same number of bytes" if equal("context_bytes", 0) else "contexts of different sizes"
        return (
            "All models read the same documents in the same order and in the same number of steps, and see "
            f"{context} of context."
        )
    names = (("flops", "training FLOPs"), ("tokens", "training tokens"), ("steps", "training steps"))
    same = [name for key, name in names if equal(key, 0 if key == "steps" else 0.02)]
    seen = f"between {si(min(m.bytes for m in models))}B and {si(max(m.bytes for m in models))}B of text"
    if not same:
        return f"The models' budgets differ: they read {seen}; the table has the numbers."
    return f"All models have equal {' and '.join(same)}, and read {seen}."


def lost_text(arm: ScoredArm) -> str:
    """How much of the held-out text an arm changes or cannot represent; empty if nothing is lost."""
    loss = arm.heldout.contents.text_loss
    if loss is None or not (loss.changed_documents or loss.unknown_tokens or loss.unaccounted_bytes):
        return ""
    unknown = f", {loss.unknown_tokens:,} unknown tokens" if loss.unknown_tokens else ""
    lacking = f", {loss.unaccounted_bytes:,} bytes covered by no token" if loss.unaccounted_bytes else ""
    return f"{counted(loss.changed_documents, 'document')} changed{unknown}{lacking}"


def _listed(names: Sequence[str], most: int = 3) -> str:
    """Join names for a sentence; a long list is shortened."""
    shown = list(names) if len(names) <= most + 1 else [*names[:most], f"{len(names) - most} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# Tokenizers over training compute.


def statements(gap: Gap) -> list[str]:
    """Sentences about an arm over compute: the verdict at the budgets, the trend, and their limits."""
    sentences = [_at_budgets(gap)]
    if gap.barred:
        return sentences
    if gap.slope is not None:
        sentences.append(_trend(gap))
    else:
        sentences.append("one budget: no trend can be seen")
    if gap.n_seeds < FEWEST_SEEDS:
        runs = "one run" if gap.n_seeds == 1 else f"{gap.n_seeds} runs"
        sentences.append(f"{runs} per arm: this is about these models, and names no better tokenizer")
    return sentences


def decisions(gap: Gap) -> list[str]:
    """For each budget: `better`, `worse` or `undecided`, or `withheld` where no tokenizer may be called better."""
    return [str(Decision.WITHHELD if gap.withheld else decision) for decision in gap.decisions]


def flops_text(flops: float) -> str:
    """A budget for a sentence.

    >>> flops_text(2e15), flops_text(2.6e20)
    ('2e15', '2.6e20')
    """
    return f"{flops:.2g}".replace("e+0", "e").replace("e+", "e")


def change_text(value: float, interval: Sequence[float] | None = None) -> str:
    """A change in percent, with its interval.

    >>> change_text(-0.84), change_text(0.3, (-0.1, 0.7))
    ('−0.8 %', '+0.3 % (−0.1 to +0.7)')
    """
    ends = "" if interval is None else f" ({signed(interval[0], 1)} to {signed(interval[1], 1)})"
    return f"{signed(value, 1)} %{ends}"


def _at_budgets(gap: Gap) -> str:
    """Between which budgets the arm is better or worse than the reference."""
    withheld = f"the verdict is withheld: {gap.withheld}"
    parts = [withheld] if gap.barred or gap.too_few else []
    few = gap.n_seeds < FEWEST_SEEDS
    arm, reference = (f"the models of {name}" if few else name for name in (gap.arm, gap.reference))
    for decision, places in groupby(range(len(gap.decisions)), key=lambda i: gap.decisions[i]):
        run = list(places)
        first, last = run[0], run[-1]
        low, high = flops_text(gap.spent[first]), flops_text(gap.spent[last])
        where = f"at {low} FLOPs" if first == last else f"between {low} and {high} FLOPs"
        values = gap.percent[first : last + 1]
        if decision is not Decision.UNDECIDED:
            needs, which = "need" if few else "needs", "more" if decision is Decision.WORSE else "fewer"
            by = _range_of([abs(value) for value in values]).replace("+", "")
            parts.append(f"{where}, {arm} {needs} {which} bits per byte than {reference}, by {by}")
        else:
            gaps = "gaps from " if first < last else ""  # not an interval
            parts.append(f"{where}, undecided: {gaps}{_range_of(values)}{_interval_of(gap, first, last)}")
    return "; ".join(parts)


def _interval_of(gap: Gap, first: int, last: int) -> str:
    if gap.intervals is None:
        return ""
    low, high = (f(interval[i] for interval in gap.intervals[first : last + 1]) for i, f in ((0, min), (1, max)))
    level = "" if gap.level == gap.confidence else f", corrected to {100 * gap.level:.4g} % for the number of arms,"
    return f", with {100 * gap.confidence:g} % intervals{level} from {signed(low, 1)} to {signed(high, 1)} %"


def _trend(gap: Gap) -> str:
    assert gap.slope is not None
    numbers = f"slope {signed(gap.slope.points, 2)} points per e-fold of FLOPs"
    if gap.slope.interval is not None and (gap.slope.scatter or not gap.too_few):
        numbers += f", {100 * gap.confidence:g} % interval {' to '.join(signed(x, 2) for x in gap.slope.interval)}"
    if gap.slope.scatter:
        numbers += f", from the scatter of {len(gap.flops)} budgets around a line"
    direction = 0 if gap.too_few else gap.slope.direction
    if not direction and not gap.slope.direction:
        return f"no trend with compute is shown ({numbers})"
    if not direction or gap.n_seeds < FEWEST_SEEDS or len(gap.flops) < 3:
        return f"no trend with compute is claimed from so little data ({numbers})"
    signs = {value > 0 for value in gap.percent}
    verb = ("rises", "falls") if len(signs) > 1 else ("grows", "shrinks")
    up = direction > 0 if len(signs) > 1 else (direction > 0) == signs.pop()
    return f"the gap {verb[0] if up else verb[1]} with compute ({numbers})"


def _range_of(values: Sequence[float]) -> str:
    low, high = signed(min(values), 1), signed(max(values), 1)
    return f"{low} %" if low == high else f"{low} to {high} %"


def worth_headline(answers: Mapping[str, Equivalent], reference: str) -> str:
    """Which tokenizers are worth it instead of the reference, from the answers by name."""
    if not answers:
        return "One tokenizer: nothing to compare it with"
    by: dict[str, list[str]] = {}
    for name, equivalent in answers.items():
        by.setdefault(equivalent.answer, []).append(name)
    if len(by.get("withheld", [])) == len(answers):
        return f"No verdict: {next(iter(answers.values())).reason}"
    parts, equal = [], "at equal cost of training and serving"
    if yes := by.get("yes"):
        saved = max(-(answers[name].percent or 0.0) for name in yes)
        most = "up to " if len(yes) > 1 else ""
        cost = f"{most}{saved:.1f} % fewer bits per byte than {reference} {equal}"
        parts.append(f"{_listed(yes)} {_are(yes)} worth it: {cost}")
    if no := by.get("no"):
        parts.append(f"{_listed(no)} {_are(no)} not worth it instead of {reference} {equal}")
    if undecided := by.get("undecided"):
        parts.append(f"undecided whether {_listed(undecided)} {_are(undecided)} worth it {equal}")
    if rest := [*by.get("withheld", []), *by.get("unknown", [])]:
        parts.append(f"no verdict about {_listed(rest)}")
    headline = "; ".join(parts)
    return headline if yes or no else _capitalised(headline)


def _capitalised(sentence: str) -> str:
    """A sentence with a capital letter; one that begins with the name of an arm stays as it is."""
    return sentence[0].upper() + sentence[1:]


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def loses_text(row: Report) -> bool:
    """Whether a tokenizer loses text of a row of `fertility.json`: it may need fewer tokens for that reason alone."""
    return bool(row["lost_bytes"] or row["changed_documents"])

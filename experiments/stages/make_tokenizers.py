"""The tokenizers of all arms: trained here, without merges, or from a file or the Hugging Face Hub.

Arms share work where they can: counts of the same pretokens, and one list of phase-1 merges that is cut to each size.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.results import TokenizerFolder
from experiments.shell import pattern_named
from experiments.stages import heldout, phase1, phase2
from experiments.stages.tokenizers import ArmTokenizer, keep
from tokenizer.corpus.seen import saw
from tokenizer.errors import UserError, did_you_mean
from tokenizer.external.load import load_pretrained
from tokenizer.patterns import resolve
from tokenizer.special import END_OF_TEXT
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from experiments.arms import Arm
    from experiments.config import BudgetConfig
    from experiments.results import Counts, HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.interface import TokenizerLike


def check(arms: Sequence[Arm], stages: Collection[str]) -> None:
    """Raise a UserError, before any work, if a tokenizer is a file that does not exist, or cannot end documents."""
    for arm in arms:
        if "shard" in stages and arm.source is None and END_OF_TEXT not in arm.bpe.special_tokens:
            raise UserError(f"bpe.special_tokens of {arm.name} lacks {END_OF_TEXT}, which ends documents; add it")
        if arm.recipe == "file" and arm.source is not None and not Path(arm.source).exists():
            near = did_you_mean(arm.source, map(str, [*Path(arm.source).parent.glob("*"), *Path().glob("*")]))
            raise UserError(
                f"arms.{arm.name}.file={arm.source} does not exist{near}; a repository of the Hugging Face Hub is "
                f"named with arms.{arm.name}.pretrained"
            )


def load_existing(context: Context, arms: Sequence[Arm], context_bytes: float = math.inf) -> dict[str, ArmTokenizer]:
    """Load the tokenizers of arms that are not trained, before hours of work.

    Args:
        context: Context of the run.
        arms: The arms.
        context_bytes: Context in which the models are scored, which no token may exceed.
    """
    tokenizers = {arm.name: _existing(context, arm) for arm in arms if arm.source is not None}
    _check_lengths(tokenizers, context_bytes)
    return tokenizers


def make_tokenizers(
    context: Context,
    text: Text,
    arms: Sequence[Arm],
    stages: Collection[str],
    existing: Mapping[str, ArmTokenizer],
    counts: Mapping[str, Artifact[Counts]],
    budget: BudgetConfig | None = None,
    context_bytes: float = math.inf,
) -> dict[str, ArmTokenizer]:
    """Train phase 1 once for all arms that can share it, and finish every arm.

    Args:
        context: Context of the run.
        text: The corpus.
        arms: The arms.
        stages: Stages of the pipeline to run. With `train_bpe` but not `train_superbpe`, only phase 1 runs.
        existing: The tokenizers of arms that are not trained, by name.
        counts: The counts of the arms that are trained, by name.
        budget: Budget of the models, for which the counted text must be large enough; None without models.
        context_bytes: Context in which the models are scored, which no token may exceed.

    Returns:
        The tokenizers by the name of the arm, in the order of `arms`, without those that these stages do not make.
    """
    tokenizers = dict(existing)
    trained = [arm for arm in arms if arm.trained]
    families = phase1.families(trained, counts)
    if families and budget is not None:
        budget.check_epochs(families[0].counts.contents.n_bytes)
    if "train_bpe" not in stages:
        return {}
    tokenizers |= {arm.name: _bytes_only(context, arm) for arm in arms if arm.recipe == "bytes"}
    lists: dict[str, phase1.MergeList] = {}
    for family in families:
        stage = "phase1" if len(families) == 1 else f"phase1 {family.arms[0].name}"
        lists |= dict.fromkeys([arm.name for arm in family.arms], phase1.train(context, family, stage))
    for arm in trained:
        if arm.recipe == "bpe":
            size = lists[arm.name].tokenizer.vocab_size
            if budget is not None and len(trained) > 1 and size < 0.99 * arm.vocab_size:
                raise UserError(
                    f"the text has only enough pairs for {size:,} tokens of {arm.name}, so the sizes of vocabularies "
                    f"would differ; use bpe.vocab_size={size} or less, or more text"
                )
            tokenizers[arm.name] = phase1.cut(context, arm, lists[arm.name])
        elif "train_superbpe" in stages:
            tokenizers[arm.name] = phase2.train(context, arm, text, lists[arm.name])
    _check_lengths(tokenizers, context_bytes)
    ordered, names = {arm.name: tokenizers[arm.name] for arm in arms if arm.name in tokenizers}, dict[str, str]()
    for name, one in ordered.items():
        if (same := names.setdefault(one.tokenizer.sha256, name)) != name:
            warnings.warn(f"{same} and {name} are the same tokenizer; leave one of them out of arms", stacklevel=2)
    return ordered


def _check_lengths(tokenizers: Mapping[str, ArmTokenizer], context_bytes: float) -> None:
    """Raise a UserError if a token is longer than the context in which models are scored."""
    for name, arm in tokenizers.items():
        lengths = arm.tokenizer.token_byte_lengths()
        if (longest := int(lengths.max())) > context_bytes:
            token = int(lengths.argmax())
            raise UserError(
                f"arms.{name} has a token of {longest} bytes (id {token}, {arm.tokenizer.vocab[token][:20]!r}...), "
                f"longer than eval.context_bytes={context_bytes}; add eval.context_bytes={longest}"
            )


def _bytes_only(context: Context, arm: Arm) -> ArmTokenizer:
    """Return the tokenizer without merges."""
    tokenizer = Tokenizer.from_ranks([], pattern=resolve("none"), special_tokens=arm.bpe.special_tokens)
    artifact = keep(context, tokenizer, {})
    with context.reporter.stage(arm.name):
        context.done(arm.name, artifact, f"vocabulary {tokenizer.vocab_size:,}")
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact)


def _existing(context: Context, arm: Arm) -> ArmTokenizer:
    """Load the tokenizer of an arm. Documents are separated by its own end of text, or by the arm's."""
    assert arm.source is not None
    with context.reporter.stage(arm.name):
        from_hub = arm.recipe == "pretrained"
        with pattern_named(f"arms.{arm.name}.pattern=NAME"):
            loaded = load_pretrained(
                arm.source,
                revision=arm.revision,
                from_hub=from_hub,
                pattern=arm.source_pattern,
                end_of_text=arm.end_of_text,
            )
        if loaded.tokenizer.end_of_text is None:
            raise UserError(
                f"{arm.source} does not say which token ends a document; name one, its own or a new one, with "
                f"arms.{arm.name}.end_of_text='\"STRING\"'"
            )
        about = TokenizerFolder.load(loaded.about())
        artifact = keep(context, loaded.tokenizer, {}, about)
    where = arm.source if loaded.revision is None else f"{arm.source} at {loaded.revision[:12]}"
    what = f"{where}, vocabulary {loaded.tokenizer.vocab_size:,}, documents end with {loaded.tokenizer.end_of_text}"
    if loaded.added:
        what += " (a new id)"
    if about.software is not None:
        what += f", run by {about.software}"
    context.done(arm.name, artifact, what)
    return ArmTokenizer(arm.name, arm.label, loaded.tokenizer, artifact)


def check_split(arm: Arm, tokenizer: TokenizerLike, text: Text, documents: Artifact[HeldoutDocuments]) -> str:
    """Raise a UserError if this run would score text on which the tokenizer was trained, or by which it was chosen.

    A few held-out documents often occur in training text too; that is said. Returned is why it cannot be told whether
    training saw more; empty if it did not.
    """
    answer = saw(tokenizer, heldout.hashes(documents), text.corpus)
    said = f"arms.{arm.name}: {answer.sentence(str(arm.source))}"
    if answer.saw_much:
        raise UserError(
            f"{said}, which this run holds out, so its score would be too good; name text that no tokenizer has seen "
            f"with corpus.heldout_paths=[FILE,...], or let this run train it: arms.{arm.name}.recipe=bpe or superbpe "
            "instead of a file"
        )
    if answer.saw or answer.unknown:
        warnings.warn(said.replace("this text", "the held-out text"), stacklevel=2)
    split = getattr(tokenizer, "provenance", {}).get("choose")
    if split is None or (split["corpus"] == text.hash and text.corpus.config.heldout_sample <= split["test_share"]):
        return answer.unknown
    raise UserError(
        f"arms.{arm.name}: superbpe choose made {arm.source} with another split of the text, so its score could be too "
        f"good; use the corpus settings of the command that it printed ({', '.join(split['text'])} with "
        f"corpus.heldout_fraction={split['heldout_fraction']:g} and corpus.heldout_sample of at most "
        f"{split['test_share']:g}), or for text that it never read, a copy by superbpe export --to hf"
    )

"""The luck of the text that tokenizers are trained on: every recipe, trained on halves of the training text.

The halves of a random division have no source in common, or no document where sources are unnamed or few. Tokenizers
are scored by a bigram model (`lm.evaluate.bigram`) of all the text that was divided. `experiments.findings.further`
computes the variance.
"""

from __future__ import annotations

import dataclasses
import warnings
from array import array
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.arms import Arm
from experiments.config import BpeConfig, SuperbpeConfig, part
from experiments.results import Luck
from experiments.stages import heldout, phase1, phase2
from lm.evaluate.bigram import bigram_bits
from lm.evaluate.bits_per_byte import KIND
from lm.evaluate.significance import effective_number
from superbpe.rules import PRESETS, Rules
from superbpe.training import train_superbpe
from superbpe.transition import AUTO
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.corpus.sources import Source
from tokenizer.errors import UserError
from tokenizer.files import digest
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.bpe import train_bpe
from tokenizer.train.counting import count_pretokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.results import HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus

SPLITS = 5
"""Divisions of the text into halves."""
MOST_BYTES = 50_000_000
"""Of larger texts, a sample of about this size is divided."""
FEWEST = 5.0
"""Fewest effective sources of a kind of text that is divided by source, and fewest effective parts of the text."""
# Increased when the halves or the loss change.
_VERSION = 1


class Halves(NamedTuple):
    """Training text in memory, with its divisions.

    Attributes:
        texts: The documents, or a sample of them.
        weights: The weight of each of `corpus.sources`; [1] without them.
        source: int64[n_documents], index into `weights`.
        first: bool[SPLITS, n_documents], whether a document is in the first half of a division.
        share: Bytes of the documents over the bytes of the whole text.
        effective: Effective number of the parts that stay whole.
    """

    texts: list[str]
    weights: list[int]
    source: NDArray[np.int64]
    first: NDArray[np.bool_]
    share: float
    effective: float

    def half(self, number: int) -> list[Source]:
        """The text of one of the 2 * SPLITS halves, with its weights."""
        chosen = self.first[number // 2] != bool(number % 2)
        places = [np.flatnonzero(chosen & (self.source == place)) for place in range(len(self.weights))]
        pairs = zip(places, self.weights, strict=True)
        return [Source([self.texts[i] for i in of_source], weight) for of_source, weight in pairs if len(of_source)]


def divide(corpus: Corpus) -> Halves:
    """Read the training text, or a sample of it, and divide it into halves of about the same size within each kind."""
    names: dict[str, int] = {}
    facts = array("q")
    n_bytes, first_texts = 0, list[str]()
    for place, name, text in _documents(corpus):
        size = len(text.encode())
        facts.extend((place, names.setdefault(name, len(names)), size))
        n_bytes += size
        if n_bytes <= MOST_BYTES:
            first_texts.append(text)
        else:
            first_texts.clear()
    source, origin, sizes = np.array(facts).reshape(-1, 3).T
    kinds = heldout.kinds_of(list(names))
    kind = np.zeros(len(sizes), np.int64) if kinds is None else kinds.index[origin]
    taken, first = np.zeros(len(sizes), bool), np.zeros((SPLITS, len(sizes)), bool)
    share, parts = min(1.0, MOST_BYTES / sizes.sum()), origin.copy()
    for stratum in np.unique([source, kind], axis=1).T:
        inside = np.flatnonzero((source == stratum[0]) & (kind == stratum[1]))
        rng = np.random.default_rng(inside[0])
        drawn = inside[_portion(origin[inside], sizes[inside], share, rng)]
        if effective_number(np.bincount(origin[drawn], sizes[drawn])) < FEWEST:
            drawn = inside[_portion(inside, sizes[inside], share, rng)]
            parts[drawn] = len(names) + drawn
        taken[drawn] = True
        first[:, drawn] = [_portion(parts[drawn], sizes[drawn], 0.5, rng) for _ in range(SPLITS)]
    texts = first_texts if n_bytes <= MOST_BYTES else (text for _, _, text in _documents(corpus))
    return Halves(
        texts=[text for text, wanted in zip(texts, taken.tolist(), strict=True) if wanted],
        weights=[weight for _, _, weight in corpus.by_source()],
        source=source[taken],
        first=first[:, taken],
        share=float(sizes[taken].sum() / sizes.sum()),
        effective=float(effective_number(np.bincount(parts[taken], sizes[taken]))),
    )


def _documents(corpus: Corpus) -> Iterator[tuple[int, str, str]]:
    """Number of the named source, origin and text of every training document."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # skipped records: the count has reported them
        for place, (_, of_source, _) in enumerate(corpus.by_source()):
            for origin, text in documents_by_origin(of_source, "train"):
                yield place, origin, text


def _portion(
    parts: NDArray[np.int64], sizes: NDArray[np.int64], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Whole parts, in random order, up to about a share of the bytes: whether each document is among them."""
    part_of = np.unique(parts, return_inverse=True)[1]
    bytes_of = np.bincount(part_of, sizes)
    order = rng.permutation(len(bytes_of))
    middle = np.cumsum(bytes_of[order]) - bytes_of[order] / 2
    inside = np.zeros(len(bytes_of), bool)
    inside[order[middle <= share * bytes_of.sum()]] = True
    return inside[part_of]


def recipe_of(arm: Arm, tokenizer: Any, text: Text) -> Arm | None:
    """The recipe of an arm: its own, or how `superbpe choose` trained its file on this text.

    None for other files and repositories, whose recipe or text is unknown, for bytes, which have no merges, and for
    balanced sources, whose translations would be divided, too.
    """
    if arm.trained:
        return None if arm.bpe.separate_counts else arm
    made = tokenizer.provenance if isinstance(tokenizer, Tokenizer) else {}
    chosen = "phase1" in made and made.get("choose", {}).get("corpus") == text.hash
    # Others have superwords on top of all ids of another tokenizer.
    if not chosen or "imported" in made or not tokenizer.definition.has_own_layout():
        return None
    size = tokenizer.vocab_size
    superwords = made.get("phase2")
    specials = sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.__getitem__)
    rules = {key: made["phase1"][key] for key in ("unit", "tie_break", "min_count", "max_token_bytes")}
    rules["min_pretoken_count"] = made["phase1"].get("min_pretoken_count", 1)
    bpe = BpeConfig(vocab_size=size, special_tokens=specials, **rules)
    if superwords is None:
        return dataclasses.replace(arm, recipe="bpe", pattern=tokenizer.pattern, bpe=bpe)
    preset = PRESETS.get(superwords["rules"])
    if preset is None:  # of another version
        return None
    transition = AUTO if preset.interleave else superwords["transition"]
    superbpe = SuperbpeConfig(**dataclasses.asdict(preset), vocab_size=size, transition=transition)
    return dataclasses.replace(arm, recipe="superbpe", pattern=tokenizer.pattern, bpe=bpe, superbpe=superbpe)


def measure(
    context: Context,
    text: Text,
    arms: Sequence[Arm],
    tokenizers: Mapping[str, ArmTokenizer],
    documents: Artifact[HeldoutDocuments],
) -> dict[str, Luck]:
    """Train every recipe on both halves of five divisions of the training text, and score the tokenizers.

    This process reads the whole text once, or twice if it is larger than 50 MB, and has up to 50 MB of it in memory.

    Returns:
        The measurements by arm, without arms that have no recipe.
    """
    halves, scored = cache(lambda: divide(text.corpus)), cache(lambda: _heldout(documents))
    same = {"most_bytes": MOST_BYTES, "splits": SPLITS, "version": _VERSION}
    inputs = {"corpus": text.hash, "documents": documents.hash}

    def build(recipe: Arm, _folder: Path) -> Luck:
        read, (texts, kinds, kind, n_bytes) = halves(), scored()
        found = Luck(halves=digest([same, inputs]), kinds=kinds, n_bytes=n_bytes.tolist(), share=read.share)
        if read.effective < FEWEST:
            why = f"the training text counts as only {read.effective:.1f} documents of equal size"
            return dataclasses.replace(found, missing=why)
        losses = []
        for number in range(2 * SPLITS):
            context.reporter.progress("tokenizers of half the text", number, 2 * SPLITS)
            try:
                tokenizer = _trained(recipe, read.half(number), context.runner.threads)
            except UserError as error:
                return dataclasses.replace(found, missing=str(error))
            bits = bigram_bits(tokenizer, read.texts, texts, threads=context.runner.threads)
            losses.append((np.bincount(kind, bits, len(kinds)) / n_bytes).tolist())
        return dataclasses.replace(found, bits_per_byte=[losses[i : i + 2] for i in range(0, 2 * SPLITS, 2)])

    measured = {}
    for arm in arms:
        recipe = recipe_of(arm, tokenizers[arm.name].tokenizer, text)
        if recipe is None:
            continue
        superwords = {"superbpe": dataclasses.asdict(recipe.superbpe)} if recipe.recipe == "superbpe" else {}
        artifact = context.make(
            f"luck {arm.name}",
            Luck,
            "luck",
            config={**same, "pattern": recipe.pattern.regex, "bpe": dataclasses.asdict(recipe.bpe), **superwords},
            inputs=inputs,
            build=partial(build, recipe),
            describe=lambda luck: f"not measured: {luck.missing}" if luck.missing else "tokenizers of half the text",
        )
        if not artifact.contents.missing:
            measured[arm.name] = artifact.contents
    return measured


def _heldout(
    documents: Artifact[HeldoutDocuments],
) -> tuple[list[str], list[str], NDArray[np.integer], NDArray[Any]]:
    """The held-out documents, the names of their kinds, the kind of each, and the bytes of each kind."""
    texts = list(heldout.reread(documents).documents("heldout"))
    sizes = np.array([len(document.encode()) for document in texts])
    kinds = heldout.groupings(documents, sizes).get(KIND)
    if kinds is None:
        return texts, [""], np.zeros(len(texts), np.int64), np.array([sizes.sum()])
    return texts, list(kinds.names), kinds.index, np.bincount(kinds.index, sizes, len(kinds.names))


def _trained(arm: Arm, sources: list[Source], threads: int | None) -> Tokenizer:
    """Train an arm's recipe on other text.

    Raises:
        UserError: If the text has too few pairs for its vocabulary.
    """
    counting: dict[str, Any] = {"unit": arm.bpe.unit, "special_tokens": arm.bpe.special_tokens, "threads": threads}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about vocabularies that nobody uses
        tokenizer = train_bpe(
            count_pretokens(sources, arm.pattern, **counting), arm.phase1_size, **phase1.rules_of(arm)
        )
        if arm.recipe == "superbpe":
            transition, start = phase2.start_of(arm, tokenizer)
            options: dict[str, Any] = {"tie_break": arm.bpe.tie_break, "transition": transition, "threads": threads}
            rules = part(Rules, arm.superbpe)
            tokenizer = train_superbpe(start, sources, vocab_size=arm.vocab_size, rules=rules, **options)
    if tokenizer.vocab_size < 0.99 * arm.vocab_size:
        raise UserError(f"half of the training text has only enough pairs for {tokenizer.vocab_size:,} tokens")
    return tokenizer

"""`superbpe score [ARM=]MODEL... TEXT...`: compare language models from anywhere on a text.

MODEL is a folder or a repository (`ORG/NAME@REVISION`) with a causal language model of `transformers` in safetensors or
an adapter of PEFT, or a model of the pipeline (`lm-*`). Repeating ARM gives its seeds. The first arm is the reference.
`models.csv` instead of models has the columns arm, model, and optionally train_flops and train_bytes; with several
budgets of each arm, they are compared over training compute. NAME=PATH of a TEXT names its kind.

Every token is scored once, in contexts of equal bytes, in bits per byte of the original text. Models may have been
trained on it: use text that none of them has seen. Writes `comparison.html`, `comparison.json` and `differences.csv`.
The scores of each model are kept in `artifacts/`, so the same command resumes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    OUT,
    Parser,
    add_loading,
    add_text_settings,
    loading,
    named,
    open_text,
    out_folder,
    whole,
)
from experiments.cli.console import finish
from experiments.given_models import (
    CONTEXT_BYTES,
    GivenModel,
    default_settings,
    is_model,
    is_table,
    read_models,
    score_models,
)
from experiments.progress import Reporter
from lm.evaluate.config import EvalConfig
from tokenizer.errors import UserError
from tokenizer.files import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tokenizer import Corpus


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("score", __doc__, "the same command continues where this one stopped")
    add = options.add_argument
    add("given", nargs="+", metavar="[ARM=]MODEL|TABLE|[KIND=]TEXT", help="models, or models.csv, and texts")
    add("--text", nargs="+", default=[], metavar="[KIND=]PATH", help="more text, such as folders")
    add("--out", type=Path, default=Path("score"), metavar="FOLDER", help=OUT)
    add("--context-bytes", type=whole(2), default=CONTEXT_BYTES, metavar="N", help="context of a token")
    add(
        "--weights",
        nargs="+",
        default=[],
        metavar="KIND=SHARE",
        help="weights of the kinds in the total (default: their bytes)",
    )
    add("--cluster", choices=("auto", "document", "source"), default="auto", help="unit of sampling")
    add(
        "--batch-tokens",
        type=whole(1),
        default=EvalConfig.batch_tokens,
        metavar="N",
        help="tokens of a forward pass",
    )
    add_loading(options)
    add("--artifacts", default="artifacts", metavar="FOLDER", help="where scores are kept")
    add_text_settings(options)
    add("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Score the models, write the page, and print the tables."""
    models, texts = _divided(arguments.given)
    texts += arguments.text
    if not models:
        raise UserError("no model given; name folders or repositories, or a table with the columns arm and model")
    if not texts:
        raise UserError("no text given; name files, or folders with --text")
    weights = {}
    for name, share in map(named, arguments.weights):
        try:
            weights[name or ""] = float(share)
        except ValueError:
            raise UserError(f"--weights {name}={share}: the weight is a number, as in english=0.6 code=0.4") from None
    corpus = _corpus(arguments, texts, weights)
    settings = default_settings(
        arguments.context_bytes, weights=weights, batch_tokens=arguments.batch_tokens, cluster=arguments.cluster
    )
    reporter = Reporter()
    with out_folder(arguments.out, texts=corpus.config.all_paths) as out:
        found = score_models(
            models,
            corpus,
            out,
            loading=loading(arguments),
            settings=settings,
            artifacts=arguments.artifacts,
            reporter=reporter,
        )
    from experiments.findings.terminal import show_comparison

    show_comparison(reporter, found.result, found.numbers)
    finish(*found.written, then=["compare", arguments.out] if len(found.result.arms) > 1 else ())


def _divided(given: Sequence[str]) -> tuple[list[GivenModel], list[str]]:
    """The models and the texts."""
    models, texts = list[GivenModel](), list[str]()
    for entry in given:
        name, place = named(entry)
        if is_table(place):
            models += read_models(Path(place))
        elif is_model(place):
            models.append(GivenModel(name or Path(place.partition("@")[0]).name, place))
        else:
            texts.append(entry)
    return models, texts


def _corpus(arguments: argparse.Namespace, entries: Sequence[str], weights: Mapping[str, float]) -> Corpus:
    """The text, all of it held out; names of entries are kinds."""
    places = [named(entry) for entry in entries]
    kinds: dict[str, str] = {}
    if twice := [place for place, n in Counter(place for _, place in places).items() if n > 1]:
        raise UserError(f"{twice[0]} is given twice; name each text once")
    if unknown := [name for name in weights if name not in dict(places)]:
        raise UserError(
            f"--weights {unknown[0]}={weights[unknown[0]]:g}: name that text, as in {unknown[0]}={places[0][1]}"
        )
    for name, place in places:
        if name is not None and kinds.setdefault(name, shown(place)) != shown(place):
            raise UserError(f"two texts are called {name!r}; give both in one folder")
    return open_text(
        arguments, [], heldout_paths=[place for _, place in places], kinds=kinds, source_field=arguments.source_field
    )

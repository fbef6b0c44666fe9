"""`superbpe generate MODEL... --prompt "The history of"`: samples of several models side by side.

MODEL is an `lm-*` artifact, or a folder of artifacts for all models in it. Every model continues the same prompts with
the same settings and seed. Token healing applies to prompts that end inside a token: the last tokens of the prompt are
resampled among all tokens that start with its bytes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.arguments import Parser, number, whole
from experiments.cli.console import Reporter, console, finish
from experiments.store.trained_models import Saved, load_models
from lm.bytelevel.byte_model import ByteModel
from lm.model.generation import Sample, SamplingConfig, generate
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import read_bytes

if TYPE_CHECKING:
    import argparse

_DEFAULT = SamplingConfig()
_ENDS = {"bytes": ", ended by --max-bytes", "tokens": ", ended by --max-tokens or the model's context"}


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("generate", "Samples of several models side by side.")
    add = options.add_argument
    add("models", nargs="+", metavar="MODEL", help="folder lm-*, or a folder of artifacts")
    add("--prompt", action="append", default=[], help="text to continue; can be repeated")
    add("--prompts", type=Path, metavar="FILE", help="file with one prompt per line")
    add("--samples", type=whole(), default=1, help="samples of each prompt (%(default)s)")
    add("--temperature", type=float, default=_DEFAULT.temperature, help="0 for the most probable")
    add("--top-p", type=number(0, 1), default=_DEFAULT.top_p, help="share of probability (%(default)s)")
    add("--top-k", type=whole(), help="sample from this many tokens (all)")
    add("--seed", type=whole(0), default=_DEFAULT.seed, help="(%(default)s)")
    add("--max-bytes", type=whole(), default=_DEFAULT.max_new_bytes, help="maximum length of a sample (%(default)s)")
    add("--max-tokens", type=whole(), help="maximum length of a sample (no limit)")
    add("--stop", action="append", default=[], metavar="TEXT", help="stop string; can be repeated")
    add("--no-heal", action="store_true", help="continue after the prompt's own tokens")
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--json", type=Path, metavar="FILE", help="also write prompts, settings and samples to FILE")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Continue the prompts with every model, and print the samples."""
    prompts = [*arguments.prompt]
    try:
        if arguments.prompts is not None:
            prompts += [line for line in read_bytes(arguments.prompts).decode("utf-8").splitlines() if line]
        "".join([*prompts, *arguments.stop]).encode()
    except UnicodeError as error:
        raise UserError(f"a prompt or stop string is not UTF-8 ({error}); fix it") from None
    if not prompts:
        raise UserError("no prompt given; add --prompt TEXT or --prompts FILE")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        raise UserError(f"--json {arguments.json}: this folder does not exist; create it or name another")
    config = SamplingConfig(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
        max_new_tokens=arguments.max_tokens,
        max_new_bytes=arguments.max_bytes,
        stop=tuple(arguments.stop),
    )
    models = load_models(arguments.models, arguments.device)
    asked = [prompt for prompt in prompts for _ in range(arguments.samples)]
    samples = [_samples(saved, asked, config, heal=not arguments.no_heal) for saved in models]
    _show(models, samples)
    if arguments.json is not None:
        write_json(arguments.json, record(models, samples, config, heal=not arguments.no_heal))
    finish(
        *filter(None, [arguments.json]), then=["downstream", *arguments.models, "--tasks", "NAMES", "--out", "FOLDER"]
    )


def _samples(saved: Saved, prompts: list[str], config: SamplingConfig, *, heal: bool) -> list[Sample]:
    if not heal:
        return generate(saved.lm, prompts, config)
    model = ByteModel(saved.lm)
    seeds = [None if config.temperature == 0 else config.seed + i for i in range(len(prompts))]
    starts = [model.heal(prompt, seed=seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    return generate(saved.lm, prompts, config, starts)


def _show(models: list[Saved], samples: list[list[Sample]]) -> None:
    reporter = Reporter(console)
    for n, side_by_side in enumerate(zip(*samples, strict=True), start=1):
        for saved, sample in zip(models, side_by_side, strict=True):
            end = _ENDS.get(sample.finish, "")
            reporter.say(f"#{n} {saved.label}: {len(sample.ids)} tokens, {len(sample.data)} bytes{end}", "bold")
            # Neither wrapped nor cut.
            console.out(_shown(sample.prompt), style="dim", end="", highlight=False)
            console.out(_shown(sample.text), highlight=False)
            console.print()


def _shown(text: str) -> str:
    """Escape control characters: a model may generate anything."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def record(models: list[Saved], samples: list[list[Sample]], config: SamplingConfig, *, heal: bool) -> dict[str, Any]:
    """The samples as JSON-able values: one entry per prompt, with one sample per model in the order of the models."""

    def described(sample: Sample) -> dict[str, Any]:
        sizes = {"n_tokens": len(sample.ids), "n_bytes": len(sample.data), "n_prompt_tokens": sample.n_prompt_tokens}
        return {"text": sample.text, "finish": sample.finish, **sizes}

    return {
        "config": {**dataclasses.asdict(config), "heal": heal},
        "models": [
            {"label": saved.label, "lm": saved.artifact.name, "tokenizer_sha256": saved.lm.tokenizer.sha256}
            for saved in models
        ],
        "prompts": [
            {"prompt": side_by_side[0].prompt, "samples": list(map(described, side_by_side))}
            for side_by_side in zip(*samples, strict=True)
        ],
    }

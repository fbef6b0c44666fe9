"""`superbpe generate MODEL... --prompt "The history of"`: samples of several models side by side.

MODEL is an `lm-*` artifact, or a folder of artifacts for all models in it. Every model continues the same prompts with
the same settings and seed. Token healing applies to prompts that end inside a token: the last tokens of the prompt are
resampled among all tokens that start with its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.characters import harmless
from experiments.cli.arguments import Parser, device, number, whole
from experiments.cli.console import finish
from experiments.progress import Reporter, console
from experiments.store.trained_models import Saved, load_models
from lm.model.sampling import SamplingConfig
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import argparse

    from lm.model.generation import Sample

_DEFAULT = SamplingConfig()
_ENDS = {"bytes": ", ended by --max-bytes", "tokens": ", ended by --max-tokens or the model's context"}


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("generate", __doc__)
    add = options.add_argument
    add("models", nargs="+", metavar="MODEL", help="folder lm-*, or a folder of artifacts")
    add("--prompt", action="append", required=True, help="text to continue; can be repeated")
    add("--samples", type=whole(), default=1, help="samples of each prompt")
    add("--temperature", type=float, default=_DEFAULT.temperature, help="0 for the most probable")
    add("--top-p", type=number(0, 1), default=_DEFAULT.top_p, help="share of probability")
    add("--top-k", type=whole(), help="sample from this many tokens (default: all)")
    add("--seed", type=whole(0), default=_DEFAULT.seed, help="seed of the samples")
    add("--max-bytes", type=whole(), default=_DEFAULT.max_new_bytes, help="maximum length of a sample")
    add("--max-tokens", type=whole(), help="maximum length of a sample (default: no limit)")
    add("--stop", action="append", default=[], metavar="TEXT", help="stop string; can be repeated")
    add("--no-heal", action="store_true", help="continue after the prompt's own tokens")
    add("--device", type=device, default="auto", help="auto, cpu or cuda")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Continue the prompts with every model, and print the samples."""
    try:
        "".join([*arguments.prompt, *arguments.stop]).encode()
    except UnicodeError as error:
        raise UserError(f"a prompt or stop string is not UTF-8 ({error}); fix it") from None
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
    asked = [prompt for prompt in arguments.prompt for _ in range(arguments.samples)]
    samples = [_samples(saved, asked, config, heal=not arguments.no_heal) for saved in models]
    _show(models, samples)
    finish(then=["downstream", "--tasks", "list"])


def _samples(saved: Saved, prompts: list[str], config: SamplingConfig, *, heal: bool) -> list[Sample]:
    from lm.bytelevel.byte_model import ByteModel  # imports Torch, which takes seconds
    from lm.model.generation import generate

    if not heal:
        return generate(saved.lm, prompts, config)
    model = ByteModel(saved.lm)
    seeds = [None if config.temperature == 0 else config.seed + i for i in range(len(prompts))]
    starts = [model.heal(prompt, seed=seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    return generate(saved.lm, prompts, config, starts)


def _show(models: list[Saved], samples: list[list[Sample]]) -> None:
    reporter, titles = Reporter(console), [saved.label for saved in models]
    for n, side_by_side in enumerate(zip(*samples, strict=True), start=1):
        for title, sample in zip(titles, side_by_side, strict=True):
            end = _ENDS.get(sample.finish, "")
            reporter.say(f"#{n} {title}: {len(sample.ids)} tokens, {len(sample.data)} bytes{end}", "bold")
            # Neither wrapped nor cut.
            console.out(harmless(sample.prompt), style="dim", end="", highlight=False)
            console.out(harmless(sample.text), highlight=False)
            console.print()

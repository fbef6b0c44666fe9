"""Printed commands and settings are read back as the same words, for generated paths and names."""

import random
import shlex
import subprocess

import pytest

from experiments.characters import visible
from experiments.compose import load
from experiments.report.over_compute import assumptions
from experiments.shell import command_text, hydra_names, operand, setting

PARTS = [
    *"aé中'\"\\ ${},[]=-:#~*?!`%@|&;<>()/",
    "${oc.env:HOME}",
    "null",
    "1e3",
    "\n",
    "\t",
    "\r",
    "\x1b[2J",
    "\x9b",
    "\u202e",
]


def hostile(number, n=40):
    """Words of hostile parts, such as `${a'é`."""
    random_parts = random.Random(number)
    return [*PARTS, *("".join(random_parts.choices(PARTS, k=random_parts.randint(2, 6))) for _ in range(n))]


def test_a_shell_reads_the_words_of_a_command_and_a_terminal_no_controls():
    words = hostile(0, 200)
    text = command_text(words)
    assert visible(text) == text
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True).stdout
    assert read.decode().split("\0")[:-1] == words
    plain = [word for word in words if visible(word) == word]
    assert shlex.split(command_text(plain)) == plain
    assert [operand(word)[:2] for word in ("-a", "--help", "<TEXT>")] == ["./"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_hydra_reads_settings_as_they_are(number):
    """Really parsed, composed and converted: nothing is an interpolation, a number, a list or another key."""
    paths = hostile(number)
    assert load(["corpus=files", setting("corpus.paths", paths)]).corpus.paths == paths
    names = hydra_names([*hostile(number), "é", "è", "code: python", "a.b", "true"], ":. ")
    sources = dict.fromkeys(names.values(), paths[-1])
    assert len(sources) == len(names)
    assert load(["corpus=files", setting("corpus.sources", sources)]).corpus.sources == sources
    quoted = """eval.weights={"plain text": 0.4, 'a: b': 2, code: 1}"""
    weights = {"plain text": 0.4, "a: b": 2, "code": 1}
    assert load([quoted]).eval.weights == assumptions([quoted]).weights == weights
    assert names["code: python"] == "code: python"
    arms = list(hydra_names(hostile(number)).values())[::3]
    files = [setting(f"arms.{arm}.file", path) for arm, path in zip(arms, paths[::3], strict=True)]
    config = load([f"arms=[{','.join(arms)}]", *files])
    assert [arm.file for arm in config.arms.values()] == paths[::3]

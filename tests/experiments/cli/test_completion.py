"""Completion of the command line, as bash asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.completion import SCRIPTS, candidates


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("superbpe ", sorted(COMMANDS)),
        ("superbpe tr", ["train", "train-bpe", "train-lm", "train-superbpe"]),
        ("superbpe nothing --", []),
        ("superbpe train a.txt --vo", ["--vocab-size"]),
        ("superbpe train a.txt --superbpe uw-p", ["uw-paper"]),
        ("superbpe export tok out --to ", ["gpt2", "hf", "superbpe", "tiktoken"]),
        ("superbpe fertility --sep", ["--separator"]),
        ("superbpe completion z", ["zsh"]),
        ("superbpe train a", []),
        ("superbpe pipeline lm=sma", ["lm=small"]),
        ("superbpe pipeline bpe.vocab_s", ["bpe.vocab_size="]),
    ],
)
def test_candidates(line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("superbpe count-t", ["count-tokens"]),
        ("superbpe export tok out --to t", ["tiktoken"]),
        # Bash has divided the word at '='.
        ("superbpe pipeline corpus=em", ["embedded"]),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, expected: list[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    command = tmp_path / "superbpe"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m experiments "$@"\n')
    command.chmod(0o755)
    ask = f"COMP_LINE='{line}' COMP_POINT={len(line)}\n_superbpe\n"
    script = f"{SCRIPTS['bash']}\n{ask}" + 'echo "${COMPREPLY[@]}"'
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run([bash, "-c", script], capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert (found.stdout.split(), found.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_is_valid(shell: str) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([program, "-n"], input=SCRIPTS[shell], text=True).returncode == 0

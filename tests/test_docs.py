"""The README, CONTRIBUTING and the pages in docs/: links, images, commands, settings and Python."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.cli.compose import check, known_keys
from experiments.cli.help import STAGES
from superbpe.rules import PHASE1
from tests import texts
from tokenizer import Batch, count_pretokens, formats, train_bpe

_ROOT = Path(__file__).parents[1]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").glob("*.md"))]
_IDS = [path.stem for path in _PAGES]
_STAGES = {stage.command for stage in STAGES.values()} | set(STAGES)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _code(page: Path, language: str) -> list[str]:
    return [code for name, code in _FENCE.findall(page.read_text()) if name == language]


def _inline(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", page.read_text()))


def _commands(page: Path) -> list[list[str]]:
    """The commands of a page that run one of our modules: the module, then its arguments."""
    lines = [line for code in _code(page, "sh") for line in code.replace("\\\n", " ").splitlines()]
    found = []
    for line in [*lines, *_inline(page)]:
        if " -m " in line:
            words = shlex.split(line, comments=True)
            found.append(words[words.index("-m") + 1 :])
        elif line.startswith("superbpe "):
            _, name, *arguments = shlex.split(line, comments=True)
            found.append([f"experiments.{COMMANDS[name].module}", *arguments])
    return found


def _slugs(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((_ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_relative_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.is_file(), target
        assert not anchor or anchor in _slugs(file), target


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_command_exists_and_takes_its_arguments(page: Path) -> None:
    for module, *arguments in _commands(page):
        if module in ("pytest", "experiments.eval_harness"):  # options of other software
            continue
        file = _ROOT / (module.replace(".", "/") + ".py")
        file = file if file.exists() else file.with_suffix("") / "__main__.py"
        assert file.exists(), module
        name = module.removeprefix("experiments.")
        if name in _STAGES:
            if overrides := [word for word in arguments if "=" in word]:
                check(overrides, sweep="--multirun" in arguments)
            continue
        folder = [path.read_text() for path in (*file.parent.glob("*.py"), file)]
        for flag in [word for word in arguments if word.startswith("--")]:
            assert any(f'"{flag}"' in source for source in folder), f"{module} {flag}"


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_setting_exists(page: Path) -> None:
    known = set(known_keys()) | {"hydra/launcher"}
    for text in _inline(page):
        if (key := re.match(r"([a-z_]+(?:[./][a-z_0-9]+)+)=", text)) and not text.startswith("arms."):
            assert key[1] in known, text


def test_the_python_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every example except the one for `transformers`, in order, at a smaller size."""
    page = _ROOT / "docs" / "python.md"
    (tmp_path / "data").mkdir()
    text = "\n".join(texts.prose())
    (tmp_path / "book.txt").write_text(text)
    counts = count_pretokens([Batch.from_texts([text])], "gpt2")
    formats.write(train_bpe(counts, 280), tmp_path / "gpt2", "gpt2")
    monkeypatch.chdir(tmp_path)
    assert PHASE1["uw-2025"] == {"pattern": "superbpe", "unit": "line"}  # as the comment of the example says
    names: dict[str, object] = {}
    for code in _code(page, "python"):
        if "transformers" in code:
            continue
        small = code.replace("data/*.jsonl.zst", "book.txt").replace("heldout_fraction=0.01", "heldout_fraction=0.0")
        small = re.sub(r"\b(32|60|20)_000\b", lambda size: {"32": "400", "60": "300", "20": "270"}[size[1]], small)
        with contextlib.redirect_stdout(None):
            exec(compile(small, str(page), "exec"), names)
    assert names["text"] == "in order to see some of the world"


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    """Every command and example, in order, in an empty folder."""
    commands = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for language, code in _FENCE.findall((_ROOT / "docs" / "tutorial.md").read_text()):
        if language in commands:
            ran = subprocess.run(
                [*commands[language], code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"
    assert (tmp_path / "preview" / "README.md").is_file()

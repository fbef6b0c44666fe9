"""The README, CONTRIBUTING and the pages in docs/: links, images, commands, settings and Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from experiments.cli.commands import COMMANDS
from experiments.cli.help import STAGES

from experiments.cli.compose import check, known_keys
from superbpe.rules import PHASE1

_ROOT = Path(__file__).parents[1]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_IDS = [str(path.relative_to(_ROOT)) for path in _PAGES]
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
        if " -m " in line and "pytest -m " not in line:
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


def test_the_comment_on_phase_1_of_the_python_page_is_true() -> None:
    assert '**PHASE1["uw-2025"])  # pattern="superbpe", unit="line"' in (_ROOT / "docs" / "python.md").read_text()
    assert PHASE1["uw-2025"] == {"pattern": "superbpe", "unit": "line"}

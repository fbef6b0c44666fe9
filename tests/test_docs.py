"""The README, CONTRIBUTING and the pages in docs/: links, images, commands, settings and Python."""

import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

from experiments.cli.main import NAMES
from experiments.compose import check, keys
from superbpe.rules import PHASE1
from tests.composition import reuse_parts

reuse_parts()

_ROOT = Path(__file__).parents[1]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_IDS = [str(path.relative_to(_ROOT)) for path in _PAGES]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _code(page, language):
    return [code for name, code in _FENCE.findall(page.read_text()) if name == language]


def _inline(page):
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", page.read_text()))


def _commands(page):
    """The commands of a page that run one of our modules: the module or the command, then its arguments."""
    lines = [line for code in _code(page, "sh") for line in code.replace("\\\n", " ").splitlines()]
    found = []
    for line in [*lines, *_inline(page)]:
        if " -m " in line and "pytest -m " not in line and " -m scripts." not in line:  # nanochat's
            words = shlex.split(line, comments=True)
            module = words[words.index("-m") + 1 :]
            found.append(module[module[0] == "experiments" :])
        elif line.startswith("superbpe "):
            found.append(shlex.split(line, comments=True)[1:])
    return found


def _slugs(page):
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_documentation_is_short():
    pages = sorted((_ROOT / "docs").glob("*.md"))
    lines = {name: len((_ROOT / name).read_text().splitlines()) for name in ("README.md", "docs/decisions.md")}
    assert len(pages) <= 15
    assert sum(len(page.read_text().split()) for page in pages) <= 20_000
    assert lines["README.md"] <= 120
    assert lines["docs/decisions.md"] <= 300


def test_no_sentence_is_on_two_pages():
    pages = {}
    for page in [*_PAGES, _ROOT / "SECURITY.md"]:
        text = re.sub(r"\]\([^)]*\)|[\[*`]", "", _FENCE.sub("\n\n", page.read_text()))
        paragraphs = [paragraph for paragraph in text.split("\n\n") if not paragraph.startswith(("|", "#", "!"))]
        for sentence in re.split(r"(?<=[.:!?])\s|\n\n|\n- ", "\n\n".join(paragraphs)):
            words = " ".join(sentence.lower().split())
            if words.count(" ") >= 7:
                assert pages.setdefault(words, page) == page, words


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_relative_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.is_file(), target
        assert not anchor or anchor in _slugs(file), target


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_command_exists_and_takes_its_arguments(page):
    for name, *arguments in _commands(page):
        flags = [word.partition("=")[0] for word in arguments if word.startswith("--")]
        if "." in name:
            file = _ROOT / (name.replace(".", "/") + ".py")
            assert (file if file.exists() else file.with_suffix("") / "__main__.py").exists(), name
        elif name != "pytest" and not name.startswith("-"):
            command = name.removeprefix("experiments.")
            assert command in NAMES
            if "--lm-eval" in flags:  # options of other software follow
                flags = ["--lm-eval"]
            assert set(flags) <= _options(command), (name, flags)


@pytest.mark.slow
def test_every_command_line_of_settings_composes():
    commands = {tuple(words) for page in _PAGES for words in _commands(page) if words[0] == "pipeline"}
    assert commands
    for words in commands:
        overrides = [word for word in words if "=" in word and not word.startswith("--")]
        check(overrides, sweep="--multirun" in words)


@pytest.mark.parametrize("page", _PAGES, ids=_IDS)
def test_every_file_name_and_setting_exists(page):
    settings = {*keys(), "experiment"}
    for text in _inline(page):
        if (key := re.match(r"([a-z_]+(?:[./][a-z_0-9]+)+)=", text)) and not text.startswith("arms."):
            assert key[1] in settings | {"hydra/launcher"}, text
    for paragraph in re.split(r"\n\n|\n(?=[-|] )", _FENCE.sub("", page.read_text())):
        earlier = "of commit" in paragraph  # the code of that commit
        for text in re.findall(r"`([^`\n]+)`", paragraph):
            if text.endswith((".json", ".model", ".pkl")):  # a file
                continue
            if re.fullmatch(r"(?:tests|experiments|lm|tokenizer|superbpe|native|docs|configs)/[\w./-]+\.\w+", text):
                assert earlier or (_ROOT / text).exists(), text
            elif re.fullmatch(r"(?:tests|experiments|lm|tokenizer|superbpe)(?:\.\w+)+(?:\(\))?", text):
                if text not in settings:
                    pkgutil.resolve_name(text.removesuffix("()"))
            elif re.fullmatch(r"(?:corpus|bpe|budget|eval|runner|deployment|report|shards)(?:\.\w+)+", text):
                assert text in settings, text


def _options(command):
    module = importlib.import_module(f"experiments.commands.{command.replace('-', '_')}")
    return set(module.parser()._option_string_actions)


def test_every_option_exists():
    options = {"--help", "--version", "--dist"}.union(*map(_options, NAMES))
    for page in _PAGES:
        for text in _inline(page):
            if (option := re.match(r"--[a-z][a-z-]+", text)) and page.name != "CONTRIBUTING.md":
                assert option[0] in options or "benchmarks" in page.name, (page.name, text)


def test_the_comment_on_phase_1_of_the_python_page_is_true():
    assert '**PHASE1["digits"])  # pattern="o200k", unit="document"' in (_ROOT / "docs" / "python.md").read_text()
    assert PHASE1["digits"] == {"pattern": "o200k", "unit": "document"}

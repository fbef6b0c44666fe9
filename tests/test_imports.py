"""Imports have no cycles, and packages import each other one way; imports inside functions count."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "tokenizer": {"tokenizer"},
    "superbpe": {"superbpe", "tokenizer"},
    "lm": {"lm", "tokenizer"},
    "experiments": {"experiments", "lm", "superbpe", "tokenizer"},
}
"""Packages of this project that each package may import."""
ONLY_EXPERIMENTS = {"hydra", "omegaconf"}
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def imported_names(source: str, package: str) -> set[str]:
    """Full names that a module of the package imports when it runs: `from a import b` is a.b."""
    names: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                origin = ".".join([*package.split(".")[: 1 - node.level or None], origin]).rstrip(".")
            names |= {f"{origin}.{alias.name}" for alias in node.names}
        nodes += (child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS))
    return names


def loaded(importer: str, name: str, modules: set[str]) -> set[str]:
    """Modules that run when the importer imports the name.

    These are the named module and the packages around it, except packages around the importer, which run first anyway.
    """
    parts = name.split(".")
    prefixes = (".".join(parts[:n]) for n in range(1, len(parts) + 1))
    run = [prefix for prefix in prefixes if prefix in modules]
    return {module for module in run if module == run[-1] or not importer.startswith(f"{module}.")} - {importer}


def cycle(graph: dict[str, set[str]]) -> str | None:
    """A cycle of imports, such as "a imports b imports a"; None if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return None


def graph_of(names: dict[str, set[str]]) -> dict[str, set[str]]:
    return {m: set().union(*(loaded(m, name, set(names)) for name in names[m])) for m in names}


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    """Imports of every module, by its name; `tokenizer._native` is known by its stub."""
    found = {}
    for path in (path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            package = module.rpartition(".")[0]
            found[module.removesuffix(".__init__")] = imported_names(path.read_text(encoding="utf-8"), package)
    return found


def test_imports_have_no_cycle(names: dict[str, set[str]]) -> None:
    assert cycle(graph_of(names)) is None


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_one_way(package: str, names: dict[str, set[str]]) -> None:
    forbidden = {*MAY_IMPORT, "tests"} - MAY_IMPORT[package]
    forbidden |= ONLY_EXPERIMENTS if package != "experiments" else set()
    wrong = [
        f"{module} imports {name}"
        for module, imports in names.items()
        for name in sorted(imports)
        if module.partition(".")[0] == package and name.partition(".")[0] in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["tokenizer", "superbpe"])
def test_import_loads_numpy_alone(package: str) -> None:
    code = f"import sys; from {package} import *; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    installed = {name for name in packages_distributions() if not name.startswith("_")}
    assert set(run.stdout.split()) & installed - set(sys.stdlib_module_names) - set(MAY_IMPORT) == {"numpy"}


def test_a_cycle_is_found_and_named() -> None:
    hidden = "def f():\n    from p import b"
    sources = {"p": "", "p.a": hidden, "p.b": "from . import a", "p.c": "from .a import x"}
    assert cycle(graph_of({m: imported_names(source, "p") for m, source in sources.items()})) in (
        "p.a imports p.b imports p.a",
        "p.b imports p.a imports p.b",
    )
    sources["p.a"] = "if TYPE_CHECKING:\n    from p import b"
    assert cycle(graph_of({m: imported_names(source, "p") for m, source in sources.items()})) is None


def test_a_package_runs_before_its_modules() -> None:
    modules = {"p", "p.a", "p.inner", "p.inner.b"}
    assert loaded("p.a", "p.inner.b.x", modules) == {"p.inner", "p.inner.b"}
    assert loaded("p.a", "p.x", modules) == {"p"}
    assert loaded("q", "p.a", modules) == {"p", "p.a"}

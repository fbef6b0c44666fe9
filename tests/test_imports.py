"""Imports have no cycles, and packages import each other one way; imports inside functions count."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
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


def imported_names(source):
    """Full names that a module imports anywhere except for types: `from a import b` is a.b."""
    names = set()
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If | ast.Import | ast.ImportFrom)]
    # For types, and for programs, which nothing imports.
    apart = {"TYPE_CHECKING", "__name__ == '__main__'"}
    conditional = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) in apart]
    left_out = {id(inner) for node in conditional for inner in node.body}
    for node in (node for node in nodes if id(node) not in left_out):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.fixture(scope="module")
def names():
    """Imports of every module, by its name; `tokenizer._native` is known by its stub."""
    found = {}
    for path in (path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[module] = imported_names(path.read_text(encoding="utf-8"))
    return found


def test_imports_have_no_cycle(names):
    """A package runs before its modules, so an import of a module is one of the packages around it, too."""
    graph = {}
    for module, imports in names.items():
        parts = [name.split(".") for name in imports]
        around = {".".join(part[:n]) for part in parts for n in range(1, len(part) + 1)} & names.keys()
        graph[module] = {name for name in around if not f"{module}.".startswith(f"{name}.")}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_one_way(package, names):
    forbidden = {*MAY_IMPORT, "tests"} - MAY_IMPORT[package]
    forbidden |= ONLY_EXPERIMENTS if package != "experiments" else set()
    for module, imports in names.items():
        if module.partition(".")[0] == package:
            assert not {name.partition(".")[0] for name in imports} & forbidden, module


@pytest.mark.parametrize("package", ["tokenizer", "superbpe"])
def test_import_loads_numpy_alone(package):
    code = f"import sys; from {package} import *; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    installed = {name for name in packages_distributions() if not name.startswith("_")}
    assert set(run.stdout.split()) & installed - set(sys.stdlib_module_names) - set(MAY_IMPORT) == {"numpy"}

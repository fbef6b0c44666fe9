"""Imports of missing packages name the extra that installs them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_imports import imported_names
from tokenizer.errors import UserError
from tokenizer.extras import DISTRIBUTION, EXTRA_OF, PACKAGES, MissingExtra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"hydra": "hydra-core", "lm_eval": "lm-eval", "vl_convert": "vl-convert-python"}
"""Names of distributions that are not the names of their packages."""
PROBED = {"IPython", "botocore", "joblib", "playwright", "psutil", "submitit"}
"""Packages of extras whose absence our code handles, or that come with another package."""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", each)[0] for each in requirements}


def import_without(package: str, statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in an environment without the package."""
    hide = f"""
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
class Hide(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        return None if name == {package!r} else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder] + [Hide()]
{statement}
"""
    return subprocess.run([sys.executable, "-c", hide], cwd=ROOT, check=False, capture_output=True, text=True)


def test_every_import_is_of_the_base_or_of_an_extra() -> None:
    base = names(PROJECT["dependencies"])
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    used = {
        name.partition(".")[0]
        for path in sources
        if "benchmarks" not in path.parts
        for name in imported_names(path.read_text(encoding="utf-8"), ".".join(path.relative_to(ROOT).parts[:-1]))
    }
    assert used - set(sys.stdlib_module_names) - PACKAGES - base - PROBED - set(EXTRA_OF) == set()


@pytest.mark.parametrize("package", EXTRA_OF)
def test_the_extra_declares_the_package(package: str) -> None:
    declared = names(PROJECT["optional-dependencies"][EXTRA_OF[package]])
    assert DISTRIBUTIONS.get(package, package) in declared


def test_all_has_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]

    def reached(extra: str) -> set[str]:
        nested = [each for each in extras[extra] if each.startswith(f"{DISTRIBUTION}[")]
        inner = {name for each in nested for name in each.rstrip("]").partition("[")[2].split(",")}
        return {extra}.union(*map(reached, inner))

    assert reached("all") == set(extras) - {"dev", "docs"}


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("torch", "lm.train.loop"),
        pytest.param("safetensors", "lm.model.weights", marks=pytest.mark.slow),
        ("transformers", "tokenizer.hf.tokenizer"),
        ("hydra", "experiments.cli.main"),
        ("altair", "experiments.report.charts"),
    ],
)
def test_import_names_the_extra(package: str, module: str) -> None:
    run = import_without(package, f"import {module}")
    command = f"pip install '{DISTRIBUTION}[{EXTRA_OF[package]}]'"
    last = f"tokenizer.extras.MissingExtra: the package {package} is not installed; install it with: {command}"
    assert run.stderr.splitlines()[-1] == last


def test_import_inside_a_function_names_the_extra() -> None:
    code = "from tokenizer import count_pretokens\nfrom pathlib import Path\n"
    run = import_without("pyarrow", f"{code}count_pretokens(['a'], 'gpt2').save(Path('unwritten'))")
    assert run.stderr.rstrip().endswith("pip install 'superbpe-framework[parquet]'")


def test_command_prints_one_line() -> None:
    run = import_without("omegaconf", "from experiments.cli.main import run\nsys.exit(run(['pipeline']))")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        "error: the package omegaconf is not installed; install it with: pip install "
        "'superbpe-framework[experiments]'\n"
    )


def test_other_importers_see_an_ordinary_error() -> None:
    code = "import tokenizer, importlib.util\nassert importlib.util.find_spec('torch') is None\nimport torch"
    assert import_without("torch", code).stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def test_error_is_a_users_error_and_an_import_error() -> None:
    assert issubclass(MissingExtra, UserError)
    assert issubclass(MissingExtra, ImportError)

"""Missing packages: the message names the extra of pyproject.toml that installs them."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_imports import imported_names
from tokenizer import Tokenizer, patterns
from tokenizer.errors import DISTRIBUTION, UserError, missing_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {"tokenizer", "superbpe", "lm", "configs", "experiments"}
PROBED = {"IPython", "botocore", "joblib", "playwright", "psutil", "submitit"}
"""Packages of extras whose absence our code handles, or that come with another package."""


def names(requirements):
    return {re.split(r"[<>=\\[]", each)[0] for each in requirements}


@pytest.fixture(autouse=True)
def _requirements_of_pyproject(monkeypatch):
    """The installed metadata, as of this pyproject.toml."""
    extras = PROJECT["optional-dependencies"].items()
    lines = [f"{each.replace('_', '-')} ; extra == '{extra}'" for extra, listed in extras for each in listed]
    monkeypatch.setattr("tokenizer.errors.metadata.requires", lambda _: lines)


def test_every_import_is_of_the_base_or_of_an_extra():
    base = names(PROJECT["dependencies"])
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    used = {
        name.partition(".")[0]
        for path in sources
        if "benchmarks" not in path.parts
        for name in imported_names(path.read_text(encoding="utf-8"))
    }
    for package in used - set(sys.stdlib_module_names) - PACKAGES - base - PROBED:
        message = str(missing_extra(ModuleNotFoundError(name=f"{package}.part")))
        assert message.startswith(f"the package {package} is not installed; in the clone of superbpe-framework, run: ")


def test_all_has_every_extra_for_users_but_the_exact_versions_of_demo():
    extras = PROJECT["optional-dependencies"]

    def reached(extra):
        nested = [each for each in extras[extra] if each.startswith(f"{DISTRIBUTION}[")]
        inner = {name for each in nested for name in each.rstrip("]").partition("[")[2].split(",")}
        return {extra}.union(*map(reached, inner))

    assert reached("all") == set(extras) - {"demo", "dev", "docs"}


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pyarrow", "parquet"), ("torch", "lm"), ("hydra", "experiments"), ("vl_convert", "pages"), ("lm_eval", "eval")],
)
def test_the_smallest_extra_is_named(package, extra):
    found = missing_extra(ModuleNotFoundError(name=package))
    assert isinstance(found, UserError)
    assert str(found).endswith(f"pip install '.[{extra}]'")


def test_a_module_of_no_extra_stays_an_error():
    with pytest.raises(ModuleNotFoundError):
        missing_extra(ModuleNotFoundError(name="no_such_module"))


@pytest.mark.parametrize(("package", "command"), [("omegaconf", ["pipeline"]), ("altair", ["inspect", "saved"])])
def test_a_command_prints_one_line(tmp_path, package, command):
    pytest.importorskip(package)
    Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2")).save(tmp_path / "saved")
    hide = f"import sys; sys.modules[{package!r}] = None; sys.argv[0] = 'superbpe'"
    words = [sys.executable, "-c", f"{hide}; import experiments.cli.main as cli; cli.main()", *command]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(words, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1
    assert f"superbpe {command[0]}: the package {package} is not installed" in run.stderr

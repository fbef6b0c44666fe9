"""The command says which of its packages is another project's, since their names are common."""

import base64
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("overwritten", "folder", "found"), [
    (None, None, None), ("lm", None, "site/lm/__init__.py"), (None, "configs", "here/configs/__init__.py"),
])  # fmt: skip
def test_a_package_of_another_project_is_named_in_one_line(tmp_path, overwritten, folder, found):
    site, here = tmp_path / "site", tmp_path / "here"
    (record := site / "superbpe_framework-0.1.0.dist-info" / "RECORD").parent.mkdir(parents=True)
    here.mkdir()
    lines = [""]
    for name in ("tokenizer", "superbpe", "lm", "configs", "experiments"):
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
        content = (site / name / "__init__.py").read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name}/__init__.py,sha256={digest},{len(content)}")
    record.write_text("\n".join([*lines, ""]))
    if overwritten is not None:
        (site / overwritten / "__init__.py").write_text("# of another distribution\n")
    if folder is not None:
        (here / folder).mkdir()
        (here / folder / "__init__.py").touch()
    paths = [str(here), str(site), *filter(None, sys.path[1:])]
    code = f"import sys; sys.path[:] = {paths}; from experiments.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], cwd=tmp_path, capture_output=True, text=True)
    if found is None:
        assert done.returncode == 0, done.stderr
    else:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"finds {tmp_path / found} of another project; install superbpe-framework in an" in done.stderr

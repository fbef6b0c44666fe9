"""`.ci/audit.py`: findings fail, and an unreachable database does not."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "audit.py"
if not SCRIPT.exists():
    pytest.skip("only in a clone", allow_module_level=True)
spec = importlib.util.spec_from_file_location("audit", SCRIPT)
audit: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)


def answer(*packages):
    return json.dumps({"dependencies": packages})


CLEAN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-2024-1"}]}


def test_findings_fail_and_unreachable_databases_do_not():
    for out, errors, failed, text in [
        (answer(CLEAN, SKIPPED), "", False, "1 of 2"),
        (answer(CLEAN, VULNERABLE), "", True, "c 2: PYSEC-2024-1"),
        (answer(SKIPPED), "", False, "not run: database not reachable"),
        ("", "requests.exceptions.ConnectionError: Max retries exceeded", False, "not run: database not reachable"),
        ("", "usage: pip-audit", True, "usage"),
    ]:
        outcome = audit.python_outcome(out, errors)
        assert outcome.failed == failed
        assert text in outcome.text
    for code, output, failed in [
        (0, "advisories ok", False),
        (1, "error[vulnerability]: use after free\nnetwork", True),
        (1, "[ERROR] failed to fetch advisory database https://github.com/rustsec/advisory-db", False),
        (1, "error: unknown option", True),
    ]:
        assert audit.rust_outcome(code, output).failed == failed

"""Known vulnerabilities of the dependencies: `python .ci/audit.py PIP_AUDIT SITE_PACKAGES`, run by `make audit`.

Exits with 1 for a finding. Where a tool or its database cannot be reached, it says "not run" and passes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

UNREACHABLE = re.compile(
    r"failed to fetch|couldn't fetch|could not connect|connection ?(error|refused|reset)|failed to resolve|max retries"
    r"|timed? ?out|name resolution|network",
    re.IGNORECASE,
)


class Outcome(NamedTuple):
    """Findings of an audit."""

    failed: bool
    text: str


def python_outcome(answer: str, errors: str) -> Outcome:
    """Outcome of `pip-audit -f json`. A package that the database lacks is skipped."""
    try:
        packages = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        if UNREACHABLE.search(errors):
            return Outcome(False, "not run: database not reachable")
        return Outcome(True, errors)
    found = [f"{each['name']} {each['version']}: {bug['id']}" for each in packages for bug in each.get("vulns", [])]
    audited = sum("vulns" in each for each in packages)
    if found:
        return Outcome(True, "\n".join(found))
    if not audited:  # every package skipped: something answered, but it is not the database
        return Outcome(False, "not run: database not reachable")
    return Outcome(False, f"no known vulnerability in {audited} of {len(packages)} packages")


def rust_outcome(code: int, output: str) -> Outcome:
    """Outcome of `cargo deny check`."""
    if code == 0:
        return Outcome(False, "no finding")
    findings = re.search(r"^error\[", output, re.MULTILINE)
    if not findings and UNREACHABLE.search(output):
        return Outcome(False, "not run: database not reachable")
    return Outcome(True, output)


def main(pip_audit: str, site_packages: str) -> int:
    """Run both tools; return the exit code."""
    outcomes = {}
    if shutil.which(pip_audit) is None:
        outcomes["pip-audit"] = Outcome(False, "not run: pip-audit cannot be installed here")
    else:
        command = [pip_audit, "--format=json", "--progress-spinner=off", f"--path={site_packages}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        outcomes["pip-audit"] = python_outcome(ran.stdout, ran.stderr)
    if shutil.which("cargo-deny") is None:
        outcomes["cargo deny"] = Outcome(False, "not run: install it with `cargo install --locked cargo-deny`")
    else:
        for checks in (["advisories"], ["bans", "licenses", "sources"]):
            command = ["cargo", "deny", "--manifest-path", "native/Cargo.toml", "check", *checks]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            outcomes[f"cargo deny {', '.join(checks)}"] = rust_outcome(ran.returncode, ran.stdout + ran.stderr)
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome.text}")
    return int(any(outcome.failed for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

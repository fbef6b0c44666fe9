"""A signal at any time gives one line and the exit code that a shell expects, also while a command is importing."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments.cli import process
from experiments.cli.console import exit_code
from lm.train.interrupt import Terminated
from tests.properties import quick_first
from tokenizer.errors import UserError

CODES = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143), signal.SIGHUP: ("hung up", 129)}


@pytest.fixture
def script(tmp_path):
    """The installed script `superbpe`, as pip writes it."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["superbpe"].partition(":")
    path = tmp_path / "superbpe"
    path.write_text(
        f"import sys\nfrom {module} import {function}\nif __name__ == '__main__':\n    sys.exit({function}())\n"
    )
    return path


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("entry", "module", "number"), [("-m experiments", "tokenizer", signal.SIGINT), ("", "hydra", signal.SIGTERM)]
)
def test_a_signal_during_imports_ends_in_a_line(entry, module, number, script):
    # No corpus of this name exists: a command that runs to its end says so, with exit code 2.
    words = ["pipeline", "--until", "count", "corpus=files", "corpus.paths=[no.txt]"]
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *(entry.split() or [script]), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        for line in run.stderr:
            if line.startswith("import time:") and line.rpartition("|")[2].strip() == module:
                run.send_signal(number)
                break
        rest = run.stderr.read().splitlines()
    (line,) = (line for line in rest if line and not line.startswith("import time:"))
    assert line.startswith(CODES[number][0])
    assert run.returncode == CODES[number][1]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX shells close streams")
@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ("2>&-", ["status", "artifacts=a"]),
        ("<&- >&- 2>&-", ["train", "text.txt", "--vocab-size", "300", "--to", "to"]),
    ],
)
def test_closed_streams_do_not_matter(closed, words, script, tmp_path):
    (tmp_path / "text.txt").write_text("some text " * 100)
    (tmp_path / "a").mkdir()
    line = f"{shlex.join([sys.executable, str(script), *words])} {closed}"
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran
    assert "Traceback" not in ran.stderr + ran.stdout
    assert not any(b"wrote:" in path.read_bytes() for path in tmp_path.glob("to/*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.slow
def test_an_encoding_without_our_characters_and_a_full_disk_under_the_log(tiny, script):
    words = [sys.executable, str(script), "pipeline", "--until", "count", *tiny]
    words += ["hydra.job_logging.handlers.file.filename=/dev/full"]
    ran = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "cp1252"}, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert re.search(rb"^\?  +\S+ s  count ", ran.stdout, re.MULTILINE)
    assert b"Logging error" not in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "unbuffered"), quick_first([("train --help", "1"), ("--help", ""), ("--version", "")])
)
def test_help_on_a_full_disk_and_for_a_reader_that_has_ended(words, unbuffered, script):
    for target, expected in ((">/dev/full", (2, "error: the disk is full")), ("| true", (141, "the output is closed"))):
        line = f"{shlex.join([sys.executable, str(script), *words.split()])} {target}; exit ${{PIPESTATUS[0]}}"
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment)
        assert (ran.returncode, ran.stderr.strip()[: len(expected[1])]) == expected, ran.stderr
        assert ran.stderr.strip().count("\n") == 0


@pytest.mark.slow
def test_a_run_whose_reader_has_ended_is_interrupted(tiny, tmp_path, script):
    words = [sys.executable, str(script), "pipeline", "--until", "count", *tiny]
    ran = subprocess.run(["bash", "-c", f"{shlex.join(words)} 2>&1 | true; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path)
    assert ran.returncode == 141
    assert json.loads((tmp_path / "outputs" / "run.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    "words",
    [
        "encode loop a.txt --to out",
        "train loop --vocab-size 300 --to out",
        "train a.txt --vocab-size 300 --to loop/out",
        "status artifacts=loop",
        "pipeline --until count artifacts=loop/artifacts",
        "pipeline --until count hydra.run.dir=loop/run",
    ],
)
def test_symbolic_links_in_a_circle_are_one_line(words, tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a.txt").write_text("text")
    assert "loop" in mistake(*words.split())


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("error", [AttributeError, UserError, KeyboardInterrupt])
def test_a_library_cannot_hide_a_signal_behind_an_error(number, error, capsys):
    def job():
        try:
            signal.raise_signal(number)
        finally:
            raise error("cleanup failed")

    before = signal.getsignal(number)
    assert exit_code(job, "all is lost") == CODES[number][1]
    assert capsys.readouterr().err.strip() == f"{CODES[number][0]}: all is lost"
    assert signal.getsignal(number) is before
    with pytest.raises(AttributeError, match="no signal"), process.stoppable():
        raise AttributeError("no signal")


def test_ignored_signals_stay_ignored_and_handlers_come_back():
    before = {number: signal.getsignal(number) for number in CODES}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background job
        process.prepare()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        with process.stoppable():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            with pytest.raises(Terminated):
                signal.raise_signal(signal.SIGTERM)
        process.restore()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_the_interpreter_exits_does_not_change_the_exit_code(number):
    code = f"""if True:
        import os, signal
        import experiments
        from experiments.cli.process import prepare

        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # an import installs no handler

        class Last:
            def __del__(self, kill=os.kill, me=os.getpid()):
                kill(me, {int(number)})

        prepare()
        last = Last()  # deleted after Python has restored the default handlers
        raise SystemExit(3)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (3, "")

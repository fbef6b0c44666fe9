"""A signal at any time gives one line and the exit code that a shell expects, also while a command is importing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from experiments.cli import signals
from experiments.cli.console import exit_code
from lm.train.interrupt import Terminated
from tokenizer.errors import UserError

CODES = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}


def stopped_after(module: str, number: signal.Signals, *command: str) -> tuple[int, list[str]]:
    """Exit code and lines of stderr of a command that gets a signal as soon as it has imported a module."""
    interpreter = [sys.executable, "-X", "importtime", "-m"]
    with subprocess.Popen(
        [*interpreter, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("import time:") and line.rpartition("|")[2].strip() == module:
                run.send_signal(number)
                break
        rest = run.stderr.read().splitlines()
    return run.returncode, [line for line in rest if line and not line.startswith("import time:")]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("module", ["experiments", "hydra", "experiments.cli.main"])
def test_a_signal_during_imports_ends_in_a_line(number, module):
    word, code = CODES[number]
    # No corpus of this name exists: what runs to its end says so, with exit code 2.
    found = stopped_after(module, number, "experiments.count", "corpus=files", "corpus.paths=[none.txt]")
    assert found[0] == code, found
    assert len(found[1]) == 1
    assert found[1][0].startswith(word)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", CODES)
def test_other_commands_end_in_the_same_line(number):
    word, code = CODES[number]
    assert stopped_after("rich", number, "experiments.export", "none", "out", "--to", "hf") == (code, [word])


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_a_command_works_is_reported(number, capsys):
    before = signal.getsignal(number)
    assert exit_code(lambda: signal.raise_signal(number), "all is lost") == CODES[number][1]
    assert capsys.readouterr().err.strip() == f"{CODES[number][0]}: all is lost"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("error", [AttributeError, UserError, KeyboardInterrupt])
def test_a_library_cannot_hide_a_signal_behind_an_error(number, error, capsys):
    def job() -> None:
        try:
            signal.raise_signal(number)
        finally:
            raise error("cleanup failed")

    assert exit_code(job, "all is lost") == CODES[number][1]
    assert capsys.readouterr().err.strip() == f"{CODES[number][0]}: all is lost"
    with pytest.raises(AttributeError, match="no signal"), signals.stoppable():
        raise AttributeError("no signal")


def test_ignored_signals_stay_ignored_and_handlers_come_back():
    before = {number: signal.getsignal(number) for number in CODES}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background job
        signals.exit_at_once()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        with signals.stoppable():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            with pytest.raises(Terminated):
                signal.raise_signal(signal.SIGTERM)
        signals.restore()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_importing_the_package_installs_no_handler():
    code = "import signal, experiments; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"

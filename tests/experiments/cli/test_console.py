import errno
import io
import logging
import os
import re
import warnings
from functools import partial

import pytest
from rich.console import Console

from experiments.cli import console as module
from experiments.cli.sweep import summarize
from experiments.progress import Lines, Reporter, Table
from experiments.store.records import Record
from tests.experiments.test_shell import hostile
from tests.properties import quick_first
from tokenizer.errors import UserError


def test_disk_errors_are_one_line_with_path_and_remedy(capsys):
    def job(number):
        raise OSError(number, os.strerror(number), "store/lm-1")

    for number, said in (
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EFBIG, "ulimit -f"),
    ):
        assert module.exit_code(partial(job, number)) == 2
        complaint = capsys.readouterr().err
        assert complaint.startswith("error: store/lm-1: ")
        assert said in complaint
        assert "Finished stages are kept" in complaint
        assert complaint.count("\n") == 1
    assert module.system_error(OSError(errno.ECONNRESET, "reset")) is None


def test_errors_of_other_software_without_a_file_are_one_line(capsys):
    def job(error):
        raise error

    offline = "Couldn't reach 'a/b' on the Hub (OfflineModeIsEnabled)"
    assert module.exit_code(partial(job, ConnectionError(offline))) == 2
    assert capsys.readouterr().err == f"error: {offline}\n"
    assert module.exit_code(partial(job, RuntimeError("can't start new thread"))) == 2
    assert "error: the system allows no more threads" in capsys.readouterr().err


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "part", quick_first(["[/red]", "\x1b[2J", "\r", "\x9b", "\u202e", "\u2028", *hostile(0, 9)[-9:]], 6)
)
def test_names_reach_the_terminal_as_visible_text(part, capsys, tmp_path, caplog):
    """Every way to print: no control character but the line feed, and no line that a name made up."""
    out, name, unbroken = io.StringIO(), f"{part}\nwrote: {part}", part.replace("\n", "")

    def job():
        module.finish(tmp_path / name, then=["inspect", name])
        for reporter in (Reporter(), Reporter(Console(file=out, width=400))):
            reporter.say(name)
            reporter.line(name, fresh=True, seconds=1, artifact=name, what=name)
            for width in (1, 50):
                reporter.table(Table(name, [name, Lines(name, "b")], [[name, Lines("b", name)]] * width))
        record = Record(str(tmp_path), [name], [f"{name}={name}"], 0, status="failed", error=name, command=name)
        record.sweep = str(tmp_path)
        record.save()
        summarize(tmp_path, 2)
        module.console.print(unbroken)
        logging.getLogger("a").warning("%s", unbroken)
        warnings.warn(name, stacklevel=1)
        raise UserError(name)

    module.spell({})
    assert module.exit_code(job) == 2
    module.complain_of_bug(ValueError(unbroken))
    printed = "".join([*capsys.readouterr(), out.getvalue(), *caplog.messages])
    assert not CONTROLS.search(printed), printed
    assert len(re.findall("^ *wrote:", printed, re.MULTILINE)) == 2  # of `finish` and of the sweep

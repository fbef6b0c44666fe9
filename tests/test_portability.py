"""The commands run on Windows: `tokenizer/system.py` alone uses what it lacks, and text files name their encoding."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

from tokenizer.corpus.origins import kind_of
from tokenizer.files import weighted

ROOT = Path(__file__).parents[1]
PACKAGES = ("tokenizer", "superbpe", "lm", "configs", "experiments")

AS_ON_WINDOWS = f"""
import builtins, fcntl, importlib, io, os, pkgutil, shutil, signal, sys, types, warnings
from importlib.util import find_spec
from pathlib import Path

def import_all():
    for package in {PACKAGES}:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                assert error.name.partition(".")[0] not in {PACKAGES}, error  # otherwise of an extra

import_all()  # so that other packages find the system that this is
for name in [*sys.modules]:
    if name.partition(".")[0] in {PACKAGES} and name != "tokenizer._native":
        del sys.modules[name]

def replaced(module, name, check):
    original = getattr(module, name)
    def call(*arguments, **options):
        check(*arguments)
        return original(*arguments, **options)
    setattr(module, name, call)

def fail(kind, number, when):
    if when:
        raise kind(number, "as on Windows")

def flushed(handle):
    fail(OSError, 9, fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY)

def elsewhere(path, *_):
    fail(FileNotFoundError, 2, str(path).startswith(("/proc/", "/dev/fd")))

def locking(handle, mode, _, flock=fcntl.flock, exclusive=fcntl.LOCK_EX, at_once=fcntl.LOCK_NB):
    flock(handle, exclusive | (at_once if mode == 2 else 0))

sys.modules["msvcrt"] = types.SimpleNamespace(LK_LOCK=1, LK_NBLCK=2, locking=locking)
replaced(os, "open", lambda path, *_: fail(PermissionError, 13, os.path.isdir(path)))
replaced(os, "fsync", flushed)
replaced(os, "replace", lambda _, target: fail(PermissionError, 13, os.path.isdir(target)))
replaced(os, "rename", lambda _, target: fail(FileExistsError, 17, os.path.lexists(target)))
for module in (builtins, io):
    replaced(module, "open", elsewhere)
for name in ("fork", "execv", "memfd_create", "sched_getaffinity", "getuid", "geteuid", "mkfifo", "killpg", "getpgid"):
    delattr(os, name)
os.O_BINARY, shutil._use_fd_functions = 0, False
signal.SIGBREAK = signal.Signals(21)
for name in ("SIGHUP", "SIGPIPE", "SIGKILL", "SIGALRM", "SIGUSR1", "setitimer", "pthread_kill"):
    delattr(signal, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"))
warnings.filterwarnings("error", "", EncodingWarning, "({"|".join(PACKAGES)})[.]")

platform, sys.platform = sys.platform, "win32"
from tokenizer import system
sys.platform, system.sys = platform, types.SimpleNamespace(platform="win32")
import_all()

from experiments.cli.process import prepare
from experiments.cli.main import run
from tokenizer import Tokenizer, durable

prepare()
Path("texts").mkdir()
Path("texts/a.txt").write_text(Path({str(ROOT / "README.md")!r}).read_text("utf-8"), encoding="utf-8")
for line in (
    "train texts --vocab-size 400 --to bpe", "train texts --vocab-size 400 --superbpe uw-2025 --to bpe/superbpe",
    "encode bpe texts --to shards", "export bpe hf --to hf", "trim bpe texts --to trimmed", "choose --help",
):
    code = run(line.split())
    assert code == 0 or line == "choose --help" and find_spec("altair") is None, line
tokenizer = Tokenizer.load("bpe/superbpe")
Path("empty").mkdir()
tokenizer.save("empty")
assert Tokenizer.load("empty") == tokenizer
Path("lock").touch()
with durable.locked(Path("lock")) as first, durable.locked(Path("lock")) as second:
    assert (first, second) == (True, False)
with system.sparse_file() as (file, name):
    assert Path(name).is_file()
system.limit_process(1, 1)
assert (system.peak_memory(), system.n_cores()) == (0, os.cpu_count())
"""


@pytest.mark.slow
def test_every_module_and_command_does_without_what_windows_lacks(tmp_path):
    (tmp_path / "program.py").write_text(AS_ON_WINDOWS, encoding="utf-8")
    command = [sys.executable, "-X", "utf8=0", "-X", "warn_default_encoding", "program.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="cp1252")
    assert done.returncode == 0, done.stderr[-3000:]


def test_text_is_read_and_written_in_an_encoding_that_is_named():
    """Windows would take cp1252."""
    text = {"open", "read_text", "write_text", "fdopen", "TextIOWrapper", "NamedTemporaryFile", "run", "Popen"}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            if (getattr(call.func, "attr", None) or getattr(call.func, "id", None)) not in text:
                continue
            name = ast.unparse(call.func)
            written = ast.unparse(call)
            if name in ("os.open", "Shards.open", "read_text") or not (call.args or call.keywords):
                continue
            by_process = name.rpartition(".")[2] in ("run", "Popen")
            is_text = "text=True" in written if by_process else not re.search(r"'[rwaxt]?\+?b|'[rwa]b\+?'", written)
            assert not is_text or re.search(r"encoding=|'(utf-8|ascii)'", written), f"{path}:{call.lineno}: {written}"


def test_paths_are_compared_with_slashes():
    assert kind_of(PureWindowsPath(r"src\a\b.jsonl"), {"code": "src/a"}) == "code"
    assert weighted(r"C:\texts\*.jsonl", "sources.web") == (r"C:\texts\*.jsonl", 1)
    assert weighted(r"C:\texts\*.jsonl:3", "sources.web") == (r"C:\texts\*.jsonl", 3)


def test_the_core_calls_a_system_only_where_cfg_names_it():
    for path in (ROOT / "native" / "src").rglob("*.rs"):
        common = re.sub(
            r"^( *)#\[cfg\([^\n]*(?:unix|windows|target_os)[^\n]*\n.*?^\1\}",
            "",
            path.read_text("utf-8"),
            flags=re.M | re.S,
        )
        assert not re.search(r"\blibc::|std::os::", common), path

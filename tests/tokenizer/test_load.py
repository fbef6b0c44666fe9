"""Many threads, calls and loads, and processes that are started after use."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from tests import load

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux reports it")
MOST_MB = 20


@linux
def test_many_threads_share_a_tokenizer():
    assert load.threads(32, rounds=3) < MOST_MB


@pytest.mark.slow
@linux
@pytest.mark.parametrize(("run", "n"), [(load.calls, 300_000), (load.loads, 200)])
def test_memory_does_not_grow(run, n):
    assert run(n) < MOST_MB


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_that_start_after_use_give_the_same_ids(method):
    assert load.started(method)


def test_free_threaded_python_is_rejected_at_import():
    program = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; import tokenizer"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: free-threaded Python is not supported")

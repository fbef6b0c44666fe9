"""A process that is killed where it changes files: at a rename, a removal or a sync."""

import itertools
import os
import signal
import traceback


def kills(work):
    """Do `work(n)` in a forked process that is killed at its `n`-th change, for every `n` until it finishes.

    Yields each `n` after the kill. Fork before any thread runs.
    """
    for n in itertools.count():
        if (child := os.fork()) == 0:
            _run(work, n)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        assert code == -signal.SIGKILL, f"exit code {code} at change {n}"
        yield n


def _run(work, n):
    changes = itertools.count()

    def killing(change):
        def change_or_die(*arguments, **options):
            if next(changes) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return change_or_die

    for name in ("replace", "rename", "unlink", "rmdir", "fsync"):
        setattr(os, name, killing(getattr(os, name)))
    code = 1
    try:
        work(n)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

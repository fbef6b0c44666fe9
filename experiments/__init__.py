"""Experiments: the command `superbpe`, the stages of an experiment, their artifacts and reports."""

import os
import sys

# How long waiting threads (GNU OpenMP) spin before they sleep; it must be set before Torch is imported. With the
# default, another busy process can stall a training step for seconds. This low value costs nothing on an idle machine,
# while sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs 25 % there (2 cores, the demo's model).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# With `python -m experiments.pipeline`, sys.argv[0] is "-m" until Python has found the module; its imports are slow.
if sys.argv[:1] == ["-m"]:
    from experiments.cli.process import prepare

    prepare()

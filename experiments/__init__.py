"""Experiments: the command `superbpe`, the stages of an experiment, their artifacts and reports."""

import os

# How long waiting threads (GNU OpenMP) spin before they sleep; it must be set before Torch is imported. With the
# default, another busy process can stall a training step for seconds. This low value costs nothing on an idle machine,
# while sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs 25 % there (2 cores, the demo's model).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

"""Experiments: one runnable module per job (`python -m experiments.NAME`), their artifacts and reports."""

import os
import sys

# Before Torch is imported: how long its threads (GNU OpenMP) spin for each other before they sleep. The default is
# long enough for one busy neighbour to stall a training step for seconds; so few spins cost nothing on an idle
# machine, where sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs a quarter (2 cores, the demo's model).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# As a command (`python -m experiments.NAME`): sys.argv[0] is "-m" until Python has found the module NAME in here.
if sys.argv[:1] == ["-m"]:
    from experiments.cli.signals import exit_at_once

    exit_at_once()

"""Experiments: one runnable module per job (`python -m experiments.NAME`), their artifacts and reports."""

import os

# Before Torch is imported: its threads then sleep while they wait for each other instead of spinning. That costs
# 5 % on an idle machine with two cores and is four times as fast where another process wants them too (measured).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

"""Work on the parts of a corpus, on the machines of a Ray or Slurm cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.cluster.tasks import Cluster
    from experiments.config import RunnerConfig

RUNNERS = ("local", "ray", "slurm")


def connect(runner: RunnerConfig) -> Cluster | None:
    """Connect to the cluster that the settings name; None for `local`, which has no parts.

    Raises:
        UserError: the cluster cannot be reached, or the package for it is not installed.
    """
    if runner.name == "local":
        return None
    from experiments.cluster.tasks import Cluster

    if runner.name == "ray":
        from experiments.cluster.ray_backend import RayBackend

        return Cluster(RayBackend(runner), runner)
    from experiments.cluster.slurm_backend import SlurmBackend

    return Cluster(SlurmBackend(runner), runner)

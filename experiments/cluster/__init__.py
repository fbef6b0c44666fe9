"""Work on the parts of a corpus, on the machines of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.cluster.tasks import Cluster
    from experiments.config import RunnerConfig

RUNNERS = ("local", "ray")


def connect(runner: RunnerConfig) -> Cluster | None:
    """Connect to the cluster that the settings name; None for `local`, which has no parts.

    Raises:
        UserError: the cluster cannot be reached, or the package for it is not installed.
    """
    if runner.name == "local":
        return None
    from experiments.cluster.ray_backend import RayBackend
    from experiments.cluster.tasks import Cluster

    return Cluster(RayBackend(runner), runner)

"""Work on the parts of a corpus, and language models, on the machines of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.cluster.tasks import Cluster
    from experiments.config import RunnerConfig

RUNNERS = ("local", "ray")


def connect(runner: RunnerConfig) -> Cluster | None:
    """Connect to the cluster that the settings name; None for `local`.

    Raises:
        UserError: the cluster cannot be reached, or Ray is not installed.
    """
    if runner.name == "local":
        return None
    from experiments.cluster.connection import started
    from experiments.cluster.tasks import Cluster

    return Cluster(started(runner), runner)

"""Logging of metrics to `metrics.jsonl` and wandb."""

from typing import NamedTuple


class Labels(NamedTuple):
    """Names of a run in wandb.

    Attributes:
        group: Group of the runs; cells of a sweep share one.
        name: Name of the run within its group.
        job_type: The last stage that was requested.
    """

    group: str
    name: str
    job_type: str = "report"

"""Per-run context shared by all stages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.cli.console import Reporter
    from experiments.config import Config
    from experiments.logging.tracking import Tracker
    from experiments.store.artifacts import Artifact, Store


@dataclass(frozen=True)
class Context:
    """Configuration, artifacts, terminal and metrics of one run."""

    config: Config
    store: Store
    reporter: Reporter
    tracker: Tracker

    def seeds(self) -> list[Context]:
        """The same with one training seed each, `lm.n_seeds` of them from the configured one on."""
        lm = self.config.lm
        return [
            dataclasses.replace(
                self,
                config=dataclasses.replace(
                    self.config,
                    lm=dataclasses.replace(lm, n_seeds=1, train=dataclasses.replace(lm.train, seed=lm.train.seed + i)),
                ),
            )
            for i in range(lm.n_seeds)
        ]

    def done(self, stage: str, artifact: Artifact[Any], what: str, row: Mapping[str, Any] | None = None) -> None:
        """Say that a stage is done, and log it.

        Args:
            stage: What the user calls it; for one of several arms with its name: `lm bpe`.
            artifact: Its result.
            what: The result in a few words.
            row: Numbers for the metrics beside the artifact's cost.
        """
        self.store.use(artifact)
        self.reporter.line(stage, fresh=artifact.fresh, seconds=artifact.seconds, artifact=artifact.name, what=what)
        self.tracker.done(stage, artifact, row or {})

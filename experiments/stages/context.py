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
    """Configuration, artifact store, terminal output and metrics of one run."""

    config: Config
    store: Store
    reporter: Reporter
    tracker: Tracker

    def seeds(self) -> list[Context]:
        """Return `lm.n_seeds` contexts with one training seed each, counting up from the configured seed."""
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
        """Report that a stage is done, and log it.

        Args:
            stage: Name of the stage as shown to the user, with the arm where there are several: `lm bpe`.
            artifact: Result of the stage.
            what: The result in a few words.
            row: Metrics to log besides the artifact's cost.
        """
        self.reporter.line(stage, fresh=artifact.fresh, seconds=artifact.seconds, artifact=artifact.name, what=what)
        self.tracker.done(stage, artifact, row or {})

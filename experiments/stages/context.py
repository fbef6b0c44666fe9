"""Per-run context shared by all stages."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.cluster.tasks import connect
from experiments.logging.tracking import Tracker
from experiments.results import Contents
from experiments.store import records
from experiments.store.artifacts import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from experiments.cluster.tasks import Cluster
    from experiments.config import RunnerConfig
    from experiments.progress import Reporter
    from experiments.store.artifacts import Artifact

C = TypeVar("C", bound=Contents)


@dataclass(frozen=True)
class Context:
    """Where a run keeps its artifacts, shows its progress, logs its metrics and processes text."""

    store: Store
    reporter: Reporter
    tracker: Tracker
    runner: RunnerConfig

    @property
    def cluster(self) -> Cluster | None:
        """Cluster that processes text in parts; None for this machine."""
        return connect(self.runner)

    def make(
        self,
        name: str,
        result: type[C],
        kind: str,
        *,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Path], C],
        describe: Callable[[C], str],
        row: Callable[[C], Mapping[str, Any]] = lambda _: {},
        resumable: bool = False,
    ) -> Artifact[C]:
        """Return the artifact of a stage, made if it does not exist, and report it.

        Args:
            name: Name of the stage as shown to the user, with the arm or the run where there are several.
            result: Class of the stage's result.
            kind: Kind of the artifact, the first half of the folder's name.
            config: All settings that change the result.
            inputs: The hash of everything that the stage reads, by name.
            build: Fills the given folder and returns the result.
            describe: The result in a few words.
            row: Metrics of the result to log.
            resumable: Keep the unfinished folder when `build` is interrupted, and pass it to the next attempt.
        """
        with self.reporter.stage(name):
            artifact = self.store.make(result, kind, config=config, inputs=inputs, build=build, resumable=resumable)
        self.done(name, artifact, describe(artifact.contents), row(artifact.contents))
        return artifact

    def done(self, name: str, artifact: Artifact[Any], what: str, row: Mapping[str, Any] | None = None) -> None:
        """Report that a stage is done, and log it.

        Args:
            name: Name of the stage as shown to the user.
            artifact: Result of the stage.
            what: The result in a few words.
            row: Metrics to log besides the artifact's cost.
        """
        self.reporter.line(
            name, fresh=artifact.fresh, seconds=artifact.manifest.seconds, artifact=artifact.name, what=what
        )
        self.tracker.done(name, artifact, row or {})


@contextmanager
def open_context(
    folder: Path, artifacts: str, runner: RunnerConfig, reporter: Reporter, *tracking: Any, **options: Any
) -> Iterator[Context]:
    """The context of a run, which is registered with the store of its artifacts in the block.

    Args:
        folder: Folder of the run.
        artifacts: Folder or bucket of the artifacts.
        runner: Where text is processed.
        reporter: Shows the progress, and warnings of the block without the source line that Python would print.
        tracking: Further arguments of `Tracker`.
        options: Further attributes of `Store`.
    """
    store = Store.at(
        artifacts,
        on_wait=lambda name: reporter.say(f"waiting: another process is making {name}"),
        progress=reporter.progress,
        **options,
    )
    with records.running(store, folder), warnings.catch_warnings(), Tracker(folder, *tracking) as tracker:
        warnings.showwarning = lambda message, *_, **__: reporter.say(f"warning: {message}", style="yellow")
        yield Context(store, reporter, tracker, runner)

"""Records that `on_error=skip` left out of a corpus."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PLACES = 20
"""Maximum number of places that are listed."""


@dataclass
class Skipped:
    """Damaged records, and damaged files of which an unknown number of records is missing.

    Attributes:
        counts: number of skipped records and rests of files, by file.
        places: the first of them by file: line or byte, and what is wrong there.
    """

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    _reported: int = field(default=0, repr=False, compare=False)

    def add(self, file: str, count: int, places: list[str]) -> None:
        """Set what is skipped of a file; a file that is read several times counts once."""
        if count >= self.counts.get(file, 1):
            # The remedy of the error, to skip the line, has been taken.
            places = [place.partition("; fix the line")[0] for place in places[:PLACES]]
            self.counts[file], self.places[file] = count, places

    def so_far(self) -> dict[str, Any]:
        """Records skipped so far, as JSON for `update`."""
        return {"counts": dict(self.counts), "places": dict(self.places)}

    def update(self, other: Mapping[str, Any]) -> None:
        """Add what another reader skipped: its `so_far`."""
        for file, count in other["counts"].items():
            self.add(file, count, other["places"][file])

    def add_parts(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Add what was skipped of all parts of a corpus, in order: their `so_far`."""
        for part in parts:
            self.update(part)
        self.report()

    def report(self) -> None:
        """Warn if something was skipped since the last report. Whoever reads a text calls it at the end of a pass."""
        if self.count > self._reported:
            self._reported = self.count
            warnings.warn(self.sentence(), stacklevel=3)

    def sentence(self) -> str:
        """Number of skipped records and files, and the first place."""
        first = self.summary()["places"][0]
        return (
            f"{self.count:,} damaged records or rests of files skipped in {len(self.counts):,} files, such as {first}"
        )

    @property
    def count(self) -> int:
        """Number of skipped records and rests of files."""
        return sum(self.counts.values())

    def summary(self) -> dict[str, Any]:
        """JSON for a manifest: counts by file, and the first places; empty if nothing was skipped."""
        if not self.count:
            return {}
        places = [f"{file}: {place}" for file in sorted(self.places) for place in self.places[file]]
        return {"count": self.count, "files": dict(sorted(self.counts.items())), "places": places[:PLACES]}

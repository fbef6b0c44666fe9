"""What `on_error=skip` left out of a corpus."""

from __future__ import annotations

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

    def add(self, file: str, count: int, places: list[str]) -> None:
        """Set what is skipped of a file; a file that is read several times counts once."""
        if count >= self.counts.get(file, 1):
            self.counts[file], self.places[file] = count, places[:PLACES]

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

"""Records that `on_error=skip` left out of a corpus."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

PLACES = 20
"""Maximum number of places that are listed."""


class Skipped:
    """Damaged records, and damaged files of which an unknown number of records is missing."""

    def __init__(self) -> None:
        # By file: number of records and rests of files, and the first places: line or byte, and what is wrong there.
        self._files: dict[str, tuple[int, list[str]]] = {}
        self._reported = 0

    def add(self, file: str, count: int, places: list[str]) -> None:
        """Set what is skipped of a file; a file that is read several times counts once."""
        if file not in self._files or count >= self._files[file][0]:
            # The remedy of the error, to skip the line, has been taken.
            self._files[file] = count, [place.partition("; fix the line")[0] for place in places[:PLACES]]

    def so_far(self) -> dict[str, Any]:
        """Records skipped so far, as JSON for `update`."""
        return dict(self._files)

    def take(self) -> dict[str, Any]:
        """Remove and return what was added since the last call, as JSON for `update`."""
        taken, self._files = self._files, {}
        return taken

    def update(self, *others: dict[str, Any]) -> None:
        """Add what other readers skipped, in order: their `so_far`."""
        for file, (count, places) in chain.from_iterable(map(dict.items, others)):
            self.add(file, count, places)

    def report(self) -> None:
        """Warn if something was skipped since the last report. Readers of a text call it at the end of a pass."""
        if self.count > self._reported:
            self._reported = self.count
            warnings.warn(self.sentence(), stacklevel=3)

    def sentence(self) -> str:
        """Number of skipped records and files, and the first place."""
        first = self.summary()["places"][0]
        return (
            f"{self.count:,} damaged records or rests of files skipped in {len(self._files):,} files, such as {first}"
        )

    @property
    def count(self) -> int:
        """Number of skipped records and rests of files."""
        return sum(count for count, _ in self._files.values())

    def summary(self) -> dict[str, Any]:
        """JSON for a manifest: counts by file, and the first places; empty if nothing was skipped."""
        if not self.count:
            return {}
        files = sorted(self._files.items())
        places = [f"{file}: {place}" for file, (_, places) in files for place in places]
        return {"count": self.count, "files": {file: count for file, (count, _) in files}, "places": places[:PLACES]}

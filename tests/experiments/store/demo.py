"""Artifacts with contents of any kind, for tests of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiments.results import Contents


@dataclass(frozen=True, kw_only=True)
class Demo(Contents):
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, values):
        return cls(values=dict(values))

    def save(self):
        return self.values


def make(store, stage, *, build, **options):
    """`Store.make`, for a `build` that returns a dict."""
    return store.make(Demo, stage, build=lambda folder: Demo(values=build(folder)), **options)

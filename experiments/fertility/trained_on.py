"""The text on which a tokenizer was trained, as far as its folder names it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError
from tokenizer.files import weighted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizer.corpus.remote import File
    from tokenizer.interface import TokenizerLike


def recorded_text(tokenizer: TokenizerLike) -> list[str]:
    """The paths that the tokenizer's training was given, as they were written."""
    about = getattr(tokenizer, "provenance", {})
    phases = [about.get(phase) for phase in ("phase1", "phase2", "choose")]
    recorded = [entry for phase in phases if isinstance(phase, dict) for entry in phase.get("text", [])]
    return [weighted(str(entry), "text")[0] for entry in dict.fromkeys(recorded)]


def trained_on(tokenizer: TokenizerLike, files: Iterable[tuple[File, str]]) -> list[str]:
    """Those of the files on which the tokenizer was trained. `superbpe choose` records its split, not checked here."""
    names = recorded_text(tokenizer)
    if not names or "choose" in getattr(tokenizer, "provenance", {}):
        return []
    with suppress(OSError, UserError, TypeError):  # moved, deleted, or written by another version
        known = {file.resolve() for file, _ in Corpus(CorpusConfig(paths=names)).files}
        return [str(file) for file, _ in files if file.resolve() in known]
    return []

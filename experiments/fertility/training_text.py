"""The training text of a tokenizer, found by the record in its own folder or by that of its run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config import CorpusSource, part
from experiments.report.training_counts import tokenizer_folder
from experiments.results import CorpusFiles, Counts, Folder
from experiments.stages.corpus import embedded_text
from experiments.store import registry
from experiments.store.artifacts import Artifact, Store, artifact_at
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError
from tokenizer.files import digest, is_remote, read_json, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizer.interface import TokenizerLike

_UNUSABLE = (OSError, UserError, OmegaConfBaseException, KeyError, TypeError, ValueError, AssertionError)
"""Errors of records and text that were moved, changed, deleted or written by another version."""


def from_provenance(
    tokenizer: TokenizerLike, open_files: Callable[[Sequence[str]], Corpus]
) -> tuple[list[str] | None, list[Corpus]]:
    """The training text that a tokenizer's own folder names: `superbpe train` and `superbpe extend` record it.

    Args:
        tokenizer: The tokenizer.
        open_files: Opens the files as the user says that text is read.

    Returns:
        The names of the text, None if it has none; and the text, empty if it cannot be read any more.
    """
    provenance = getattr(tokenizer, "provenance", {})
    phases = [provenance.get(phase) for phase in ("phase1", "phase2")]
    entries = [entry for phase in phases if isinstance(phase, dict) for entry in phase.get("text", [])]
    names = [weighted(str(entry), "text")[0] for entry in dict.fromkeys(entries)]
    with suppress(*_UNUSABLE):
        return names or None, [open_files(names)] if names else []
    return names, []


def from_artifacts(path: Path) -> Corpus | None:
    """The corpus that a tokenizer of a folder of artifacts was trained on.

    The tokenizer's manifest has the hash of its corpus. The runs that used it have the files, which must still give
    that hash.

    Args:
        path: The tokenizer as the user named it.

    Returns:
        The corpus; None if no record leads to text that still exists.
    """
    with suppress(*_UNUSABLE):
        folder = tokenizer_folder(path)
        tokenizer = artifact_at(folder if folder.is_dir() else folder.parent, Folder)
        if tokenizer is None:
            return None
        store = Store(tokenizer.folder.parent)
        wanted = _corpus_hash(store, tokenizer)
        for run in registry.entries(store) if wanted else []:
            with suppress(*_UNUSABLE):
                used = read_json(run.record)["artifacts"]
                if tokenizer.name in used:
                    corpus, own = _corpus(store, run.folder, used)
                    if own == wanted:
                        return corpus
    return None


def _corpus_hash(store: Store, tokenizer: Artifact[Folder]) -> str | None:
    """Hash of the corpus that a tokenizer was trained on; None if it was not trained, or on other text."""
    inputs = tokenizer.manifest.inputs
    counts = None if "counts" not in inputs else store.find(f"count-{inputs['counts'][:12]}", Counts)
    return inputs.get("corpus") if counts is None else counts.contents.corpus


def _corpus(store: Store, run: Path, used: list[str]) -> tuple[Corpus, str]:
    """The corpus of a run in a folder, and its hash; `used` are the names of the artifacts that the run used."""
    values: Any = OmegaConf.to_container(OmegaConf.load(run / ".hydra" / "config.yaml"), resolve=True)
    hydra: Any = OmegaConf.to_container(OmegaConf.load(run / ".hydra" / "hydra.yaml"), resolve=False)
    config = CorpusSource(**values["corpus"])
    if config.source == "files":
        started_in = Path(hydra["hydra"]["runtime"]["cwd"])

        def absolute(path: str) -> str:
            return path if is_remote(path) else str(started_in / path)

        config.paths[:], config.heldout_paths[:] = map(absolute, config.paths), map(absolute, config.heldout_paths)
        config.sources.update({name: absolute(path) for name, path in config.sources.items()})
        corpus = Corpus(part(CorpusConfig, config))
        return corpus, digest(corpus.identity())
    (name,) = (name for name in used if name.startswith("corpus-"))
    written = store.find(name, CorpusFiles)
    assert written is not None
    text = embedded_text(config, written)
    return text.corpus, text.hash

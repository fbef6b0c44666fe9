"""Upload of a tokenizer to the Hugging Face Hub, with a model card made from what is stored about it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from tokenizer import formats
from tokenizer.definition import Described
from tokenizer.durable import new_folder, write_whole
from tokenizer.errors import UserError, shortened
from tokenizer.external.hub import is_repository_id

CARD = "README.md"
TIKTOKEN = "tokenizer.tiktoken"
OPTIONAL = (formats.HF_FILE, TIKTOKEN, f"{TIKTOKEN}.json")
"""Files that exist only if they give the same ids. One of another tokenizer would give others."""


class Measured(NamedTuple):
    """Compression of a text, for the card.

    Attributes:
        text: name of the text.
        n_bytes: UTF-8 bytes of the text.
        n_tokens: tokens of the text.
    """

    text: str
    n_bytes: int
    n_tokens: int


def push(
    tokenizer: Described,
    repository: str,
    *,
    to: Path | str | None = None,
    license: str | None = None,  # noqa: A002  (the card's own name for it)
    trained_on: Sequence[str] = (),
    measured: Sequence[Measured] = (),
    private: bool | None = None,
) -> str:
    """Upload a tokenizer's files and its card to a repository, which is created if it is missing.

    The files are those of `save`, and tiktoken's ranks where tiktoken gives the same ids. A card that is already in the
    repository is kept. Files of the other formats from an earlier upload are deleted if this tokenizer has none.

    Args:
        tokenizer: the tokenizer.
        repository: id of the repository, as "org/name".
        to: write the files into this new folder instead of uploading them.
        license: license for the card; None leaves the field to you.
        trained_on: names of the training text; empty for those that training recorded per phase.
        measured: compression to report.
        private: whether a new repository is private; None for the organization's default.

    Returns:
        The folder, or the address of the upload.

    Raises:
        UserError: the repository's id is malformed, the folder exists, a package is missing, or the upload fails.
    """
    if not is_repository_id(repository):
        raise UserError(f"{repository!r} is not the id of a repository; write ORGANIZATION/NAME")
    about = {"license": license, "trained_on": trained_on, "measured": measured}
    if to is not None:
        if Path(to).exists():
            raise UserError(f"{to} already exists; name a new folder")
        with new_folder(Path(to)) as partial:
            _write(tokenizer, repository, partial, about)
        return str(to)
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise UserError(
            "uploading requires the package huggingface_hub; install it with: pip install 'superbpe-framework[hf]'"
        ) from None
    with tempfile.TemporaryDirectory() as temporary:
        folder = _write(tokenizer, repository, Path(temporary, "tokenizer"), about)
        api = HfApi()
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            kept = [CARD] if api.file_exists(repository, CARD) else None
            done = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                ignore_patterns=kept,
                delete_patterns=[*OPTIONAL],  # of an earlier upload; files of this one are kept
                commit_message="Upload tokenizer",
            )
        except Exception as error:  # the HTTP library, and so its errors, depends on the version of huggingface_hub
            raise UserError(
                f"{repository} cannot be uploaded ({shortened(error)}); check the name and the network, and run "
                "`hf auth login` with a token that may write"
            ) from None
    return str(done.commit_url)


def _write(tokenizer: Described, repository: str, folder: Path, about: dict[str, Any]) -> Path:
    formats.write(tokenizer, folder, "superbpe")
    with suppress(UserError):  # tiktoken would give other ids
        formats.write(tokenizer, folder / TIKTOKEN, "tiktoken")
    files = [path.name for path in folder.iterdir()]
    write_whole(folder / CARD, card(tokenizer, repository, files, **about))
    return folder


def card(
    tokenizer: Described,
    repository: str,
    files: Sequence[str],
    *,
    license: str | None = None,  # noqa: A002
    trained_on: Sequence[str] = (),
    measured: Sequence[Measured] = (),
) -> str:
    """Return the model card. It leaves out what is unknown.

    Args:
        tokenizer: the tokenizer.
        repository: id of the repository.
        files: names of the files beside the card, which determine how the tokenizer can be loaded.
        license: see `push`.
        trained_on: see `push`.
        measured: see `push`.
    """
    front = ["library_name: superbpe-framework", "tags: [tokenizer, bpe]"]
    front.append(f"license: {license}" if license else "# license: name the license of the tokenizer here")
    rows = [*_facts(tokenizer), *_training(tokenizer.provenance, trained_on)]
    rows += [
        ("compression", f"{m.n_bytes / m.n_tokens:.3f} bytes per token on {m.text} ({m.n_bytes:,} bytes)")
        for m in measured
        if m.n_tokens
    ]
    lines = ["---", *front, "---", "", f"# {repository.rpartition('/')[2]}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in rows]
    lines += ["", "## Loading", "", *_loading(repository, files)]
    return "\n".join(lines)


def _facts(tokenizer: Described) -> list[tuple[str, str]]:
    definition = tokenizer.definition
    phase2 = len(definition.merge_ids) - definition.n_phase1_merges
    rows = [
        ("tokenizer", "byte-level BPE" if definition.fence is None else "byte-level SuperBPE"),
        ("vocabulary", f"{definition.vocab_size:,} tokens"),
        ("merges", f"{definition.n_phase1_merges:,}" + (f" of phase 1, {phase2:,} of phase 2" if phase2 else "")),
        ("special tokens", ", ".join(f"`{each}`" for each in definition.special_tokens)),
        ("pattern", definition.pattern.name),
        ("fence of phase 2", "" if definition.fence is None else definition.fence.name),
        ("sha256", formats.identity(definition)),
    ]
    return [(name, value) for name, value in rows if value]


def _training(provenance: dict[str, Any], trained_on: Sequence[str]) -> list[tuple[str, str]]:
    rows = []
    if trained_on:
        rows.append(("training text", _names(trained_on)))
    for phase in ("phase1", "phase2"):
        about = provenance.get(phase) or {}
        facts = [_names(about["text"])] if about.get("text") and not trained_on else []
        facts += [
            f"{about[key]:,} {unit}{'s' * (about[key] != 1)}"
            for key, unit in (("corpus_bytes", "byte"), ("corpus_documents", "document"))
            if isinstance(about.get(key), int)
        ]
        if about.get("rules"):
            facts.append(f"rules {about['rules']}")
        if isinstance(about.get("transition"), int):
            facts.append(f"from {about['transition']:,} tokens")
        if about.get("continued_from"):
            facts.append("continued from another tokenizer")
        if facts:
            rows.append((f"training, phase {phase[-1]}", ", ".join(facts)))
    imported = (provenance.get("imported") or {}).get("format")
    return [*rows, *([("imported from", str(imported))] if imported else [])]


def _names(paths: Sequence[str]) -> str:
    """Names of files, without the folders, which mean nothing to others."""
    return ", ".join(PurePath(path).name or path for path in paths)


def _loading(repository: str, files: Sequence[str]) -> list[str]:
    load = f'.from_pretrained("{repository}")'
    ways = {"superbpe-framework": f"from tokenizer import Tokenizer\n\ntokenizer = Tokenizer{load}"}
    auto = "from transformers import AutoTokenizer\n"
    if formats.HF_FILE in files:
        ways["transformers"] = f"{auto}\ntokenizer = AutoTokenizer{load}"
    else:
        registered = "from tokenizer.hf import register\n\nregister()"
        ways["transformers and superbpe-framework"] = f"{auto}{registered}\ntokenizer = AutoTokenizer{load}"
    if TIKTOKEN in files:
        ways["tiktoken"] = f"""\
import json
from pathlib import Path

import tiktoken
from huggingface_hub import hf_hub_download
from tiktoken.load import load_tiktoken_bpe

about = json.loads(Path(hf_hub_download("{repository}", "{TIKTOKEN}.json")).read_text())
tokenizer = tiktoken.Encoding(
    "{repository}",
    pat_str=about["pat_str"],
    mergeable_ranks=load_tiktoken_bpe(hf_hub_download("{repository}", "{TIKTOKEN}")),
    special_tokens=about["special_tokens"],
)"""
    return [line for name, code in ways.items() for line in (f"With {name}:", "", "```python", code, "```", "")]

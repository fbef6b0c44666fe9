"""Upload of a tokenizer to the Hugging Face Hub, with a model card made from what is stored about it."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from tokenizer import formats
from tokenizer.corpus import seen
from tokenizer.definition import Described, Stored
from tokenizer.durable import new_folder, write_whole
from tokenizer.errors import UserError, needs_extra, shortened
from tokenizer.external.opening import is_repository_id
from tokenizer.formats.folder import content, identity, save
from tokenizer.formats.hf import newest_readers

CARD = "README.md"
TIKTOKEN = "tokenizer.tiktoken"
OPTIONAL = (formats.HF_FILE, TIKTOKEN, f"{TIKTOKEN}.json", seen.FILE)
"""Files that not every upload has. One of another tokenizer would give other ids, or other training text."""


def push(
    tokenizer: Described,
    repository: str,
    *,
    to: Path | str | None = None,
    license: str | None = None,  # noqa: A002  (the card's own name for it)
    private: bool | None = None,
    hashes: bool = False,
) -> str:
    """Upload a tokenizer's files and its card to a repository, which is created if it is missing.

    The files are what `save` writes, and tiktoken's ranks where tiktoken gives the same ids. A card that the repository
    has is kept. Files of the other formats from an earlier upload are deleted if this tokenizer has none.

    Args:
        tokenizer: the tokenizer.
        repository: id of the repository, as "org/name".
        to: write the files into this new folder instead of uploading them.
        license: license for the card; None leaves the field to you.
        private: whether a new repository is private; None for the organization's default.
        hashes: upload the folders and the document hashes of the training text too, with which others can find out
            whether the tokenizer was trained on a text that they have.

    Returns:
        The folder, or the address of the upload.

    Raises:
        UserError: the repository's id is malformed, the folder exists, a package is missing, or the upload fails.
    """
    if not is_repository_id(repository):
        raise UserError(f"{repository!r} is not the id of a repository; write ORGANIZATION/NAME")
    with needs_extra("to upload a tokenizer: "):
        from huggingface_hub import HfApi, ModelCardData
    if not hashes:
        tokenizer = Stored(tokenizer.definition, seen.public(tokenizer.provenance))
    front = ModelCardData(license=license, library_name="superbpe-framework", tags=["tokenizer", "bpe"])
    if to is not None:
        with new_folder(Path(to)) as partial:
            _write(tokenizer, repository, partial, front)
        return str(to)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "tokenizer")
        _write(tokenizer, repository, folder, front)
        api = HfApi()
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                ignore_patterns=[CARD] if api.file_exists(repository, CARD) else None,
                delete_patterns=[*OPTIONAL],  # of an earlier upload; files of this one are kept
                commit_message="Upload tokenizer",
            )
        except Exception as error:  # the HTTP library, and so its errors, depends on the version of huggingface_hub
            raise UserError(
                f"{repository} cannot be uploaded ({shortened(error)}); check the name and the network, and run "
                "`hf auth login` with a token that may write"
            ) from None
    return str(done.commit_url)


def _write(tokenizer: Described, repository: str, folder: Path, front: Any) -> None:
    save(tokenizer, folder)
    with suppress(UserError):  # tiktoken would give other ids
        formats.write(tokenizer, folder / TIKTOKEN, "tiktoken")
    load = f'from_pretrained("{repository}")'
    ways = {"superbpe-framework": f"from tokenizer import Tokenizer\n\ntokenizer = Tokenizer.{load}"}
    auto = "from transformers import AutoTokenizer\n"
    if (folder / formats.HF_FILE).exists():
        ways["transformers"] = f"{auto}\ntokenizer = AutoTokenizer.{load}"
    else:
        registered = f"{auto}from tokenizer.hf import register\n\nregister()"
        ways["transformers and superbpe-framework"] = f"{registered}\ntokenizer = AutoTokenizer.{load}"
    lines = ["---", front.to_yaml(), "---", "", f"# {repository.rpartition('/')[2]}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in _about(tokenizer).items()]
    lines += [line for way, code in ways.items() for line in ("", f"With {way}:", "", "```python", code, "```")]
    if (folder / formats.HF_FILE).exists() and (note := newest_readers(tokenizer)) is not None:
        lines += ["", note]
    if (folder / TIKTOKEN).exists():
        lines += ["", f"`{TIKTOKEN}` is for tiktoken, with the pattern in `{TIKTOKEN}.json`."]
    write_whole(folder / CARD, "\n".join([*lines, ""]))


def _about(tokenizer: Described) -> dict[str, str]:
    """Rows of the card's table. It leaves out what is unknown."""
    definition, provenance = tokenizer.definition, tokenizer.provenance
    phases = {f"training, phase {n}": provenance.get(f"phase{n}") or {} for n in (1, 2)}
    names = [place for text in provenance.get(seen.KEY, {}).get("texts", []) for place in text["places"]]
    rows = {
        "vocabulary": f"{definition.vocab_size:,} tokens",
        "special tokens": ", ".join(f"`{each}`" for each in definition.special_tokens),
        "end of text": f"`{definition.end_of_text}`" if definition.end_of_text else "",
        "pattern": str(definition.pattern),
        "fence of phase 2": str(definition.fence or ""),
        "sha256": identity(content(definition)),
        # Without the folders, which mean nothing to others.
        "training text": ", ".join(dict.fromkeys(PurePath(name).name or name for name in names)),
    }
    for phase, about in phases.items():
        rows[phase] = ", ".join(fact.format(about[key]) for key, fact in _FACTS.items() if about.get(key))
    return {name: value for name, value in rows.items() if value}


_FACTS = {
    "corpus_bytes": "{:,} bytes",
    "corpus_documents": "{:,} documents",
    "merges": "{:,} merges",
    "rules": "rules {}",
    "transition": "from {:,} tokens",
}

"""Tokenizer files of a Hugging Face repository."""

from __future__ import annotations

import re
from pathlib import Path

from tokenizer.errors import UserError, quoted, shortened
from tokenizer.formats import FILE

FILES = (
    *(FILE, "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "*.tiktoken"),
)
"""What is downloaded: the files that some tokenizer is read from, at the top of a repository."""
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def is_repository_id(source: str) -> bool:
    """Whether a string has the form of a repository's id, "org/name" or "name"."""
    return _ID.fullmatch(source) is not None and Path(source).suffix not in (".json", ".model", ".tiktoken", ".txt")


def snapshot(repository: str, revision: str | None = None, cache: Path | str | None = None) -> tuple[Path, str]:
    """Download the tokenizer files of a repository, or find them in the cache.

    Without network, or with HF_HUB_OFFLINE=1, what the cache holds of the revision is used.

    Args:
        repository: Its id.
        revision: A branch, a tag or a commit hash; None for the main branch.
        cache: Folder of the cache; None for the one of `huggingface_hub`.

    Returns:
        The folder, and the hash of the commit.

    Raises:
        UserError: The repository or the revision does not exist or cannot be read, or is not in the cache.
    """
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise UserError(
            f"{quoted(repository)} is not a file or folder here, and to download a repository of that name the "
            "package huggingface_hub is required; install it with: pip install 'superbpe-framework[hf]'"
        ) from None
    what = f"{repository}" + ("" if revision is None else f" at revision {revision}")
    try:
        folder = Path(snapshot_download(repository, revision=revision, cache_dir=cache, allow_patterns=list(FILES)))
    except errors.GatedRepoError:
        raise UserError(
            f"{what} is gated: accept its terms at https://huggingface.co/{repository}, then run `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{quoted(repository)} is neither a file or folder here nor a repository that can be read from "
            "huggingface.co; check the name, and run `hf auth login` if it is private"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"the repository {repository} has no revision {quoted(revision)}") from None
    except errors.LocalEntryNotFoundError:
        raise UserError(
            f"{what} is neither a file or folder here nor in the cache of huggingface_hub, and huggingface.co cannot "
            "be reached; run once with network access (and without HF_HUB_OFFLINE), or name a local folder"
        ) from None
    except (errors.HfHubHTTPError, errors.HFValidationError, ValueError, OSError) as error:
        raise UserError(f"the tokenizer files of {what} cannot be downloaded ({shortened(error)})") from None
    return folder, folder.name

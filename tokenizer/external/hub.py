"""Download of the tokenizer files of a Hugging Face repository."""

from __future__ import annotations

import re
from pathlib import Path

from tokenizer.errors import UserError, needs_extra, quoted, shortened
from tokenizer.formats import FILE

FILES = (
    *(FILE, "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "*.tiktoken"),
)
"""Files to download: those that tokenizers are read from, at the top level of a repository."""
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def is_repository_id(source: str) -> bool:
    """Whether a string has the form of a repository id, "org/name" or "name"."""
    return _ID.fullmatch(source) is not None and Path(source).suffix not in (".json", ".model", ".tiktoken", ".txt")


def snapshot(repository: str, revision: str | None = None, cache: Path | str | None = None) -> tuple[Path, str]:
    """Download the tokenizer files of a repository, or find them in the cache.

    Without a network, or with HF_HUB_OFFLINE=1, cached files of the revision are used.

    Args:
        repository: repository id.
        revision: a branch, a tag or a commit hash; None for the main branch.
        cache: cache folder; None for that of `huggingface_hub`.

    Returns:
        The folder, and the commit hash.

    Raises:
        UserError: the repository or the revision does not exist, cannot be read, or is not in the cache.
    """
    with needs_extra(f"{quoted(repository)} is not a local file or folder, and to download it: "):
        from huggingface_hub import errors, snapshot_download
    what = f"{repository}" + ("" if revision is None else f" at revision {revision}")
    try:
        folder = Path(snapshot_download(repository, revision=revision, cache_dir=cache, allow_patterns=list(FILES)))
    except errors.GatedRepoError:
        raise UserError(
            f"{what} is gated: accept its terms at https://huggingface.co/{repository}, then run `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{quoted(repository)} is neither a local file or folder nor a readable repository on huggingface.co; "
            "check the name, and run `hf auth login` if it is private"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"the repository {repository} has no revision {quoted(revision)}") from None
    except errors.LocalEntryNotFoundError:
        raise UserError(
            f"{what} is neither a local file or folder nor in the cache of huggingface_hub, and huggingface.co cannot "
            "be reached; run once with network access (and without HF_HUB_OFFLINE), or name a local folder"
        ) from None
    except (errors.HfHubHTTPError, errors.HFValidationError, ValueError, OSError) as error:
        raise UserError(f"the tokenizer files of {what} cannot be downloaded ({shortened(error)})") from None
    return folder, folder.name

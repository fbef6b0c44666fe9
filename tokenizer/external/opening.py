"""Opening existing tokenizers by name: a path, a repository, or an encoding of tiktoken.

Our core runs them where it can, other software elsewhere.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizer.corpus import seen
from tokenizer.definition import Definition, Stored
from tokenizer.errors import UserError, did_you_mean, needs_extra, quoted, shortened
from tokenizer.external.software import HuggingFace, SentencePiece
from tokenizer.external.tokenizer import ExternalTokenizer
from tokenizer.files import read_bytes, read_json
from tokenizer.formats.carried import GENERATION_FILE, MAP_FILE, TEMPLATE_FILE, TEMPLATE_FOLDER
from tokenizer.formats.files import detect, named_tokens, read
from tokenizer.formats.folder import FILE
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE
from tokenizer.formats.hf_import import with_named
from tokenizer.formats.tiktoken import PREFIX, named_encoding
from tokenizer.patterns import Pattern, equivalent

_DOWNLOADED = (
    *(FILE, seen.FILE, HF_FILE, HF_CONFIG_FILE, "vocab.json", "merges.txt", "*.tiktoken"),
    *(MAP_FILE, "added_tokens.json", GENERATION_FILE, TEMPLATE_FILE, f"{TEMPLATE_FOLDER}/*.jinja"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model"),
)
"""Files that tokenizers are read from, and those that are carried to what is written."""
_GPT2_CLASSES = ("GPT2", "Bart", "CodeGen", "Deberta", "LED", "Luke", "Mvp", "Roberta", "Whisper")
_CLASSES: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(_GPT2_CLASSES, ((), "gpt2")),
    "GPTNeoX": (("NFC",), "gpt2"),
    "Qwen2": (("NFC",), "digits1"),
}
"""Normalization and pattern of byte-level classes of `transformers` 5, which ignore what tokenizer.json says."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def open_pretrained(
    source: Path | str,
    *,
    revision: str | None = None,
    from_hub: bool = False,
    add_special_tokens: Sequence[str] = (),
    cache: Path | str | None = None,
    pattern: str | Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
    end_of_text: str | None = None,
) -> tuple[Stored | ExternalTokenizer, str | None, tuple[str, ...]]:
    """Open a tokenizer: a path, a repository of the Hugging Face Hub, or an encoding of tiktoken.

    Our core runs byte-level BPE: our folders, tokenizer.json, vocab.json with merges.txt, and tiktoken's ranks. The
    package `sentencepiece` runs SentencePiece models; `tokenizers` runs any other tokenizer.json. Code in a repository
    is never executed.

    Args:
        source: A file, a folder, a repository's id, as "gpt2" or "org/name", or an encoding of tiktoken, as
            "tiktoken:o200k_base". A path that exists takes precedence over a repository.
        revision: Branch, tag or commit hash of the repository.
        from_hub: The source is a repository, even if there is a path of that name.
        add_special_tokens: Strings that must be special tokens; those that are not get new ids after all others.
        cache: Folder for downloads; None for that of `huggingface_hub`.
        pattern: See `tokenizer.formats.read`.
        special_tokens: See `tokenizer.formats.read`.
        end_of_text: Token that ends documents; a string that is not a special token is added as one. By default, the
            tokenizer's own: the `eos_token` of its tokenizer_config.json or special_tokens_map.json, that of a
            SentencePiece model, or `<|endoftext|>`.

    Returns:
        Content for our core, or a tokenizer that other software runs; the commit hash of the repository, None for a
        path; the special tokens that were added after all other ids.

    Raises:
        UserError: the tokenizer does not exist or is damaged, or a package is missing.
    """
    name = str(source)
    path = Path(source)
    commit = None
    options = {"pattern": pattern, "special_tokens": special_tokens}
    given = {option: value for option, value in options.items() if value}
    is_name = name.startswith(PREFIX)
    if not is_name and (from_hub or (is_repository_id(name) and not path.exists())):
        path, commit = snapshot(name, revision, cache)
    elif revision is not None:
        what = "an encoding of tiktoken" if is_name else "a path"
        raise UserError(f"revision={quoted(revision)} is for repositories, but {source} is {what}; leave it out")
    if is_name and given:
        raise UserError(f"{name} has its own pattern and special tokens, so it takes no {next(iter(given))}")
    specials = [*add_special_tokens, *([end_of_text] if end_of_text else [])]
    found = named_encoding(name.removeprefix(PREFIX)) if is_name else _read(path, given, specials)
    if isinstance(found, ExternalTokenizer):
        found.provenance = {"source": name, "revision": commit} | found.provenance
        folder = path if path.is_dir() else path.parent
        own = named_tokens(folder).get("eos_token")
        found.end_of_text = end_of_text or (own if own in found.special_tokens else found.end_of_text)
        return found, commit, tuple(found.added)
    definition = found.definition.with_special_tokens(specials)
    definition = replace(definition, end_of_text=end_of_text or definition.end_of_text)
    _warn_of_other_ids(path, definition)
    added = [string for string, i in definition.special_tokens.items() if i >= found.definition.vocab_size]
    return Stored(definition, found.provenance), commit, tuple(added)


def _warn_of_other_ids(folder: Path, definition: Definition) -> None:
    """Warn if the class that a folder names cuts text otherwise than its tokenizer.json. Nothing is opened for it."""
    if (folder / FILE).exists() or not all((folder / name).is_file() for name in (HF_FILE, HF_CONFIG_FILE)):
        return
    config = read_json(folder / HF_CONFIG_FILE)
    kind = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer")
    if kind not in _CLASSES:
        return
    forms, pattern = _CLASSES[kind]
    own = equivalent(definition.pattern)
    same = own is not None and own.name == pattern and definition.preparation.forms == forms
    if not same or config.get("add_prefix_space") is True:
        warnings.warn(
            f"{folder}: AutoTokenizer of transformers 5 gives other ids than {HF_FILE}, which is followed here: its "
            f"class {kind}Tokenizer has the pattern {pattern}, the normalization {' '.join(forms) or 'none'}, and the "
            f"add_prefix_space of {HF_CONFIG_FILE}",
            stacklevel=3,
        )


def is_repository_id(source: str) -> bool:
    """Whether a string has the form of a repository id, "org/name" or "name"."""
    file = Path(source).suffix in (".json", ".model", ".tiktoken", ".txt")
    return _REPOSITORY.fullmatch(source) is not None and not file


def snapshot(
    repository: str, revision: str | None, cache: Path | str | None = None, patterns: Sequence[str] = _DOWNLOADED
) -> tuple[Path, str]:
    """Folder and commit of files of a repository; `huggingface_hub` caches them, for use offline too.

    Args:
        repository: Id of the repository.
        revision: Branch, tag or commit hash; None for the default branch.
        cache: Folder for downloads; None for that of `huggingface_hub`.
        patterns: Files to download, by default all files of tokenizers.

    Raises:
        UserError: The repository cannot be downloaded and is not in the cache, or a package is missing.
    """
    with needs_extra(f"{quoted(repository)} is not a local file or folder, and to download it: "):
        from huggingface_hub import errors, snapshot_download
    what = f"{repository}" + ("" if revision is None else f" at revision {revision}")
    try:
        folder = snapshot_download(repository, revision=revision, cache_dir=cache, allow_patterns=list(patterns))
    except (errors.HfHubHTTPError, errors.HFValidationError, ValueError, OSError) as error:
        near = did_you_mean(repository, map(str, [*Path(repository).parent.glob("*"), *Path().glob("*")]))
        raise UserError(
            f"{what}{near} is neither a local file or folder nor in the cache of huggingface_hub, and cannot be "
            f"downloaded ({shortened(error.__cause__ or error)}); check the name and the network, accept the terms at "
            f"https://huggingface.co/{repository} if it is gated, and run `hf auth login` if it is private"
        ) from None
    return Path(folder), Path(folder).name


def _read(path: Path, options: dict[str, Any], specials: Sequence[str]) -> Stored | ExternalTokenizer:
    if not path.exists():
        near = did_you_mean(str(path), map(str, path.parent.glob("*")))
        raise UserError(f"{path}{near} does not exist; name a tokenizer file or folder, or a repository (org/name)")
    kind, files = detect(path)
    if kind == "external":
        if options:
            raise UserError(f"{path} was saved by this program, so it takes no {next(iter(options))}")
        found = ExternalTokenizer.load(files[0])
        return ExternalTokenizer(
            found.software,
            special_tokens=[*found.added, *specials],
            end_of_text=found.end_of_text,
            reason=found.reason,
            provenance=found.provenance,
        )
    if kind == "sentencepiece":
        model = SentencePiece(read_bytes(files[0]), str(files[0]))
        return ExternalTokenizer(model, special_tokens=specials, reason="it is a SentencePiece model")
    try:
        return read(path, **options)
    except UserError as error:
        if kind != "hf" or not isinstance(read_json(files[0]).get("model"), dict):
            raise
        reason = str(error)
    try:
        content = with_named(read_json(files[0]), named_tokens(files[0].parent).values(), files[0])
        software = HuggingFace(json.dumps(content).encode(), str(files[0]))
        return ExternalTokenizer(software, special_tokens=specials, reason=reason)
    except UserError as error:
        raise UserError(reason if str(error) == reason else f"{reason}; and {error}") from None

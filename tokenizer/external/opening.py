"""Opening existing tokenizers by name: a path, a repository, or an encoding of tiktoken.

Our core runs them where it can, other software elsewhere.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizer.definition import Stored
from tokenizer.errors import UserError, did_you_mean, needs_extra, quoted, shortened
from tokenizer.external.software import HuggingFace, SentencePiece
from tokenizer.external.tokenizer import ExternalTokenizer
from tokenizer.files import read_bytes, read_json
from tokenizer.formats.files import detect, named_tokens, read
from tokenizer.formats.folder import FILE
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE
from tokenizer.formats.hf_import import with_named
from tokenizer.formats.tiktoken import PREFIX, named_encoding
from tokenizer.patterns import Pattern
from tokenizer.special import SpecialSets

_DOWNLOADED = (
    *(FILE, HF_FILE, HF_CONFIG_FILE, "vocab.json", "merges.txt", "*.tiktoken"),
    *("special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model"),
)
"""Files that tokenizers are read from, at the top level of a repository."""
_PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of `transformers` that follow tokenizer.json; others may replace parts of it."""
_SAMPLE = "It's 1234567 o'CLOCK,\tnaïve café  日本語 🙂\r\n\n  def f(x):\n    return x**2  # I'LL go…  "
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
    name, path, commit = str(source), Path(source), None
    options = {"pattern": pattern, "special_tokens": special_tokens}
    given = {option: value for option, value in options.items() if value}
    is_name = name.startswith(PREFIX)
    if not is_name and (from_hub or (is_repository_id(name) and not path.exists())):
        path, commit = _snapshot(name, revision, cache)
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
        _warn_of_other_ids(path, lambda: found.encode_ordinary(_SAMPLE))
        return found, commit, tuple(found.added)
    definition = found.definition.with_special_tokens(specials)
    definition = replace(definition, end_of_text=end_of_text or definition.end_of_text)
    text = SpecialSets(definition.special_tokens, definition.preparation).ordinary
    _warn_of_other_ids(path, lambda: definition.encoder.encode(_SAMPLE, text))
    added = [string for string, i in definition.special_tokens.items() if i >= found.definition.vocab_size]
    return Stored(definition, found.provenance), commit, tuple(added)


def _warn_of_other_ids(folder: Path, encode: Callable[[], list[int]]) -> None:
    """Warn if the class that a folder names gives other ids in the installed `transformers` than its tokenizer.json."""
    if (folder / FILE).exists() or not all((folder / name).is_file() for name in (HF_FILE, HF_CONFIG_FILE)):
        return
    kind = read_json(folder / HF_CONFIG_FILE).get("tokenizer_class")
    if kind in _PLAIN or find_spec("transformers") is None:
        return
    try:
        import transformers

        opened = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        theirs = opened(_SAMPLE, add_special_tokens=False)["input_ids"]
    except Exception:  # it cannot open the folder, so it gives no ids that could differ
        return
    if theirs != (ours := encode()):
        warnings.warn(
            f"{folder}: AutoTokenizer of transformers {transformers.__version__} gives other ids than {HF_FILE}, which "
            f"is followed here ({len(theirs)} and {len(ours)} for a sample), as the class is {shortened(kind)}",
            stacklevel=3,
        )


def is_repository_id(source: str) -> bool:
    """Whether a string has the form of a repository id, "org/name" or "name"."""
    file = Path(source).suffix in (".json", ".model", ".tiktoken", ".txt")
    return _REPOSITORY.fullmatch(source) is not None and not file


def _snapshot(repository: str, revision: str | None, cache: Path | str | None) -> tuple[Path, str]:
    """Folder and commit of the tokenizer files of a repository; `huggingface_hub` caches them, for use offline too."""
    with needs_extra(f"{quoted(repository)} is not a local file or folder, and to download it: "):
        from huggingface_hub import errors, snapshot_download
    what = f"{repository}" + ("" if revision is None else f" at revision {revision}")
    try:
        folder = snapshot_download(repository, revision=revision, cache_dir=cache, allow_patterns=list(_DOWNLOADED))
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
        raise UserError(f"{reason}; and {error}") from None

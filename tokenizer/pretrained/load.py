"""Loading tokenizers from a path or a repository. Our core runs them where it can, other software elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import patterns
from tokenizer.definition import Definition
from tokenizer.errors import UserError, listed, quoted
from tokenizer.files import read_bytes, read_json
from tokenizer.formats import FILE, HF_CONFIG_FILE, HF_FILE
from tokenizer.interface import TokenizerLike
from tokenizer.patterns import Pattern
from tokenizer.pretrained import external, hub
from tokenizer.pretrained.external import ExternalTokenizer
from tokenizer.pretrained.software import HuggingFace, SentencePiece, Software, word_pieces
from tokenizer.tokenizer import Tokenizer

_WORD_PIECES = "vocab.txt"
_BYT5 = "ByT5Tokenizer"


@dataclass(frozen=True)
class Pretrained:
    """A loaded tokenizer and its origin.

    Attributes:
        tokenizer: run by our core (`Tokenizer`) or by other software (`ExternalTokenizer`).
        source: path or repository id.
        revision: commit hash of the repository; None for a path.
        added: special tokens that were added after all other ids.
    """

    tokenizer: TokenizerLike
    source: str
    revision: str | None
    added: tuple[str, ...]

    def about(self) -> dict[str, Any]:
        """Record for a manifest, as JSON. `reason` is why our core does not run the tokenizer."""
        outside = self.tokenizer if isinstance(self.tokenizer, ExternalTokenizer) else None
        return {
            "source": self.source,
            "revision": self.revision,
            "sha256": self.tokenizer.sha256,
            "vocab_size": self.tokenizer.vocab_size,
            "added_special_tokens": list(self.added),
            "software": None if outside is None else outside.software.version,
            "reason": None if outside is None else outside.reason,
        }


def load_pretrained(
    source: Path | str,
    *,
    revision: str | None = None,
    from_hub: bool = False,
    add_special_tokens: Sequence[str] = (),
    cache: Path | str | None = None,
    pattern: str | Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
    ignore: Collection[str] = (),
) -> Pretrained:
    """Load a tokenizer from a path or the Hugging Face Hub.

    Our core runs byte-level BPE: our folders, tokenizer.json, vocab.json with merges.txt, tiktoken's ranks, and
    ByT5. The package `sentencepiece` runs SentencePiece models; `tokenizers` runs any other tokenizer.json and BERT's
    vocab.txt. Code in a repository is never executed.

    Args:
        source: A file, a folder, or a repository's id, as "gpt2" or "org/name".
        revision: Branch, tag or commit hash, if the source is a repository.
        from_hub: The source is a repository, even if there is a path of that name.
        add_special_tokens: Strings that must be special tokens; those that are not get new ids after all others.
        cache: As in `hub.snapshot`.
        pattern: See `Tokenizer.from_file`.
        special_tokens: See `Tokenizer.from_file`.
        ignore: See `Tokenizer.from_file`.

    Raises:
        UserError: there is no tokenizer, it is damaged, or a package is missing.
    """
    path, commit = Path(source), None
    if not from_hub and (path.exists() or not hub.is_repository_id(str(source))):
        if revision is not None:
            raise UserError(f"revision={quoted(revision)} is for repositories, but {source} is a path; leave it out")
    else:
        path, commit = hub.snapshot(str(source), revision, cache)
    options = {"pattern": pattern, "special_tokens": special_tokens, "ignore": ignore}
    found = _read(path, {name: value for name, value in options.items() if value}, add_special_tokens)
    if isinstance(found, ExternalTokenizer):
        found.provenance = {"source": str(source), "revision": commit} | found.provenance
        return Pretrained(found, str(source), commit, tuple(found.added))
    with_specials = _with_special_tokens(found, add_special_tokens)
    added = [string for string, i in with_specials.special_tokens.items() if i >= found.vocab_size]
    return Pretrained(with_specials, str(source), commit, tuple(added))


def load_saved(folder: Path | str) -> TokenizerLike:
    """Load a folder written by `save` of a `Tokenizer` or an `ExternalTokenizer`.

    Raises:
        UserError: the folder is missing or damaged, or its files were changed.
    """
    if (Path(folder) / external.FILE).exists():
        return ExternalTokenizer.load(folder)
    return Tokenizer.load(folder)


def _read(path: Path, options: dict[str, Any], specials: Sequence[str]) -> Tokenizer | ExternalTokenizer:
    if not path.exists():
        raise UserError(f"{path} does not exist; name a tokenizer file or folder, or a repository such as org/name")
    file = _file(path)
    if file.name == external.FILE:
        if options:
            raise UserError(f"{path} was saved by this program, so it takes no {next(iter(options))}")
        found = ExternalTokenizer.load(file.parent)
        return ExternalTokenizer(
            found.software,
            special_tokens=[*found.added, *specials],
            reason=found.reason,
            provenance=found.provenance,
            software_version=found.software_version,
        )
    if file.name == HF_CONFIG_FILE:
        return _byt5(read_json(file), file)
    if file.name == _WORD_PIECES:
        config = file.with_name(HF_CONFIG_FILE)
        content = word_pieces(read_bytes(file), read_json(config) if config.exists() else {}, str(file))
        return _external(HuggingFace(content, str(file)), "it is WordPiece", specials)
    if file.suffix == ".model" and read_bytes(file)[:1] == b"\n":  # a protocol buffer, not tiktoken's base64
        return _external(SentencePiece(read_bytes(file), str(file)), "it is a SentencePiece model", specials)
    try:
        return Tokenizer.from_file(path, **options)
    except UserError as error:
        if file.suffix != ".json" or not isinstance(model := read_json(file).get("model"), dict):
            raise
        reason = str(error)
    try:
        content = read_json(file)
        if "dropout" in options.get("ignore", ()):
            content["model"] = model | {"dropout": None}
        return _external(HuggingFace(content, str(file)), reason, specials)
    except UserError as error:
        raise UserError(f"{reason}; and {error}") from None


def _file(path: Path) -> Path:
    """The file that determines which software reads a path; the path itself if our core detects its format."""
    if not path.is_dir():
        return path.with_name(external.FILE) if path.name == external.FILE else path
    for name in (FILE, external.FILE, HF_FILE):
        if (path / name).exists():
            return path / name
    config = path / HF_CONFIG_FILE
    if config.exists() and read_json(config).get("tokenizer_class") == _BYT5:
        return config
    if any((path / name).exists() for name in ("merges.txt", "vocab.bpe")):
        return path
    models = sorted(path.glob("*.model"))
    if len(models) > 1:
        raise UserError(f"{path} contains several models ({listed(file.name for file in models)}); name one of them")
    return next((file for file in (*models, path / _WORD_PIECES) if file.exists()), path)


def _external(software: Software, reason: str, specials: Sequence[str]) -> ExternalTokenizer:
    return ExternalTokenizer(software, special_tokens=specials, reason=reason)


def _byt5(config: dict[str, Any], path: Path) -> Tokenizer:
    """ByT5: a few special tokens, then the 256 bytes."""
    if config.get("tokenizer_class") != _BYT5:
        raise UserError(f"{path} does not contain a tokenizer; name its folder, or tokenizer.json")
    specials = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    try:
        for i, token in (config.get("added_tokens_decoder") or {}).items():
            specials[str(token["content"])] = int(i)
        if len(specials) == 3:
            n = int(config.get("extra_ids", 125))
            specials |= {f"<extra_id_{i}>": 259 + i for i in range(n)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({quoted(error)})") from None
    return Tokenizer(
        Definition(
            byte_ids=range(3, 259),
            merge_ids=np.empty((0, 3), np.uint32),
            n_phase1_merges=0,
            pattern=patterns.resolve("none"),
            special_tokens=specials,
        )
    )


def _with_special_tokens(tokenizer: Tokenizer, strings: Sequence[str]) -> Tokenizer:
    """Add special tokens. An added token with the same string becomes special; other strings get new ids."""
    missing = [string for string in strings if string not in tokenizer.special_tokens]
    if not missing:
        return tokenizer
    found = tokenizer.preparation.added_tokens
    new = [string for string in missing if string not in found]
    ids = {string: found[string] for string in missing if string in found}
    ids |= {string: tokenizer.vocab_size + i for i, string in enumerate(new)}
    preparation = replace(
        tokenizer.preparation, added_tokens={string: i for string, i in found.items() if string not in ids}
    )
    special_tokens = tokenizer.special_tokens | ids
    definition = replace(tokenizer.definition, special_tokens=special_tokens, preparation=preparation)
    return Tokenizer(definition, tokenizer.provenance)

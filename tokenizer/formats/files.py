"""Detection of tokenizer formats; reading and writing any of them."""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizer import patterns
from tokenizer.definition import Described, Stored
from tokenizer.durable import new_folder
from tokenizer.errors import UserError, check_choice, listed, quoted
from tokenizer.files import read_bytes, read_json
from tokenizer.formats import carried, folder, gpt2, hf_import, tiktoken
from tokenizer.formats.checks import write_files, writing
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE, hf_json
from tokenizer.patterns import Pattern
from tokenizer.special import END_OF_TEXT

KINDS = ("superbpe", "hf", "tiktoken", "nanochat")
"""Formats that can be written; gpt2 and tekken can only be read."""
OTHER_KINDS = ("external", "sentencepiece")
EXTERNAL_FILE = "external.json"
"""Names the software of a saved tokenizer of `tokenizer.external`."""
_ABOUT = ".json"  # suffix of the file beside NAME.tiktoken with the pattern and special tokens


def read(
    path: Path | str,
    *,
    pattern: str | Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> Stored:
    """Read a tokenizer of any format: see `Tokenizer.from_file`.

    Args:
        path: a tokenizer's folder or file: see the table of `tokenizer.formats`. In a folder with several kinds of
            files, ours takes precedence, then tokenizer.json.
        pattern: for formats without a pattern: GPT-2's files (default gpt2, if their merges fit it) and tiktoken's. The
            name of a superword preset, such as uw-2025, stands for its fence.
        special_tokens: string to id, for tiktoken's files.

    Returns:
        The tokenizer. Its documents end with the `eos_token` of the files beside it (`named_tokens`), if that is one of
        its tokens.

    Raises:
        UserError: the tokenizer does not exist, is damaged, or cannot be imported exactly, or an argument does not
            apply to its format.
    """
    kind, files = detect(Path(path))
    if kind in OTHER_KINDS:
        raise UserError(f"{path} is of the kind {kind}, which is not byte-level BPE; load_pretrained opens it")
    if pattern is not None and kind in ("superbpe", "hf"):
        raise UserError(f"{path} is of the kind {kind}, which takes no pattern")
    if special_tokens is not None and kind != "tiktoken":
        raise UserError(f"{path} is of the kind {kind}, which takes no special_tokens")
    if missing := [file for file in files if not file.exists()]:
        raise UserError(f"{missing[0]} is missing")
    if kind == "superbpe":
        return folder.load(files[0])
    parent = files[0].parent
    fence = f"{pattern}-fence"
    if fence in patterns.NAMES and pattern not in patterns.NAMES:  # a preset, such as uw-2025
        pattern = fence
    named = named_tokens(parent)
    if kind == "hf":
        content = read_json(files[0])
        if "model" not in content and {"config", "vocab"} <= content.keys():
            found = tiktoken.from_tekken(content, files[0])
        else:
            found = hf_import.parse(hf_import.with_named(content, named.values(), files[0]), files[0])
    elif kind == "gpt2":
        added = {i: {"content": string} for string, i in _optional(parent / carried.ADDED_FILE).items()}
        config = {"added_tokens_decoder": added} | _optional(parent / HF_CONFIG_FILE)
        found = gpt2.read(files[0], files[1], pattern, config)
    else:
        found = _read_ranks(files[0], pattern, special_tokens)
    definition = found.definition
    tokens = {*definition.special_tokens, *definition.preparation.added_tokens}
    end = named.pop("eos_token", None)
    if end is not None and (end in tokens or end.encode(errors="replace") in definition.unmerged):
        definition = replace(definition.with_special_tokens([end]), end_of_text=end)
    whole = Path(path).is_dir()
    names = [name for file in files for name in (file.name, file.name + _ABOUT)]
    return carried.with_carried(Stored(definition, found.provenance), parent, whole=whole, read=names)


def named_tokens(folder: Path) -> dict[str, str]:
    """The `bos_token`, `eos_token` and `pad_token` that `transformers` finds in a folder."""
    both = carried.with_map(_optional(folder / HF_CONFIG_FILE), _optional(folder / carried.MAP_FILE))
    named = {name: both.get(name) for name in ("bos_token", "eos_token", "pad_token")}
    strings = {name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()}
    return {name: token for name, token in strings.items() if isinstance(token, str)}


def _optional(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    carried.check_size(path)
    return read_json(path)


def _read_ranks(path: Path, pattern: str | Pattern | None, special_tokens: Mapping[str, int] | None) -> Stored:
    about = path.with_name(path.name + _ABOUT)
    stored = read_json(about) if about.exists() else {}
    pattern = pattern or stored.get("pattern")
    if pattern is None:
        raise UserError(f"{path} contains no pattern; give one with pattern=NAME, such as cl100k, or a regex")
    specials = stored.get("special_tokens", {}) if special_tokens is None else special_tokens
    pairs = specials.items() if isinstance(specials, Mapping) else [(None, None)]
    if not all(isinstance(string, str) and type(i) is int for string, i in pairs):
        raise UserError(f"special_tokens={specials!r:.80} is not a mapping of strings to ids")
    end = next((string for string in specials if string == stored.get("end_of_text")), None)
    return tiktoken.from_ranks(tiktoken.parse(path), pattern=pattern, special_tokens=specials, end_of_text=end)


def detect(path: Path) -> tuple[str, list[Path]]:
    """The kind of a file or a folder, and the files to read. Other software runs the kinds in `OTHER_KINDS`."""
    if not path.exists():
        raise UserError(f"{path} does not exist; it must be a tokenizer file or folder")
    if path.is_dir():
        names = [(folder.FILE,), (EXTERNAL_FILE,), (HF_FILE,), *gpt2.PAIRS]
        single = sorted(file.name for suffix in ("tiktoken", "model") for file in path.glob(f"*.{suffix}"))
        found = next((each for each in names if all((path / name).exists() for name in each)), single)
        if not found or (found is single and len(single) > 1):
            several = f" ({listed(single)} are several)" if single else ""
            known = ", ".join([folder.FILE, HF_FILE, *(" and ".join(pair) for pair in gpt2.PAIRS)])
            raise UserError(f"{path} contains no tokenizer: looked for {known}, one .tiktoken or .model file{several}")
        path = path / found[0]
    if path.name == EXTERNAL_FILE:
        return "external", [path.parent]
    # Mistral names them tokenizer.model.v3. A protocol buffer begins with a line feed, tiktoken's base64 does not.
    if ".model" in path.suffixes and read_bytes(path)[:1] == b"\n":
        return "sentencepiece", [path]
    if path.name == folder.FILE or (path.name == HF_FILE and path.with_name(folder.FILE).exists()):
        return "superbpe", [path.parent]  # which says more about the same tokenizer
    for pair in gpt2.PAIRS:
        if path.name in pair:
            return "gpt2", [path.with_name(name) for name in pair]
    # Llama 3's ranks are a tokenizer.model.
    kind = {".json": "hf", ".tiktoken": "tiktoken", ".model": "tiktoken"}.get(path.suffix)
    if path.suffix == ".gguf":
        raise UserError(f"{path} is a file for llama.cpp; name the folder or the repository that it was made from")
    if kind is None:
        raise UserError(
            f"{path} is not a known tokenizer file: it must be a .json, merges.txt, vocab.bpe, .tiktoken or .model "
            f"file; {hf_import.REMEDY}"
        )
    return kind, [path]


def write(tokenizer: Described, path: Path | str, kind: str) -> list[Path]:
    """Write a tokenizer in another program's format, if that format gives the same ids. The write is atomic.

    Args:
        tokenizer: the tokenizer to write.
        path: a folder; for hf also a file ending in .json; for tiktoken a file ending in .tiktoken.
        kind: one of `KINDS`.

    Returns:
        Paths of the files.

    Raises:
        UserError: the format cannot express the tokenizer, the path does not match the format, or a file already
            exists.
    """
    path = Path(path)
    check_choice("format", kind, KINDS)
    if kind in ("superbpe", "nanochat"):
        files: dict[str, Any] = {}
        if kind == "nanochat":
            tokenizer = Stored(tiktoken.for_nanochat(tokenizer.definition), tokenizer.provenance)
            files = tiktoken.nanochat_files(tokenizer)
        with writing(path), new_folder(path) as partial:
            folder.save(tokenizer, partial)
            write_files(partial, files)
        return sorted(path.iterdir())
    target, files = path, {}
    end = tokenizer.definition.end_of_text if tokenizer.definition.end_of_text != END_OF_TEXT else None
    if kind == "hf":
        if path.suffix in (".tiktoken", ".gguf"):
            raise UserError(f"{path} must be a folder, or end in .json")
        files = {HF_FILE: json.dumps(hf_json(tokenizer), ensure_ascii=False, indent=2)}  # the layout of HF's own `save`
        if path.suffix == ".json":
            target, files = path.parent, {path.name: files[HF_FILE]}
            if end is not None:
                warnings.warn(f"{path} does not say that {quoted(end)} ends documents; a folder does", stacklevel=2)
        else:
            beside = carried.carried(tokenizer)
            files |= beside.files | {HF_CONFIG_FILE: json.dumps(beside.config, indent=2)}
    else:
        if path.suffix != ".tiktoken":
            raise UserError(f"{path} must end in .tiktoken")
        parts = tiktoken.export(tokenizer)
        cut = tokenizer.definition.fence or tokenizer.definition.pattern
        about = {
            "pat_str": parts["pat_str"],
            "special_tokens": parts["special_tokens"],
            "pattern": cut.regex or "none",  # the original regex: pat_str also matches the gaps between its matches
        }
        if end is not None:
            about["end_of_text"] = end
        ranks = "".join(f"{b64encode(token).decode()} {rank}\n" for token, rank in parts["mergeable_ranks"].items())
        target, files = path.parent, {path.name: ranks, path.name + _ABOUT: json.dumps(about, indent=2)}
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder")
    if target == path:
        with writing(path), new_folder(path) as partial:
            write_files(partial, files)
        return [path / name for name in files]
    # Never overwrite. A file with the same content was written by this command before it was killed.
    for name, content in files.items():
        if (target / name).exists() and read_bytes(target / name) != content.encode():
            raise UserError(f"{target / name} already exists; name a new file")
    write_files(target, files)
    return [target / name for name in files]

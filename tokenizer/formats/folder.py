"""Tokenizer folders: our own `superbpe.json`, and Hugging Face's `tokenizer.json` beside it where it is exact."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import patterns
from tokenizer.corpus import seen
from tokenizer.definition import Definition, Described, Stored
from tokenizer.errors import UserError, quoted
from tokenizer.files import SEAL, digest, parse_json, read_bytes, read_json
from tokenizer.formats import carried
from tokenizer.formats.checks import reading, write_files
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE, hf_json
from tokenizer.formats.portable import unportable_part
from tokenizer.patterns import Pattern
from tokenizer.special import END_OF_TEXT, Preparation

FILE = "superbpe.json"
FORMAT_VERSION = 5
_REMEDY = "restore the file or train again"


def content(definition: Definition) -> dict[str, Any]:
    """Everything that determines the ids of a text, as JSON values."""
    known = {
        "mode": definition.mode,
        "pattern": definition.pattern.regex,
        "fence": None if definition.fence is None else definition.fence.regex,
        "byte_ids": list(definition.byte_ids),
        "merges": definition.merge_ids.tolist(),
        "phase1_merges": definition.n_phase1_merges,
        "special_tokens": definition.special_tokens,
    }
    optional = {
        "eligible": definition.eligible,
        "ignore_merges": definition.ignore_merges,
        "end_of_text": None if definition.end_of_text == END_OF_TEXT else definition.end_of_text,
        **definition.preparation.content(),
        "unmerged": [[token.hex(), token_id] for token, token_id in sorted(definition.unmerged.items())],
    }
    # Written only if used, so that the hashes of other tokenizers do not change.
    return known | {name: part for name, part in optional.items() if part}


def identity(stored: Any) -> str:
    """Hash of a definition's `content`."""
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def _seal(about: dict[str, Any]) -> str:
    """Digest of everything but the content, which has its own hash, the identity."""
    return digest({key: value for key, value in about.items() if key not in (SEAL, "content")})


def save(tokenizer: Described, folder: Path, config: dict[str, Any] | None = None) -> None:
    """Write a tokenizer's folder. A `tokenizer.json` that is not exact is not written, so that stock loaders fail.

    Args:
        tokenizer: the tokenizer to write.
        folder: created if missing.
        config: content of `tokenizer_config.json`; None for what `carried` returns.
    """
    definition = tokenizer.definition
    beside = carried.carried(tokenizer)
    texts = {HF_CONFIG_FILE: json.dumps(config or beside.config, indent=2) + "\n"}
    part = unportable_part(definition.fence or definition.pattern)
    if part is not None:
        warnings.warn(
            f"no {HF_FILE} is written: HF's regex engine may interpret {part} in the pattern differently", stacklevel=3
        )
    elif definition.mode == "one-pass":
        texts[HF_FILE] = json.dumps(hf_json(tokenizer), ensure_ascii=False, indent=1) + "\n"
    # Written last: a folder without it is not a tokenizer, and it is rejected beside files of another tokenizer.
    kept = {key: value for key, value in tokenizer.provenance.items() if key != carried.KEY}
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts[FILE] = dumps(Stored(definition, kept), sums)
    read = tokenizer.provenance.get(seen.KEY)
    hashes = {seen.FILE: read.data()} if isinstance(read, seen.Read) and read.hashes is not None else {}
    files = hashes | beside.files | texts
    earlier = {HF_FILE, seen.FILE}
    if config is None and (folder / FILE).exists():  # with a config, `transformers` has just written its own
        # Templates and tokens of the tokenizer that was saved here before would be read as this one's.
        templates = (folder / carried.TEMPLATE_FOLDER).glob("*.jinja")
        theirs = {f"{carried.TEMPLATE_FOLDER}/{path.name}" for path in templates}
        theirs |= {carried.TEMPLATE_FILE, carried.MAP_FILE, carried.ADDED_FILE}
        earlier |= {name for name in theirs if not (folder / name).is_symlink()}
    write_files(folder, files, remove=earlier - files.keys())


def dumps(tokenizer: Described, files: dict[str, str]) -> str:
    """Content of `FILE`."""
    definition, stored = tokenizer.definition, content(tokenizer.definition)
    about = {
        "format": "superbpe-tokenizer",
        "version": FORMAT_VERSION,
        "sha256": identity(stored),
        "files": files,
        "pattern_name": definition.pattern.name,
        "fence_name": None if definition.fence is None else definition.fence.name,
        "provenance": tokenizer.provenance,
        "content": stored,
    }
    about[SEAL] = _seal(about)
    return json.dumps(about) + "\n"


def load(folder: Path) -> Stored:
    """Read and check a tokenizer's folder.

    Raises:
        UserError: files are missing or damaged, or were edited in a way that changes ids.
    """
    path = folder / FILE
    try:
        text = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        other = "; Tokenizer.from_pretrained opens other formats" if folder.exists() else ", for it does not exist"
        raise UserError(f"{folder} is not a tokenizer folder: it has no {FILE}{other}") from None
    found, written = loads(text, path)
    _check_hf_file(folder / HF_FILE, written, found)
    read = found.provenance.get(seen.KEY)
    if isinstance(read, seen.Read):
        found.provenance[seen.KEY] = seen.Read.load(read, folder / seen.FILE)
    return carried.with_carried(found, folder, own=True)


def loads(text: bytes, path: Path) -> tuple[Stored, dict[str, str]]:
    """Read and check the content of `FILE`; returns the tokenizer and the hashes of the folder's other files.

    Raises:
        UserError: the content is damaged, or was edited in a way that changes ids.
    """
    about = parse_json(text, path, _REMEDY)
    if about.get("format") != "superbpe-tokenizer" or about.get("version") != FORMAT_VERSION:
        raise UserError(f"{path} is not a tokenizer of format version {FORMAT_VERSION}; train it again")
    changed = f"{path} was changed after it was written: its {{}} do not match their hash. Restore it or train again"
    if about.get(SEAL) != _seal(about):
        raise UserError(changed.format("names, provenance and files"))
    if identity(about.get("content")) != about.get("sha256"):
        raise UserError(changed.format("mode, patterns, ids, merges or special tokens"))
    with reading(path):  # only a file that was forged has matching hashes and other content than ours
        stored, files = about["content"], dict(about["files"])
        definition = Definition(
            byte_ids=stored["byte_ids"],
            merge_ids=np.array(stored["merges"], dtype=np.uint32).reshape(-1, 3),
            n_phase1_merges=stored["phase1_merges"],
            pattern=_pattern(about["pattern_name"], stored["pattern"]),
            fence=None if stored["fence"] is None else _pattern(about.get("fence_name"), stored["fence"]),
            mode=stored["mode"],
            eligible=stored.get("eligible"),
            special_tokens=stored["special_tokens"],
            ignore_merges=stored.get("ignore_merges", False),
            unmerged={bytes.fromhex(token): token_id for token, token_id in stored.get("unmerged", [])},
            preparation=Preparation.of(stored),
            end_of_text=stored.get("end_of_text"),
        )
        found = Stored(definition, dict(about.get("provenance") or {}))
        read = found.provenance.get(seen.KEY)
        if isinstance(read, dict):
            found.provenance[seen.KEY] = seen.Read.load(read, None)
    if names := sorted(files.keys() - {HF_FILE, HF_CONFIG_FILE}):
        what = f"it names the file {quoted(names[0])}, which no tokenizer folder has"
        raise UserError(f"{path} is damaged: {what}; {_REMEDY}")
    return found, files


def _pattern(name: str | None, regex: str) -> Pattern:
    """A stored pattern. The name is kept only if it still stands for the regex."""
    if name in patterns.NAMES and patterns.resolve(name).regex == regex:
        return patterns.resolve(name)
    return patterns.resolve(regex)


def _check_hf_file(path: Path, written: dict[str, str], tokenizer: Stored) -> None:
    """Reject a tokenizer.json that no longer describes the tokenizer."""
    if HF_FILE not in written and path.exists():
        raise UserError(f"{path} must not exist: tokenizer.json cannot express this tokenizer exactly. Delete it")
    if HF_FILE in written and not path.exists():
        raise UserError(f"{path} is missing; {_REMEDY}")
    if HF_FILE in written and hashlib.sha256(read_bytes(path)).hexdigest() != written[HF_FILE]:
        found, expected = read_json(path, _REMEDY), hf_json(tokenizer)
        if parts := [part for part in expected if part != "version" and found.get(part) != expected[part]]:
            raise UserError(
                f"{path} was changed in its {parts[0]!r}, which would change ids. Restore it, or copy it out of the "
                "folder to use it as it is"
            )

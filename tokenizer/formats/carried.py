"""Settings and files that a tokenizer's folder has beside the definition, carried from a source to what is written.

These are the keys of `tokenizer_config.json` and `special_tokens_map.json`, chat templates and
`generation_config.json`. `collect` reads them into the provenance under `KEY`, so they follow the tokenizer through
training, cutting and extending. `carried` returns what to write. They do not affect the identity of a tokenizer, and
`superbpe.json` does not repeat them: users may edit the files of a folder.

Code is never carried: `auto_map` and Python files are listed as left, like anything else that is not written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tokenizer.corpus import seen
from tokenizer.definition import Definition, Described, Stored
from tokenizer.errors import UserError, listed, quoted, shortened
from tokenizer.files import confined, parse_json, read_text
from tokenizer.formats import renumbering
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE
from tokenizer.special import END_OF_TEXT

KEY = "carried"
"""Key of the provenance."""
MAP_FILE = "special_tokens_map.json"
GENERATION_FILE = "generation_config.json"
TEMPLATE_FILE = "chat_template.jinja"
ADDED_FILE, _ADDED_KEY = "added_tokens.json", "added_tokens_decoder"
TEMPLATE_FOLDER = "additional_chat_templates"
_TEMPLATE_KEY = "chat_template"

_DEFAULTS: dict[str, Any] = {"model_max_length": 10**30, "clean_up_tokenization_spaces": False}
_CLASS = "PreTrainedTokenizerFast"
_CLASSES = (_CLASS, "TokenizersBackend", "SuperBPETokenizerFast")
"""Classes without defaults of their own."""
_READ = {
    *("superbpe.json", "external.json", "manifest.json", seen.FILE, HF_FILE, HF_CONFIG_FILE, MAP_FILE),
    *(ADDED_FILE, "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"),
    *("tokenizer.tiktoken", "tokenizer.tiktoken.json", GENERATION_FILE, TEMPLATE_FILE),
}
"""Files that tokenizers are read from, or that we write."""
_REPLACED = {
    *("tokenizer_class", _ADDED_KEY, "name_or_path", "special_tokens_map_file", "tokenizer_file"),
    *("vocab_file", "merges_file", "superbpe_file", "fast_tokenizer_files", "files_loaded", "backend", "is_local"),
    *("local_files_only", "transformers_version"),
}
"""Keys that the definition or the files of a folder replace."""
_LEFT = {
    *("auto_map", "trust_remote_code", "code_revision", "init_inputs", "tokenizer_object", "tokenizer", "superbpe"),
    *("vocab", "merges", "gguf_file", "post_processor", "fix_mistral_regex", "tokenizer_type"),
}
"""Keys that name code, or with which `transformers` would build another tokenizer."""
_CHANGES_TEXT = ("add_prefix_space", "do_lower_case")
_TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_MOST_BYTES = 1 << 24
"""Size of the largest file that is read. The largest real ones have about a megabyte."""
_DEEPEST = 100


class Carried(NamedTuple):
    """Content to write beside a definition.

    Attributes:
        config: content of `tokenizer_config.json`.
        files: contents of the other files, by name with `/`.
        left: phrases that name what the source has and the result does not.
    """

    config: dict[str, Any]
    files: dict[str, str]
    left: list[str]


def with_carried(stored: Stored, folder: Path, **options: Any) -> Stored:
    """Add what `collect` finds to the provenance; options are as for `collect`."""
    provenance = {key: value for key, value in stored.provenance.items() if key != KEY}
    found = collect(folder, stored.definition, **options)
    return Stored(stored.definition, provenance | ({KEY: found} if any(found.values()) else {}))


def collect(
    folder: Path, definition: Definition, *, own: bool = False, whole: bool = True, read: Collection[str] = ()
) -> dict[str, Any]:
    """Read what a folder has beside a definition, as JSON for the provenance under `KEY`.

    A file that is damaged, too large, or a link that leaves the folder is listed as left.

    Args:
        folder: the folder.
        definition: the tokenizer's definition.
        own: the folder is ours, so values that we write by default are not settings of the user.
        whole: the source is the whole folder, so its other files are listed as left.
        read: names of files that the tokenizer was read from.
    """
    left: list[str] = []
    parsed: dict[str, dict[str, Any]] = {HF_CONFIG_FILE: {}, MAP_FILE: {}, ADDED_FILE: {}, GENERATION_FILE: {}}
    files: dict[str, str] = {}
    templates = sorted(f"{TEMPLATE_FOLDER}/{path.name}" for path in (folder / TEMPLATE_FOLDER).glob("*.jinja"))
    for name in (*parsed, TEMPLATE_FILE, *templates):
        with _listed_if_damaged(left):
            if (text := _text(folder, name)) is None:
                continue
            if name in parsed:
                content = parse_json(text, folder / name)
                if name == GENERATION_FILE and _is_deep(content):
                    raise UserError(f"{name}, which is nested more than {_DEEPEST} deep")
                parsed[name] = content
            if name not in (HF_CONFIG_FILE, MAP_FILE, ADDED_FILE):
                files[name] = text
    config = with_map(parsed[HF_CONFIG_FILE], parsed[MAP_FILE])
    settings = _settings(config, _defaults(definition) if own else _DEFAULTS, left)
    kind = config.get("tokenizer_class")
    if kind in _CLASSES and not own:
        settings = {"bos_token": None, "pad_token": None} | settings  # these classes have none by default
    if isinstance(kind, str) and kind not in _CLASSES:
        left.append(f"the defaults of {quoted(kind)}, since the class that is written is {_CLASS}")
    added = config.get(_ADDED_KEY)
    strings = map(_string, added.values()) if isinstance(added, dict) else ()
    unknown = {*strings, *parsed[ADDED_FILE]} - {*definition.special_tokens, *definition.preparation.added_tokens}
    if unknown:
        of_vocab = {*definition.vocab}
        unknown = {string for string in unknown if string.encode(errors="replace") not in of_vocab}
    if unknown:
        left.append(f"the added tokens {listed(map(quoted, sorted(unknown)))}, which the tokenizer's own file lacks")
    if whole:
        with _listed_if_damaged(left):
            entries = [*folder.iterdir(), *(folder / TEMPLATE_FOLDER).glob("*")]
            known = {*_READ, *read, *templates, *([TEMPLATE_FOLDER] if (folder / TEMPLATE_FOLDER).is_dir() else [])}
            others = {path.relative_to(folder).as_posix() for path in entries if not path.name.startswith(".")}
            left += [name if name.isprintable() else repr(name) for name in sorted(others - known)]
    tokens = {str(i): _token(definition, i) for i in renumbering.ids_in(parsed[GENERATION_FILE], renumbering.is_id)}
    return {"config": settings, "files": files, "ids": tokens, "left": left}


def _settings(config: dict[str, Any], defaults: dict[str, Any], left: list[str]) -> dict[str, Any]:
    """The keys that neither the definition nor a default replaces; those that are not carried are added to `left`."""
    settings = {}
    for key, value in config.items():
        if _is_deep(value):
            left.append(f"{quoted(key)} of {HF_CONFIG_FILE}, which is nested more than {_DEEPEST} deep")
        elif key in _LEFT or key.startswith("_") or (key in _CHANGES_TEXT and value):
            left.append(f"{key} of {HF_CONFIG_FILE}")
        elif key not in {*_REPLACED, *_CHANGES_TEXT} and (key not in defaults or defaults[key] != value):
            settings[key] = value
    return settings


def collected(tokenizer: Described) -> dict[str, Any]:
    """The result of `collect` for a tokenizer; empty parts if it comes from no folder."""
    return tokenizer.provenance.get(KEY) or {"config": {}, "files": {}, "ids": {}, "left": []}


def carried(tokenizer: Described) -> Carried:
    """Return the configuration and the files to write beside a definition.

    Without a class in the configuration, `transformers` guesses one and may give wrong ids. By default, documents begin
    and end with the end of text, and padding is masked.
    """
    definition = tokenizer.definition
    found = collected(tokenizer)
    config, files, left = _defaults(definition), dict(found["files"]), list(found["left"])
    known = {*definition.special_tokens, *definition.preparation.added_tokens}
    for key, value in found["config"].items():
        kept, unknown = _known_tokens(key, value, known)
        left += [f"{key} {quoted(token)}, which is not a token here" for token in unknown]
        is_end = key == "eos_token" and (value is not None or definition.end_of_text not in (None, END_OF_TEXT))
        if not is_end and not (unknown and kept is None):
            config[key] = kept
    if any(_token(definition, int(i)) != token for i, token in found["ids"].items()):
        del files[GENERATION_FILE]
        left.append(f"{GENERATION_FILE}, whose ids are other tokens here")
    return Carried(config, files, left)


def chat_template(parts: Carried) -> dict[str, Any]:
    """The chat templates of the files, as `transformers` takes them: they replace the key of the configuration."""
    found = {}
    for file, text in parts.files.items():
        if file != GENERATION_FILE:
            name = "default" if file == TEMPLATE_FILE else Path(file).stem
            found[name] = text.replace("\r\n", "\n").replace("\r", "\n")  # as in a file opened as text
    if not found:
        return {}
    return {_TEMPLATE_KEY: found["default"] if found.keys() == {"default"} else found}


def without_generation(tokenizer: Described) -> dict[str, Any]:
    """The result of `collect` for a tokenizer that is written beside a model with its own `generation_config.json`."""
    found = collected(tokenizer)
    if GENERATION_FILE not in found["files"]:
        return found
    files = {name: text for name, text in found["files"].items() if name != GENERATION_FILE}
    left = [*found["left"], f"{GENERATION_FILE} of the tokenizer, since the model has its own"]
    return found | {"files": files, "ids": {}, "left": left}


def names(tokenizer: Described) -> list[str]:
    """Names of the settings and files that are carried, except `eos_token`, which is part of the definition.

    Formats without a place for them leave them.
    """
    found = collected(tokenizer)
    return [name for name in (*found["files"], *found["config"]) if name != "eos_token"]


def with_new_ids(found: dict[str, Any], new_ids: Mapping[int, int]) -> dict[str, Any]:
    """The result of `collect` for a tokenizer whose tokens get new ids: those in `generation_config.json` change.

    A file that names an id without a token is listed as left.
    """
    if GENERATION_FILE not in found["files"]:
        return found
    files = {name: text for name, text in found["files"].items() if name != GENERATION_FILE}
    ids = {int(i): token for i, token in found["ids"].items() if int(i) >= 0}  # older folders have -1, too
    if lost := sorted(ids.keys() - new_ids.keys()):
        left = [*found["left"], f"{GENERATION_FILE}, which names the id {lost[0]}, but no token has it"]
        return found | {"files": files, "ids": {}, "left": left}
    generation = json.loads(found["files"][GENERATION_FILE])
    renumbered = renumbering.with_new_ids(generation, renumbering.is_id, new_ids.__getitem__)
    files[GENERATION_FILE] = json.dumps(renumbered, indent=2, ensure_ascii=False) + "\n"
    return found | {"files": files, "ids": {str(new_ids[i]): token for i, token in ids.items()}}


def merged(model: dict[str, Any], tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Combine what was collected in the folders of a model and of a tokenizer that replaces the model's own.

    The tokenizer's settings take precedence, except for `generation_config.json`, which is the model's.
    """
    has_template = _TEMPLATE_KEY in tokenizer["config"] or tokenizer["files"].keys() - {GENERATION_FILE}
    from_model = {GENERATION_FILE} if has_template else model["files"].keys()
    return {
        "config": model["config"] | tokenizer["config"],
        "files": tokenizer["files"] | {name: text for name, text in model["files"].items() if name in from_model},
        "ids": model["ids"] if GENERATION_FILE in model["files"] else tokenizer["ids"],
        "left": list(dict.fromkeys([*model["left"], *tokenizer["left"]])),
    }


def with_map(config: dict[str, Any], tokens: dict[str, Any]) -> dict[str, Any]:
    """`tokenizer_config.json` with the tokens of `special_tokens_map.json`, in the precedence of `transformers`."""
    return tokens | config if _ADDED_KEY in config else config | tokens


def check_size(path: Path) -> None:
    """Reject a file that is too large for settings or a template."""
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise UserError(f"{path} has {size:,} bytes; at most {_MOST_BYTES:,} are read. Is it the right file?")


def _defaults(definition: Definition) -> dict[str, Any]:
    """Content of the `tokenizer_config.json` of a tokenizer without settings of the user."""
    end = definition.end_of_text
    tokens = {} if end is None else dict.fromkeys(("bos_token", "eos_token", "pad_token"), end)
    return {"tokenizer_class": _CLASS, **_DEFAULTS, **tokens}


@contextmanager
def _listed_if_damaged(left: list[str]) -> Iterator[None]:
    """Add an error of reading in the block to `left`."""
    try:
        yield
    except UserError as error:
        left.append(shortened(error))
    except OSError as error:
        left.append(f"{error.filename} cannot be read ({error.strerror})")


def _text(folder: Path, name: str) -> str | None:
    """The text of a file; None if there is none.

    A link must stay in the folder, or in the cache of `huggingface_hub` that the folder is a snapshot of: a push would
    publish any other file that it points to.
    """
    path = confined(folder, name)
    if not path.is_symlink() and not path.exists():
        return None
    inside, target = folder.resolve(), Path(os.path.realpath(path, strict=True))
    if not target.is_relative_to(inside) and target.parent != inside.parent.parent / "blobs":
        raise UserError(f"{path} is a link to a file outside the folder; copy the file")
    check_size(path)
    return read_text(path)


def _known_tokens(key: str, value: Any, known: set[str]) -> tuple[Any, list[Any]]:
    """A setting without the tokens that the tokenizer lacks, to which `transformers` would give new ids; and those.

    Tokens are written as strings: their flags are in `tokenizer.json`.
    """
    if key in _TOKEN_LISTS and isinstance(value, list):
        strings = [_string(token) for token in value]
        return [string for string in strings if string in known], [each for each in strings if each not in known]
    if key in _TOKEN_LISTS and isinstance(value, dict):
        named = {name: _string(token) for name, token in value.items()}
        kept = {name: string for name, string in named.items() if string in known}
        return kept, [string for string in named.values() if string not in known]
    if key.endswith("_token") and isinstance(value, str | dict):
        string = _string(value)
        return (string, []) if string in known else (None, [string])
    return value, []


def _string(token: Any) -> str:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else repr(token)


def _is_deep(value: Any) -> bool:
    """Whether a JSON value is nested so deeply that writing it could exceed Python's limit of recursion."""
    level = [value]
    for _ in range(_DEEPEST):
        lists = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [inner for each in lists for inner in each]
        if not level:
            return False
    return True


def _token(definition: Definition, token_id: int) -> str | None:
    """The bytes of a token in hexadecimal; None if there is no such id."""
    vocab = definition.vocab
    return vocab[token_id].hex() if 0 <= token_id < len(vocab) else None

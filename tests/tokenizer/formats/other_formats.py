"""Small files of other programs, for tests."""

import hashlib
import json

from tokenizer.definition import printable
from tokenizer.files import digest

TOKENS = {b"ab": 256, b"abc": 257, b"bc": 258, b"xyz": 259}  # nothing makes xyz


def hf_content(**change):
    """A small tokenizer.json; `change` replaces parts of it, `model_...` of its model."""
    model = {key[6:]: value for key, value in change.items() if key.startswith("model_")}
    vocab = {printable(bytes([i])): i for i in range(256)} | {printable(token): i for token, i in TOKENS.items()}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        **dict.fromkeys(("pre_tokenizer", "post_processor", "decoder"), byte_level(use_regex=True)),
        "model": {"type": "BPE", "vocab": vocab, "merges": ["a b", "ab c", "b c"], "ignore_merges": False} | model,
    } | {key: value for key, value in change.items() if not key.startswith("model_")}


def hf_file(tmp_path, **change):
    """The path of such a file."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(hf_content(**change)))
    return path


def write_gpt2(tokenizer, folder, header="#version: 0.2\n"):
    """Writes vocab.json and merges.txt."""
    folder.mkdir(exist_ok=True)
    specials = {i: string for string, i in tokenizer.special_tokens.items()}
    names = [specials.get(i) or printable(token) for i, token in enumerate(tokenizer.vocab)]
    merges = [f"{printable(left)} {printable(right)}\n" for left, right in tokenizer.merges]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text(header + "".join(merges))


def added(string, token_id, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": string} | plain | flags


def split(regex, behavior="Isolated", **change):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False} | change


def byte_level(*, use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sequence(*parts, use_regex=False):
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level(use_regex=use_regex)]}


def edit(path, change):
    """Reads a JSON file, lets `change` alter it, and writes it again."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def forge(folder, change):
    """Changes superbpe.json and makes its hashes fit, as a careful forger would."""

    def alter(about):
        change(about)
        about["sha256"] = hashlib.sha256(json.dumps(about["content"], sort_keys=True).encode()).hexdigest()
        about["seal"] = digest({key: value for key, value in about.items() if key not in ("seal", "content")})

    edit(folder / "superbpe.json", alter)

r"""tiktoken's ranks: a file of base64 tokens and ranks; the pattern and special tokens are stored beside it.

tiktoken merges any two neighbours that together spell a token, lowest rank first, and a whole piece that is a token
becomes that token directly. The first rule is equivalent to a list with one merge per token: the two parts that the
token's own bytes merge into (`recover_merges` in native/src/encode/rules.rs has the proof). The second rule is
`ignore_merges`.
"""

from __future__ import annotations

import base64
import io
import pickle
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import _native, patterns
from tokenizer.definition import MOST_IDS, NO_TOKEN, Definition, Described, Stored, missing_byte
from tokenizer.errors import UserError, check_choice, needs_extra, quoted, shortened
from tokenizer.files import read_text
from tokenizer.formats.checks import reading
from tokenizer.formats.cuts import COVERING
from tokenizer.formats.portable import may_be_empty
from tokenizer.patterns import Pattern

_FIRST_OF_TEKKEN = {"<unk>": 0, "<s>": 1, "</s>": 2}
"""The first special tokens of a tekken.json that names none."""
PREFIX = "tiktoken:"
"""Start of a source that names an encoding of tiktoken."""
NANOCHAT = (
    *("<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|assistant_end|>"),
    *("<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>"),
)
"""The special tokens that nanochat requires."""


def parse(path: Path) -> dict[bytes, int]:
    """Ranks of a .tiktoken file.

    Raises:
        UserError: the file is missing or damaged.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line or re.match(r"=\s", line):  # Whisper's file has an empty token, which no text contains
            continue
        found = re.fullmatch(r"(\S+)\s+([0-9]+)\s*", line)  # int() also takes signs and underscores
        spelled = None
        with suppress(ValueError):
            spelled = base64.b64decode(found[1], validate=True) if found else None
        if found is None or spelled is None:
            raise UserError(f"{path}, line {number}: {quoted(line[:80])} is not a base64 token and its rank")
        if spelled in ranks or not spelled:
            raise UserError(f"{path}, line {number}: the token {quoted(spelled)} is empty or a duplicate")
        ranks[spelled] = int(found[2])
    return ranks


def from_ranks(
    ranks: Mapping[bytes, int],
    *,
    pattern: str | Pattern,
    special_tokens: Mapping[str, int] | None = None,
    end_of_text: str | None = None,
) -> Stored:
    """Build the tokenizer that gives tiktoken's ids.

    Args:
        ranks: bytes of each token to its rank, which is its id.
        pattern: the name of a pattern, or tiktoken's `pat_str`. Text that a regex does not match forms separate pieces;
            tiktoken drops it.
        special_tokens: string to id.
        end_of_text: the special token that ends a document.

    Raises:
        UserError: a byte has no token, or a rank is a duplicate or out of range.
    """
    if wrong := [token for token, rank in ranks.items() if not 0 <= rank < MOST_IDS]:
        raise UserError(
            f"the rank {ranks[wrong[0]]} of {quoted(wrong[0])} is out of range: ranks are ids, from 0 to {MOST_IDS - 1}"
        )
    if (pair := prefix_pair(special_tokens or {})) is not None:
        warnings.warn(
            f"the special token {pair[0]!r} is a prefix of {pair[1]!r}: where both match, the longer one is found "
            "here, but tiktoken may find the shorter one",
            stacklevel=2,
        )
    ordered = sorted(ranks, key=ranks.__getitem__)
    if missing := missing_byte(lambda byte: bytes([byte]) in ranks):
        raise UserError(f"the ranks are not byte-level: {missing}")
    # tiktoken's pat_str may be another spelling of a named pattern. Use the named one, which is portable.
    pattern = patterns.equivalent(pattern) or patterns.resolve(pattern)
    ids = np.array([ranks[token] for token in ordered], dtype=np.int64)
    parts = _native.Encoder.recover_merges(ordered).reshape(-1, 2)
    made = parts[:, 0] != np.iinfo(np.uint32).max
    merges = np.column_stack([ids[parts[made]], ids[made]])
    definition = Definition(
        byte_ids=[ranks.get(bytes([byte]), NO_TOKEN) for byte in range(256)],
        merge_ids=merges.astype(np.uint32),
        n_phase1_merges=len(merges),
        pattern=pattern,
        special_tokens=dict(special_tokens or {}),
        ignore_merges=True,
        unmerged={
            token: ranks[token] for token, is_made in zip(ordered, made, strict=True) if len(token) > 1 and not is_made
        },
        end_of_text=end_of_text,
    )
    return Stored(definition, {"imported": {"format": "tiktoken"}})


def from_tekken(content: Mapping[str, Any], path: Path) -> Stored:
    """Build the tokenizer of Mistral's tekken.json: special tokens, and after them tiktoken's ranks.

    Raises:
        UserError: the file is damaged; as for `from_ranks`.
    """
    with reading(path):
        config = content["config"]
        ranks = dict[bytes, int]()
        n_tokens, first = config["default_vocab_size"], config["default_num_special_tokens"]
        for entry in content["vocab"]:
            if entry["rank"] < n_tokens - first:
                ranks[base64.b64decode(entry["token_bytes"], validate=True)] = first + entry["rank"]
        if len(ranks) != n_tokens - first:
            raise UserError(f"{path} is damaged: it has {len(ranks)} different tokens, not {n_tokens - first}")
        named = content.get("special_tokens") or []
        specials = {entry["token_str"]: entry["rank"] for entry in named} or _FIRST_OF_TEKKEN
        end = "</s>" if "</s>" in specials else None
        found = from_ranks(ranks, pattern=config["pattern"], special_tokens=specials, end_of_text=end)
    return found._replace(provenance={"imported": {"format": "tekken"}})


def named_encoding(name: str) -> Stored:
    """Build the tokenizer of one of tiktoken's encodings, which tiktoken downloads, or finds in its cache.

    Raises:
        UserError: tiktoken is not installed, has no such encoding, or cannot download it.
    """
    with needs_extra():
        import tiktoken
    check_choice("encoding", name, tiktoken.list_encoding_names())
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:  # no network, no such address, or another content
        raise UserError(
            f"tiktoken cannot load {name} ({shortened(error)}); run once with network access, or set "
            "TIKTOKEN_CACHE_DIR to a folder that contains it"
        ) from None
    return from_ranks(encoding._mergeable_ranks, pattern=encoding._pat_str, special_tokens=encoding._special_tokens)


def export(tokenizer: Described) -> dict[str, Any]:
    """Return the `pat_str`, `mergeable_ranks` and `special_tokens` with which tiktoken gives the same ids.

    Raises:
        UserError: tiktoken cannot give the same ids; the message names the reason.
    """
    definition = tokenizer.definition
    if (why := next(_differences(definition), None)) is not None:
        known = "hf or superbpe" if definition.mode == "one-pass" else "superbpe"
        raise UserError(f"the tokenizer cannot be written for tiktoken: {why}. Write it as {known}")
    ranks = {definition.vocab[i]: i for i in definition.ordinary_ids().tolist()}
    return {
        "pat_str": covering(definition.fence or definition.pattern),
        "mergeable_ranks": dict(sorted(ranks.items(), key=lambda item: item[1])),
        "special_tokens": dict(definition.special_tokens),
    }


def for_nanochat(definition: Definition) -> Definition:
    """Add the missing ones of nanochat's special tokens after all ids; each document begins with `<|bos|>`."""
    return replace(definition.with_special_tokens(NANOCHAT), end_of_text=NANOCHAT[0])


def nanochat_files(tokenizer: Described) -> dict[str, bytes]:
    """The files `tokenizer.pkl`, a pickled `tiktoken.Encoding`, and `token_bytes.pt`, the bytes of each token.

    Raises:
        UserError: tiktoken or PyTorch is not installed; as for `export`.
    """
    parts = export(tokenizer)
    with needs_extra("the files of nanochat: "):
        import tiktoken
        import torch
    encoding = tiktoken.Encoding("superbpe", **parts)
    lengths = torch.zeros(encoding.n_vocab, dtype=torch.int32)  # 0 for special tokens, which its metric leaves out
    for token, i in parts["mergeable_ranks"].items():
        lengths[i] = len(token)
    saved = io.BytesIO()
    torch.save(lengths, saved)
    return {"tokenizer.pkl": pickle.dumps(encoding), "token_bytes.pt": saved.getvalue()}


def _differences(definition: Definition) -> Iterator[str]:
    """Reasons for which tiktoken would give other ids."""
    vocab, preparation = definition.vocab, definition.preparation
    if definition.mode != "one-pass":
        yield "it is two-pass"
    if preparation.forms:
        yield f"it normalizes text ({' + '.join(preparation.forms)})"
    if added := preparation.added_tokens:
        yield f"it has added tokens that are found in any text, such as {quoted(min(added))}"
    if (pair := prefix_pair(definition.special_tokens)) is not None:
        yield f"its special token {pair[0]!r} is a prefix of {pair[1]!r}, and tiktoken may find the shorter"
    # tiktoken also merges two parts without a merge here if together they spell a token. Its merges equal ours exactly
    # if no token's own bytes end up as two parts.
    parts = definition.encoder.tokens_in_tokens()
    products = definition.applied_merges()[:, 2]
    if len(wrong := np.flatnonzero(np.diff(products) < 0)):
        first, second = (quoted(vocab[i]) for i in products[wrong[0] : wrong[0] + 2])
        yield f"ids are ranks there, and {second} has a lower id than {first}, which is merged before it"
    ordinary = definition.ordinary_ids()
    if len(wrong := ordinary[parts[ordinary] == 2]):
        yield f"merges leave {quoted(vocab[wrong[0]])} in two parts, which tiktoken would join because it is a token"
    if not definition.ignore_merges and len(wrong := ordinary[parts[ordinary] > 1]):
        token = quoted(vocab[wrong[0]])
        yield f"merges never produce the token {token}, but in tiktoken a whole pretoken that is a token becomes it"


def prefix_pair(special_tokens: Collection[str]) -> tuple[str, str] | None:
    """A special token and a longer one that starts with it; None if there is no such pair.

    tiktoken searches for special tokens with a regex that has one alternative per token, in hash table order, and the
    first matching alternative wins. Here, as in HF, the longest match wins.
    """
    ordered = sorted(special_tokens)  # strings with a common prefix are adjacent
    return next(((one, other) for one, other in pairwise(ordered) if other.startswith(one)), None)


def covering(pattern: Pattern) -> str:
    r"""A regex that matches a pattern's matches and the gaps between them, which tiktoken would drop.

    A gap extends to the next character at which the pattern matches.

    Raises:
        UserError: the pattern cannot be written as a single regex that matches all text.
    """
    regex = pattern.regex
    if (known := patterns.equivalent(regex)) is not None and known.regex in COVERING:
        return regex
    if not regex:
        return r"[\s\S]+"
    if "\n" in regex:
        raise UserError(
            f"the pattern {pattern} cannot be written for tiktoken: it is a sequence of regexes, and tiktoken takes one"
        )
    if may_be_empty(regex):
        raise UserError(
            f"the pattern {pattern} cannot be written for tiktoken: it can match the empty string between two "
            "characters, which cuts the text here but not in tiktoken"
        )
    return rf"{regex}|(?:(?!{regex})[\s\S])+"

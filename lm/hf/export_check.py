"""Verify that an exported folder gives the same logits, ids and text in `transformers`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lm.data.shards import END_OF_TEXT
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.model.transformer import Transformer
    from tokenizer.tokenizer import Tokenizer

TOLERANCE = 1e-4
"""Largest difference of two logits, relative to the largest logit; fp32 sums in another order differ by about 1e-6."""
_ROWS = 4
_POSITIONS = 48  # per row, to bound memory with large vocabularies
_HOSTILE = (
    "",
    " ",
    "\n",
    "\r\n\r\n  \t x",
    "  leading and trailing  ",
    "don't DON'T I'LL we’ve 'tis",
    "1234567890 3.14159 1,000,000 ２０２６",
    "naïve café — 東京都 🙂👨‍👩‍👧‍👦 e\u0301 \u200d\ufeff",
    "def f(x):\n    return {'a': [x ** 2, -1]}  # done\n",
    "\x00\x1f\x7f\x85\u2028\u3000",
    "a" * 300,
    "of the of the of the of the",
    "https://example.org/?q=1&r=%20#top",
    "ÀÉÎ ΑΒΓ абв עברית العربية हिन्दी ไทย 한국어",
)


def probes(tokenizer: Tokenizer, seed: int = 0) -> list[str]:
    """Texts that exercise a tokenizer: all its tokens in random order, random Unicode, special and hostile strings."""
    rng = random.Random(seed)
    specials = list(tokenizer.special_tokens)
    special_ids = set(tokenizer.special_tokens.values())
    tokens = [token for i, token in enumerate(tokenizer.vocab) if token and i not in special_ids]
    texts = list(_HOSTILE)
    for _ in range(2):
        rng.shuffle(tokens)
        rows = (tokens[start : start + 64] for start in range(0, len(tokens), 64))
        texts += [b"".join(row).decode(errors="replace") for row in rows]
    for _ in range(100):
        code_points = (rng.randrange(0x110000 if rng.random() < 0.3 else 0x3000) for _ in range(rng.randint(1, 60)))
        texts.append("".join(chr(c) for c in code_points if not 0xD800 <= c < 0xE000))
    texts += [f"{rng.choice(texts)}{special}{rng.choice(texts)}" for special in specials for _ in range(4)]
    return texts


def validate(model: Transformer, tokenizer: Tokenizer, folder: Path, texts: list[str], note: str) -> dict[str, Any]:
    """Compare an exported folder with its model and tokenizer.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: The exported folder.
        texts: Texts on which ids, decoded text and logits are compared.
        note: Empty if `AutoTokenizer` must open the folder; otherwise it must fail.

    Returns:
        Fields of `lm.hf.export.Exported`.

    Raises:
        UserError: If anything differs.
    """
    rows, positions = _rows(model, tokenizer, texts)
    found, theirs = _ask_fresh_process(folder, {"rows": rows, "positions": positions, "texts": texts})
    ours = _logits(model, rows, positions)
    if found["loading"]:
        raise UserError(f"transformers does not load all weights of the exported model: {found['loading']}")
    difference = _difference(ours, theirs)
    end = tokenizer.special_tokens[END_OF_TEXT]
    expected = [[end, *tokenizer.encode(text, allowed_special="all")] for text in texts]
    if not note:
        if "tokenizer_error" in found:
            raise UserError(f"AutoTokenizer cannot open the exported folder ({found['tokenizer_error']})")
        _compare_texts(tokenizer, texts, expected, found["ids"], found["decoded"])
    elif "tokenizer_error" not in found:
        raise UserError(
            "AutoTokenizer opens the exported folder although this tokenizer cannot be written as tokenizer.json, so "
            "it would give other ids; try another version of transformers"
        )
    else:
        from tokenizer.hf.tokenizer import SuperBPETokenizerFast

        opened = SuperBPETokenizerFast.from_pretrained(folder)
        ids = [opened(text, verbose=False)["input_ids"] for text in texts]
        _compare_texts(tokenizer, texts, expected, ids, [opened.decode(row) for row in ids])
    ends = ["model_ends", "generation_ends"] + ([] if note else ["tokenizer_ends"])
    if wrong := [name for name in ends if found.get(name) != [end, end]]:
        raise UserError(f"the exported folder has {wrong[0]}={found.get(wrong[0])}, not {end}: nothing is written")
    return {
        "architecture": found["architecture"],
        "n_logits": sum(array.size for array in ours),
        "difference": difference,
        "n_texts": len(texts),
        "tokenizer_note": note,
    }


def _rows(model: Transformer, tokenizer: Tokenizer, texts: list[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of ids, half of them text and half random, and the positions to compare."""
    rng = np.random.default_rng(0)
    end, size = tokenizer.special_tokens[END_OF_TEXT], model.context_tokens
    stream = [i for text in texts if text for i in (end, *tokenizer.encode_ordinary(text))]
    rows = []
    for i in range(_ROWS):
        length = size if i < 2 else max(1, size // (i + 1))  # full contexts and shorter ones
        start = int(rng.integers(max(1, len(stream) - length))) if i else 0
        row = stream[start : start + length] if i % 2 == 0 else rng.integers(model.vocab_size, size=length).tolist()
        rows.append(row)
    positions = [sorted({int(p) for p in np.linspace(0, len(row) - 1, _POSITIONS)}) for row in rows]
    return rows, positions


@torch.inference_mode()
def _logits(model: Transformer, rows: list[list[int]], positions: list[list[int]]) -> list[NDArray[np.float32]]:
    """Logits of this package's model: for each row float32[its positions, vocabulary]."""
    device = model.lm_head.weight.device
    training = model.training
    model.eval()
    out = []
    for row, kept in zip(rows, positions, strict=True):
        keep = torch.zeros(1, len(row), dtype=torch.bool, device=device)
        keep[0, kept] = True
        logits = model(torch.tensor([row], device=device), keep)
        out.append(logits.float().cpu().numpy())
    model.train(training)
    return out


def _ask_fresh_process(folder: Path, request: dict[str, Any]) -> tuple[dict[str, Any], list[NDArray[np.float32]]]:
    """Run `lm.hf.fresh_process` on the folder in an interpreter that has not imported this project."""
    with tempfile.TemporaryDirectory(prefix="export-") as place:
        asked, answered, arrays = (Path(place) / name for name in ("asked.json", "answered.json", "logits.npz"))
        asked.write_text(json.dumps(request), encoding="utf-8")
        script = Path(__file__).with_name("fresh_process.py")
        offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        command = [sys.executable, "-P", str(script), str(folder), str(asked), str(answered), str(arrays)]
        done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
        if done.returncode or not answered.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"transformers cannot use the exported folder ({last}): nothing is written")
        with np.load(arrays, allow_pickle=False) as file:
            logits = [file[str(i)] for i in range(len(request["rows"]))]
        return json.loads(answered.read_text(encoding="utf-8")), logits


def _difference(ours: list[NDArray[np.float32]], theirs: list[NDArray[np.float32]]) -> float:
    """The largest difference of two logits.

    Raises:
        UserError: If it is above `TOLERANCE`, or a shape differs.
    """
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            raise UserError(f"the exported model gives logits of shape {b.shape}, not {a.shape}: nothing is written")
    found = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    limit = TOLERANCE * max(1.0, *(float(np.abs(a).max()) for a in ours))
    if not found <= limit:  # also for NaN
        raise UserError(
            f"the exported model's logits differ by up to {found:.3g}, more than the tolerance of {limit:.3g}: nothing "
            "is written"
        )
    return found


def _compare_texts(
    tokenizer: Tokenizer, texts: list[str], expected: list[list[int]], ids: list[list[int]], decoded: list[str]
) -> None:
    """Raise a UserError unless ids are equal and decode to the same text as here."""
    for text, ours, theirs, back in zip(texts, expected, ids, decoded, strict=True):
        if ours != theirs or back != tokenizer.decode(ours):
            what = f"gives {theirs[:12]} instead of {ours[:12]}" if ours != theirs else f"decodes to {back[:40]!r}"
            raise UserError(f"the exported tokenizer {what} for {text[:40]!r}: nothing is written")

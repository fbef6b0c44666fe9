"""Verify that an exported folder gives the same logits, ids and text in `transformers`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

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


def probes(tokenizer: Tokenizer) -> list[str]:
    """Texts that exercise a tokenizer: all its tokens in random order, random Unicode, special and hostile strings."""
    rng = random.Random(0)
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
    """Open an exported folder with `transformers`, and compare it with its model and tokenizer.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: The exported folder.
        texts: Texts on which ids, decoded text and logits are compared.
        note: Empty if `AutoTokenizer` must open the folder; otherwise `tokenizer.hf` does.

    Returns:
        Fields of `lm.hf.export.Exported`.

    Raises:
        UserError: If anything differs.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    end = tokenizer.end_id
    try:
        theirs, info = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:
        raise UserError(f"transformers cannot use the exported folder ({error}): nothing is written") from error
    if loading := {name: sorted(map(str, keys)) for name, keys in info.items() if keys}:
        raise UserError(f"transformers does not load all weights of the exported model: {loading}")
    n_logits, difference = _compare_logits(model, theirs, _rows(model, tokenizer, texts))
    try:
        if note:
            from tokenizer.hf.tokenizer import SuperBPETokenizerFast

            opened = SuperBPETokenizerFast.from_pretrained(folder, trust_remote_code=False)
        else:
            opened = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise UserError(f"AutoTokenizer cannot open the exported folder ({error})") from error
    for text in texts:
        expected = [end, *tokenizer.encode(text, allowed_special="all")]
        ids = opened(text, verbose=False)["input_ids"]
        back = opened.decode(ids, skip_special_tokens=False)
        if ids != expected or back != tokenizer.decode(expected):
            what = f"gives {ids[:12]} instead of {expected[:12]}" if ids != expected else f"decodes to {back[:40]!r}"
            raise UserError(f"the exported tokenizer {what} for {text[:40]!r}: nothing is written")
    ends = {"model": theirs.config, "generation": theirs.generation_config, "tokenizer": opened}
    for name, about in ends.items():
        if [about.bos_token_id, about.eos_token_id] != [end, end]:
            actual = [about.bos_token_id, about.eos_token_id]
            raise UserError(f"the exported folder has {name}_ends={actual}, not {end}: nothing is written")
    return {
        "architecture": type(theirs).__name__,
        "n_logits": n_logits,
        "difference": difference,
        "n_texts": len(texts),
        "tokenizer_note": note,
    }


def _rows(model: Transformer, tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Rows of ids, half of them text and half random."""
    rng = np.random.default_rng(0)
    end, size = tokenizer.end_id, model.context_tokens
    stream = [i for text in texts if text for i in (end, *tokenizer.encode_ordinary(text))]
    rows = []
    for i in range(_ROWS):
        length = size if i < 2 else max(1, size // (i + 1))  # full contexts and shorter ones
        start = int(rng.integers(max(1, len(stream) - length))) if i else 0
        row = stream[start : start + length] if i % 2 == 0 else rng.integers(model.vocab_size, size=length).tolist()
        rows.append(row)
    return rows


@torch.inference_mode()
def _compare_logits(model: Transformer, theirs: Any, rows: list[list[int]]) -> tuple[int, float]:
    """Number of logits compared, and their largest difference.

    Raises:
        UserError: If it is above `TOLERANCE`, or a shape differs.
    """
    training, device = model.training, model.lm_head.weight.device
    model.eval()
    pairs: list[tuple[Tensor, Tensor]] = []
    for row in rows:
        positions = np.unique(np.linspace(0, len(row) - 1, _POSITIONS).astype(int))
        keep = torch.zeros(1, len(row), dtype=torch.bool)
        keep[0, positions] = True
        ours = model(torch.tensor([row], device=device), keep.to(device)).float().cpu()
        places = torch.from_numpy(positions)
        pairs.append((ours, theirs(torch.tensor([row]), logits_to_keep=places, use_cache=False).logits[0].float()))
    model.train(training)
    for a, b in pairs:
        if a.shape != b.shape:
            shapes = f"{tuple(b.shape)}, not {tuple(a.shape)}"
            raise UserError(f"the exported model gives logits of shape {shapes}: nothing is written")
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    limit = TOLERANCE * max(1.0, *(float(a.abs().max()) for a, _ in pairs))
    if not difference <= limit:  # also for NaN
        raise UserError(
            f"the exported model's logits differ by up to {difference:.3g}, more than the tolerance of {limit:.3g}: "
            "nothing is written"
        )
    return sum(a.numel() for a, _ in pairs), difference

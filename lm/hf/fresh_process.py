"""Stand-alone program that opens an exported folder with `transformers` alone and reports the results.

`lm.hf.export_check` runs it in a fresh interpreter. It must not import this project, because `AutoTokenizer` opens more
folders after `tokenizer.hf.register()`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def answer(folder: Path, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open the model and the tokenizer, and run them.

    Args:
        folder: The exported folder.
        request: `rows` of ids for the model; `positions` for each row; `texts` for the tokenizer.

    Returns:
        JSON-able results, and the logits: for each row float32[its positions, vocabulary].
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, info = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    logits = {}
    with torch.inference_mode():
        for i, (row, positions) in enumerate(zip(request["rows"], request["positions"], strict=True)):
            out = model(torch.tensor([row]), logits_to_keep=torch.tensor(positions), use_cache=False)
            logits[f"{i}"] = out.logits[0].float().numpy()
    found: dict[str, Any] = {
        "architecture": type(model).__name__,
        "loading": {name: sorted(map(str, keys)) for name, keys in info.items() if keys},
        "model_ends": [model.config.bos_token_id, model.config.eos_token_id],
        "generation_ends": [model.generation_config.bos_token_id, model.generation_config.eos_token_id],
        "context_tokens": model.config.max_position_embeddings,
    }
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # its type depends on the version
        return {**found, "tokenizer_error": f"{type(error).__name__}: {error}"}, logits
    ids = tokenizer(request["texts"])["input_ids"]
    found["ids"] = ids
    found["decoded"] = [tokenizer.decode(row, skip_special_tokens=False) for row in ids]
    found["tokenizer_ends"] = [tokenizer.bos_token_id, tokenizer.eos_token_id]
    return found, logits


if __name__ == "__main__":
    asked, answered, arrays = map(Path, sys.argv[2:])
    result, values = answer(Path(sys.argv[1]), json.loads(asked.read_text(encoding="utf-8")))
    np.savez(arrays, **values)
    answered.write_text(json.dumps(result), encoding="utf-8")

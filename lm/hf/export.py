"""A trained model and its tokenizer as a Hugging Face folder, which gets its name only if others read the same in it.

The layout is Llama's, or Qwen3's where queries and keys are normalized. Our `Transformer` puts padding ids at -inf, and
HF has nothing like it. So both tables are cut to the tokenizer's ids: the exported model cannot produce any other, and
its logits are ours.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm.data.shards import END_OF_TEXT
from lm.hf.export_check import probes, validate
from lm.model.weights import model_tensors, write_tensors
from tokenizer import formats
from tokenizer.errors import UserError
from tokenizer.formats.hf import hf_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from lm.model.transformer import Transformer
    from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Exported:
    """What was written, and what a stranger read in it.

    Attributes:
        folder: The new folder.
        architecture: Class that `AutoModelForCausalLM` made.
        vocab_size: Rows of the tables: the tokenizer's ids.
        padding_rows: Rows that were cut off.
        n_logits: Logits that were compared.
        difference: The largest difference among them.
        n_texts: Texts whose ids and decoded text were compared.
        tokenizer_note: Empty if `AutoTokenizer` alone gives our ids; else why not, and what to do.
    """

    folder: Path
    architecture: str
    vocab_size: int
    padding_rows: int
    n_logits: int
    difference: float
    n_texts: int
    tokenizer_note: str


def export_hf(model: Transformer, tokenizer: Tokenizer, folder: Path, texts: Sequence[str] = ()) -> Exported:
    """Write `folder`: config, weights (safetensors, fp32), generation config and tokenizer, whole or not at all.

    Before it gets its name it is opened in a fresh process with `transformers` alone. Its logits must be ours within
    `lm.hf.export_check.TOLERANCE`, on rows of text and of random ids up to the trained context. Its ids and its decoded
    text must be ours, on the given texts and on generated ones that hold every token. A tokenizer that `tokenizer.json`
    cannot express (two-pass, or a pattern that HF's regex engine reads otherwise) is written as `Tokenizer.save` does,
    without that file: `AutoTokenizer` must then fail, and open it after `tokenizer.hf.register()`.

    Args:
        model: A trained model.
        tokenizer: The one that it was trained with.
        folder: What to make; must not exist.
        texts: Held-out text to compare on; the more like the use, the better.

    Raises:
        UserError: Model and tokenizer do not belong together, the folder exists, `transformers` is missing, or the
            exported folder means something else to it.
    """
    _check(model, tokenizer, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        note = _write(model, tokenizer, partial)
        compared = validate(model, tokenizer, partial, [*texts, *probes(tokenizer)], note)
        partial.chmod(0o755)  # mkdtemp's is for its owner alone
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    padded = model.lm_head.weight.shape[0]
    return Exported(folder, vocab_size=model.vocab_size, padding_rows=padded - model.vocab_size, **compared)


def _check(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    if folder.exists():
        raise UserError(f"{folder} exists already; name a new folder")
    if model.tokenizer_sha256 != tokenizer.sha256:
        raise UserError(
            f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unknown)'}, and this one is "
            f"{tokenizer.name}; name the model's own"
        )
    if tokenizer.vocab_size != model.vocab_size or END_OF_TEXT not in tokenizer.special_tokens:
        raise UserError(
            f"the tokenizer has {tokenizer.vocab_size} ids, the model {model.vocab_size}, and {END_OF_TEXT} must be one"
        )
    if importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed, and the export is checked with it; pip install transformers")


def config_arguments(model: Transformer, end: int) -> dict[str, Any]:
    """Arguments of `LlamaConfig` or `Qwen3Config` for this model; `end` is the id of <|endoftext|>."""
    config = model.config
    heads = config.n_heads
    return {
        "architectures": ["Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"],
        "vocab_size": model.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": model.context_tokens,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_embeddings,
        # One token ends a document and begins the next: the model has seen it before every document.
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": "float32",
    }


def cut_tensors(model: Transformer) -> dict[str, Tensor]:
    """The weights under HF's names, both tables cut to the real ids."""
    tables = ("model.embed_tokens.weight", "lm_head.weight")
    return {
        name: (tensor[: model.vocab_size] if name in tables else tensor).float().cpu()
        for name, tensor in model_tensors(model).items()
    }


def _write(model: Transformer, tokenizer: Tokenizer, folder: Path) -> str:
    """Write all files; return why stock loaders cannot open the tokenizer, or nothing."""
    from transformers import GenerationConfig, LlamaConfig, Qwen3Config

    end = tokenizer.special_tokens[END_OF_TEXT]
    kind = Qwen3Config if model.config.qk_norm else LlamaConfig
    kind(**config_arguments(model, end)).save_pretrained(folder)
    GenerationConfig(bos_token_id=end, eos_token_id=end).save_pretrained(folder)
    write_tensors(folder / "model.safetensors", cut_tensors(model), {"format": "pt"})  # what `transformers` asks for
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        formats.save(tokenizer, folder, {**hf_config(tokenizer.definition), "model_max_length": model.context_tokens})
    if (folder / formats.HF_FILE).exists():
        return ""
    why = str(caught[0].message) if caught else "no tokenizer.json can express a two-pass tokenizer"
    return f"{why}; AutoTokenizer fails on this folder, and gives the right ids after `tokenizer.hf.register()`"

"""Export a model and its tokenizer as a Hugging Face folder, verified before it appears.

The layout is Llama's, or Qwen3's if queries and keys are normalized. HF models would give padding ids a probability, so
both tables are cut to the tokenizer's ids; the logits are the same. The tokenizer begins each text with
its `end_of_text`, as training documents begin (`add_special_tokens=False` or `add_bos_token=False` omits it).
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm.hf.export_check import probes, validate
from lm.model.weights import model_tensors, write_tensors
from tokenizer.corpus.seen import public
from tokenizer.durable import new_folder
from tokenizer.errors import UserError
from tokenizer.formats.carried import KEY, carried, without_generation
from tokenizer.formats.folder import save
from tokenizer.formats.hf import HF_FILE, TEMPLATE
from tokenizer.tokenizer import Tokenizer, byte_level_bpe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class Exported:
    """An exported folder, and the result of its verification.

    Attributes:
        architecture: Class that `AutoModelForCausalLM` returned.
        vocab_size: Rows of the tables, one per id of the tokenizer.
        padding_rows: Rows that were cut off.
        difference: Largest difference of two compared logits.
        n_texts: Number of texts whose ids and decoded text were compared.
        tokenizer_note: Empty if `AutoTokenizer` gives the same ids; otherwise the reason and the remedy.
        left: Phrases that name what the tokenizer's folder has and the exported one does not.
    """

    folder: Path
    architecture: str
    vocab_size: int
    padding_rows: int
    n_logits: int
    difference: float
    n_texts: int
    tokenizer_note: str
    left: tuple[str, ...]


def export_hf(model: Transformer, tokenizer: TokenizerLike, folder: Path, texts: Sequence[str] = ()) -> Exported:
    """Write config, weights (safetensors, fp32), generation config and tokenizer to `folder`, or nothing at all.

    Before the folder gets its name, `transformers` opens it. Its logits must agree within
    `lm.hf.export_check.TOLERANCE`, on rows of text and of random ids up to the context length. Its ids and decoded text
    must be equal on the given texts and on generated texts with every token. A tokenizer that `tokenizer.json` cannot
    express (two-pass, or a pattern that HF's regex engine interprets differently) is written like `Tokenizer.save`,
    without that file: `AutoTokenizer` then fails, and works after `tokenizer.hf.register()`.

    Args:
        model: A trained model.
        tokenizer: Its tokenizer.
        folder: Target; must not exist.
        texts: Held-out text to compare on, preferably similar to the text of later use.

    Raises:
        UserError: If model and tokenizer do not match, other software runs the tokenizer, the folder exists,
            `transformers` is missing, or the verification fails.
    """
    tokenizer = byte_level_bpe(tokenizer, "an export for transformers needs")
    tokenizer = Tokenizer(tokenizer.definition, tokenizer.provenance | {KEY: without_generation(tokenizer)})
    check_match(model, tokenizer, folder)
    if importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed, and the export is verified with it; pip install transformers")
    with new_folder(folder) as partial:
        note = _write(model, tokenizer, partial)
        compared = validate(model, tokenizer, partial, [*texts, *probes(tokenizer)], note)
    padding = model.lm_head.weight.shape[0] - model.vocab_size
    left = tuple(carried(tokenizer).left)
    return Exported(folder, vocab_size=model.vocab_size, padding_rows=padding, left=left, **compared)


def check_match(model: Transformer, tokenizer: Tokenizer, target: Path) -> None:
    """Raise a UserError if the target exists, or the model was trained with another tokenizer."""
    if target.exists():
        raise UserError(f"{target} already exists; choose a new name")
    if model.tokenizer_sha256 != tokenizer.sha256:
        raise UserError(
            f"the model was trained with tokenizer {model.tokenizer_sha256[:12] or '(unknown)'}, not with "
            f"{tokenizer.name}; use the model's tokenizer"
        )
    if tokenizer.vocab_size != model.vocab_size:
        raise UserError(
            f"the tokenizer has {tokenizer.vocab_size} ids and the model {model.vocab_size}; they must be equal"
        )


def config_arguments(model: Transformer, end: int) -> dict[str, Any]:
    """Arguments of `LlamaConfig` or `Qwen3Config`; `end` is the tokenizer's `end_id`."""
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
        # The same token begins and ends documents.
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": "float32",
    }


def cut_tensors(model: Transformer) -> dict[str, Tensor]:
    """The weights under HF's names, without padding rows."""
    tables = ("model.embed_tokens.weight", "lm_head.weight")
    return {
        name: (tensor[: model.vocab_size] if name in tables else tensor).float().cpu()
        for name, tensor in model_tensors(model).items()
    }


def _write(model: Transformer, tokenizer: Tokenizer, folder: Path) -> str:
    """Write all files; return why `AutoTokenizer` cannot open the tokenizer, or an empty string."""
    from transformers import GenerationConfig, LlamaConfig, Qwen3Config

    end = tokenizer.end_id
    kind = Qwen3Config if model.config.qk_norm else LlamaConfig
    kind(**config_arguments(model, end)).save_pretrained(folder)
    # Padding is declared here and with the tokenizer, not in config.json: there it would freeze the row of the token.
    GenerationConfig(bos_token_id=end, eos_token_id=end, pad_token_id=end).save_pretrained(folder)
    write_tensors(folder / "model.safetensors", cut_tensors(model), {"format": "pt"})  # required by `transformers`
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The post-processor adds the end of text, and decoded text must have nothing but the tokens.
        theirs = ("add_bos_token", "add_eos_token", "clean_up_tokenization_spaces")
        config = {key: value for key, value in carried(tokenizer).config.items() if key not in theirs}
        config |= {"model_max_length": model.context_tokens, "clean_up_tokenization_spaces": False}
        config |= dict.fromkeys(("bos_token", "eos_token", "pad_token"), tokenizer.end_of_text)
        save(_beginning_documents(tokenizer), folder, config)
    if (folder / HF_FILE).exists():
        return ""
    why = str(caught[0].message) if caught else "no tokenizer.json can express a two-pass tokenizer"
    return f"{why}; AutoTokenizer fails on this folder, and gives the right ids after `tokenizer.hf.register()`"


def _beginning_documents(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with a post-processor for HF that puts `end_of_text` before each text, and nothing else."""
    from tokenizers.processors import TemplateProcessing

    end = tokenizer.end_of_text
    # Two texts are two documents, as with `add_bos_token=True` in `transformers`.
    processor = TemplateProcessing(
        single=[end, "$A"], pair=[end, "$A", f"{end}:1", "$B:1"], special_tokens=[(end, tokenizer.end_id)]
    )
    template = {**(tokenizer.provenance.get(TEMPLATE) or {}), "post_processor": json.loads(processor.__getstate__())}
    return Tokenizer(tokenizer.definition, {**public(tokenizer.provenance), TEMPLATE: template})

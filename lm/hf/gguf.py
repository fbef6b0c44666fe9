"""Export a model and its tokenizer as a GGUF file for llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm.hf.export import check_match, cut_tensors
from lm.hf.export_check import probes
from tokenizer.durable import replacing_path
from tokenizer.errors import UserError
from tokenizer.formats.hf import hf_json
from tokenizer.formats.llama_cpp import pre_type
from tokenizer.tokenizer import Tokenizer, byte_level_bpe

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class GGUF:
    """An exported file.

    Attributes:
        architecture: llama.cpp's name of the architecture.
        pre: llama.cpp's name of the pretokenization pattern.
    """

    path: Path
    architecture: str
    pre: str
    tensors: int


def export_gguf(model: Transformer, tokenizer: TokenizerLike, path: Path, *, mixed_digits: bool = False) -> GGUF:
    """Write weights (fp32), settings and tokenizer as one GGUF file; quantize it with llama.cpp's own tools.

    Args:
        model: A trained model.
        tokenizer: Its tokenizer.
        path: Target, `*.gguf`; must not exist.
        mixed_digits: As for `tokenizer.formats.llama_cpp.pre_type`.

    Raises:
        UserError: If llama.cpp cannot give the same ids, model and tokenizer do not match, the file exists, or the
            package `gguf` is missing.
    """
    tokenizer = byte_level_bpe(tokenizer, "an export for llama.cpp needs")
    check_match(model, tokenizer, path)
    try:
        import gguf
    except ImportError as error:
        raise UserError(f"the export needs the package gguf ({error}); pip install gguf") from error
    pre = pre_type(tokenizer, mixed_digits=mixed_digits, texts=probes(tokenizer))
    arch = gguf.MODEL_ARCH.QWEN3 if model.config.qk_norm else gguf.MODEL_ARCH.LLAMA
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_path(path) as partial:
        writer = gguf.GGUFWriter(partial, gguf.MODEL_ARCH_NAMES[arch])
        _write_settings(writer, model)
        _write_tokenizer(writer, gguf.TokenType, tokenizer, pre)
        names = gguf.get_tensor_name_map(arch, model.config.n_layers)
        tensors = cut_tensors(model)
        for name, tensor in tensors.items():
            writer.add_tensor(
                names.get_name(name, try_suffixes=(".weight",)),
                _rotated(name, tensor, model).contiguous().numpy(),
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return GGUF(path, gguf.MODEL_ARCH_NAMES[arch], pre, len(tensors))


def _rotated(name: str, tensor: Tensor, model: Transformer) -> Tensor:
    """Rows of queries and keys in the order of llama.cpp's rotary embedding.

    Its architecture `llama` rotates adjacent rows, and `qwen3`, like HF, rows half a head apart (`permute` in
    llama.cpp's `conversion/llama.py`).
    """
    if model.config.qk_norm or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    half = model.config.head_dim // 2
    return tensor.reshape(-1, 2, half, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)


def _write_settings(writer: Any, model: Transformer) -> None:
    config = model.config
    writer.add_file_type(0)  # all tensors are fp32
    writer.add_vocab_size(model.vocab_size)
    writer.add_context_length(model.context_tokens)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)


def _write_tokenizer(writer: Any, types: Any, tokenizer: Tokenizer, pre: str) -> None:
    content = hf_json(tokenizer)
    names = {i: (name, types.NORMAL) for name, i in content["model"]["vocab"].items()}
    names |= {token["id"]: (token["content"], types.CONTROL) for token in content["added_tokens"]}
    listed = [names.get(i, (f"[UNUSED{i}]", types.UNUSED)) for i in range(tokenizer.vocab_size)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    end = tokenizer.end_id
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([name for name, _ in listed])
    writer.add_token_types([int(kind) for _, kind in listed])
    # Of repeated merges the last one counts here, and the first one in llama.cpp.
    writer.add_token_merges(list(dict.fromkeys(reversed(merges)))[::-1])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)

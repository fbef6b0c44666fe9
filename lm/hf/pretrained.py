"""Models of `transformers` in folders, and their tensors with a row per token."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizer import system
from tokenizer.errors import UserError, shortened
from tokenizer.external.opening import is_repository_id, snapshot
from tokenizer.files import confined, read_json, read_text
from tokenizer.formats import carried
from tokenizer.formats.hf import HF_CONFIG_FILE

if TYPE_CHECKING:
    import torch

    from tokenizer import Tokenizer

ADAPTER = "adapter_config.json"
FILES = ("*.json", "*.safetensors", "*.model", "*.tiktoken", "*.txt", "*.jinja")
"""Files of a model in a repository that are downloaded."""
_FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of weights that are not quantized."""


def base_of(folder: Path) -> tuple[Path, str | None] | None:
    """Find the model that an adapter of PEFT is merged into; one in a repository is downloaded.

    Returns:
        The model's folder, and its commit if it is in a repository; None if the folder has no adapter.

    Raises:
        UserError: There is no model, its weights are damaged or are not safetensors in its own folder, the adapter is
            incomplete, its model cannot be found, or PEFT is missing.
    """
    if not (folder / ADAPTER).is_file():
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} has no config.json; name the folder of a model saved by transformers")
        weights_of(folder)
        return None
    if not (folder / "adapter_model.safetensors").is_file():
        raise UserError(f"{folder} has no adapter_model.safetensors; save the adapter in safetensors")
    if importlib.util.find_spec("peft") is None:
        raise UserError(f"{folder} is an adapter: to merge it, run: pip install peft")
    about = read_json(folder / ADAPTER)
    base = about.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{folder / ADAPTER} names no base_model_name_or_path; add the model that it was trained on")
    if not Path(base).is_dir() and not is_repository_id(base):
        raise UserError(f"{base}, which {folder / ADAPTER} was trained on, does not exist; correct its path there")
    found = (Path(base), None) if Path(base).is_dir() else snapshot(base, about.get("revision"), None, FILES)
    if (found[0] / ADAPTER).is_file():
        raise UserError(f"{folder / ADAPTER}: {base} is an adapter itself; merge that one into its model first")
    base_of(found[0])
    return found


def weights_of(folder: Path) -> list[Path]:
    """The files of weights of a model.

    Raises:
        UserError: A file names weights other than safetensors in the same folder, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path, index = folder / "config.json", folder / "model.safetensors.index.json"
    text = read_text(path)
    try:
        config = json.loads(text)  # may contain Infinity
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}); correct it, as UTF-8 without a byte order mark") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} is not a JSON object")
    own = config.get("transformers_weights")
    named = ["model.safetensors"] if own in (None, index.name) else [own]
    if own == index.name or (own is None and index.exists() and not (folder / named[0]).exists()):
        places = read_json(index).get("weight_map")
        named = [*places.values()] if isinstance(places, dict) else [places]
    files = []
    for name in dict.fromkeys(named):
        file = confined(folder, name)
        if file.parent != folder or file.suffix != ".safetensors":
            raise UserError(f"{folder} names the weights {name}; they must be .safetensors files in the same folder")
        try:
            with safe_open(file, framework="np"):  # reads the header, and compares it with the size
                pass
        except FileNotFoundError:
            pass  # another name may be meant; `load` says what is missing
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file} is damaged ({error}); copy it again") from None
        files.append(file)
    return files


def load(folder: Path, *, dtype: str = "auto", remote_code: bool = False, device_map: str | None = None) -> Any:
    """Load the causal language model of a local folder: weights in safetensors, or an adapter of PEFT, which is merged.

    Args:
        folder: The folder.
        dtype: Number format of the weights; `auto` for the format of the files.
        remote_code: Whether to execute code that is in the folder.
        device_map: As in `transformers`, such as `auto` to spread the model over GPUs with accelerate.

    Raises:
        UserError: If there is no model, or it is damaged or incomplete, or a package is missing.
    """
    base = base_of(folder)
    if base is not None:
        return _merged(load(base[0], dtype=dtype, remote_code=remote_code, device_map=device_map), folder)
    import transformers

    options: dict[str, Any] = {"use_safetensors": True, "local_files_only": True, "trust_remote_code": remote_code}
    if device_map is not None:
        options["device_map"] = device_map
    transformers.utils.logging.disable_progress_bar()
    opener = transformers.AutoModelForCausalLM
    try:
        model, info = opener.from_pretrained(
            str(folder), dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    except Exception as error:  # any, in files that others wrote
        raise UserError(
            f"{folder} cannot be read as a causal language model in safetensors: {_one_line(error)}"
        ) from error
    for name, stored, configured in info["mismatched_keys"]:
        raise UserError(
            f"{folder}: {name} has the shape {tuple(stored)}, but {tuple(configured)} by its config.json; use the "
            "config.json that was saved with the weights"
        )
    if info["missing_keys"]:
        raise UserError(f"{folder} is incomplete: {min(info['missing_keys'])} is missing; copy all files of the model")
    if info["unexpected_keys"]:
        warnings.warn(
            f"{folder}: the model of config.json does not use {min(info['unexpected_keys'])} and maybe other weights",
            stacklevel=2,
        )
    if getattr(model.config, "quantization_config", None) is None:
        _check_floats(folder)
    return model


def _check_floats(folder: Path) -> None:
    """Reject weights of other types, which `transformers` would convert as they are."""
    from safetensors import safe_open

    for file in weights_of(folder):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118  (not a dict)
                kind = weights.get_slice(name).get_dtype()
                if name.endswith("weight") and kind not in _FLOATS:
                    raise UserError(
                        f"{file}: {name} has the type {kind}, but config.json has no quantization_config; save the "
                        "model again in F32 or BF16"
                    )


def _merged(model: Any, folder: Path) -> Any:
    """Merge an adapter of PEFT into its model, which gets rows for the tokens that the adapter's tokenizer adds."""
    import transformers

    peft = importlib.import_module("peft")
    try:
        if (folder / HF_CONFIG_FILE).is_file():
            own = transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
            if len(own) > model.get_input_embeddings().weight.shape[0]:
                model.resize_token_embeddings(len(own))
        return peft.PeftModelForCausalLM.from_pretrained(model, str(folder), trust_remote_code=False).merge_and_unload()
    except Exception as error:  # any, in files that others wrote
        raise UserError(f"{folder} cannot be merged into its model: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return shortened(" ".join(str(error).split()))


def with_settings(tokenizer: Tokenizer, folder: Path, own: Tokenizer) -> Tokenizer:
    """Add the settings and files of a model's folder to those that a tokenizer carries: `carried.merged`.

    Args:
        tokenizer: The tokenizer.
        folder: The model's folder.
        own: The model's own tokenizer.
    """
    both = carried.merged(carried.collect(folder, own.definition), carried.collected(tokenizer))
    both["left"] = [name for name in both["left"] if name != "config.json" and ".safetensors" not in name]
    return type(tokenizer)(tokenizer.definition, tokenizer.provenance | {carried.KEY: both})


def write(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a model with its tokenizer and what the tokenizer carries, of `with_settings`, into a folder."""
    found = carried.collected(tokenizer)
    if hasattr(model.config, "auto_map"):
        del model.config.auto_map
        found["left"].append("auto_map of config.json")
    if carried.GENERATION_FILE in found["files"]:  # written as it is; `transformers` rejects some contents
        model.generation_config = type(model.generation_config)()
    model.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        system.share(weights)
    tokenizer.save(folder)


def check_rows(model: Any, tokenizer: Tokenizer, option: str) -> int:
    """Return the number of rows of a model's embedding.

    Raises:
        UserError: If the tokenizer has more ids; `option` names it.
    """
    rows: int = model.get_input_embeddings().weight.shape[0]
    if rows < tokenizer.vocab_size:
        raise UserError(
            f"the model has {rows} rows, but its tokenizer has {tokenizer.vocab_size} ids; name the model's own "
            f"tokenizer with {option}"
        )
    return rows


def rows_by_token(model: Any) -> list[torch.Tensor]:
    """The embedding, the untied output head and its bias, as far as they exist."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    rows = [embedding.weight]
    if head is not None:
        if head.weight.data_ptr() != embedding.weight.data_ptr():
            rows.append(head.weight)
        if getattr(head, "bias", None) is not None:
            rows.append(head.bias)
    return rows

"""`SuperBPETokenizerFast`, a `transformers` tokenizer that encodes with our core.

Calls and results are as with `PreTrainedTokenizerFast`. A one-pass tokenizer gives the same ids as the stock class; a
two-pass tokenizer, which the stock class cannot express, gives the ids of `Tokenizer`. As everywhere in `transformers`,
and unlike in `Tokenizer.encode`, strings of special tokens in a text become those tokens, unless
`split_special_tokens=True`. Calls take as long as with the stock class; `Tokenizer.encode_batch` is many times
faster.

Unsupported, with an error: the flags `lstrip`, `rstrip` and `single_word` of added tokens, `train_new_from_iterator`,
and file name prefixes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import cached_file

from tokenizer import files, formats
from tokenizer.corpus.seen import public
from tokenizer.errors import UserError, quoted
from tokenizer.formats.carried import KEY, carried, chat_template
from tokenizer.formats.folder import save
from tokenizer.formats.hf import HF_CONFIG_FILE, TEMPLATE, overlap
from tokenizer.hf.backend import Backend
from tokenizer.special import Preparation
from tokenizer.tokenizer import Tokenizer


class SuperBPETokenizerFast(PreTrainedTokenizerFast):  # type: ignore[misc]
    """A `PreTrainedTokenizerFast` that encodes with our core.

    Args:
        superbpe: the tokenizer; `from_pretrained` reads it from `superbpe_file`.
        superbpe_file: `superbpe.json` in a folder written by `Tokenizer.save` or `save_pretrained`.
        tokenizer_file: `tokenizer.json` in the same folder, if it exists.
        **kwargs: arguments of `PreTrainedTokenizerFast`: `bos_token`, `pad_token`, `padding_side`, ...

    Raises:
        UserError: the folder has no `superbpe.json`, or is damaged.
    """

    vocab_files_names = {"superbpe_file": formats.FILE, "tokenizer_file": formats.HF_FILE}  # noqa: RUF012

    def __init__(
        self,
        *,
        superbpe: Tokenizer | None = None,
        superbpe_file: str | None = None,
        tokenizer_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        if superbpe is None:
            if superbpe_file is None:
                raise UserError(
                    f"{kwargs.get('name_or_path', 'the folder')} has no {formats.FILE}, so this class cannot open it; "
                    "open it without tokenizer.hf.register(), or import it with Tokenizer.from_file and save the result"
                )
            superbpe = Tokenizer.load(Path(superbpe_file).parent)
        self._tokenizer = Backend(superbpe)
        super().__init__(**kwargs)

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, **kwargs: Any) -> Self:
        """Wrap a tokenizer without saving it to a folder first. Keyword arguments are as for the class."""
        parts = carried(tokenizer)
        config = parts.config | chat_template(parts)
        del config["tokenizer_class"]
        return cls(superbpe=tokenizer, **{**config, **kwargs})

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments unchanged: `__init__` reads the files."""
        return kwargs

    @classmethod
    def _patch_mistral_regex(cls, tokenizer: Any, *_: Any, **__: Any) -> Any:
        return tokenizer  # the stock method queries the hub, for other models

    # --- encoding ---

    def _encode_plus(self, *texts: Any, **call: Any) -> Any:
        try:
            return super()._encode_plus(*texts, **call)
        finally:  # a call must not change the pickle of this object
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()

    def _encode_without_added_tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.ours.encode_ordinary(text)
        return ids

    # --- files ---

    def _with_added_tokens(self) -> Tokenizer:
        """Our tokenizer with the backend's added tokens and post-processor, to be saved with it."""
        tokenizer: Tokenizer = self._tokenizer.ours
        added = self._tokenizer.get_added_tokens_decoder()
        processor = self._tokenizer.post_processor
        flags = {t.content: {"normalized": t.normalized, "special": t.special} for t in added.values()}
        template = {
            **(tokenizer.provenance.get(TEMPLATE) or {}),
            "added_tokens": flags,
            "post_processor": None if processor is None else json.loads(processor.__getstate__()),
        }
        forms = tokenizer.preparation.forms
        late = [name for name, flag in flags.items() if flag["normalized"]]
        preparation = Preparation(
            forms=forms,
            added_tokens={token.content: i for i, token in added.items() if not token.special},
            late=frozenset(late if forms or overlap(flags) else ()),
        )
        special_tokens = {token.content: i for i, token in added.items() if token.special}
        end = self.eos_token if self.eos_token in special_tokens else tokenizer.end_of_text
        definition = replace(
            tokenizer.definition, special_tokens=special_tokens, preparation=preparation, end_of_text=end
        )
        # `transformers` has written the settings already, with the changes of its user.
        provenance = {key: value for key, value in public(tokenizer.provenance).items() if key != KEY}
        return Tokenizer(definition, {**provenance, TEMPLATE: template})

    def _save_pretrained(
        self,
        save_directory: Any,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        if filename_prefix:
            raise UserError(
                f"filename_prefix={quoted(filename_prefix)} is not supported: a folder contains one tokenizer"
            )
        folder = Path(save_directory)
        config = files.read_json(folder / HF_CONFIG_FILE)
        # Name the stock class, so that it can open the folder too; `register` detects our file.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        save(self._with_added_tokens(), folder, config)
        written = [folder / name for name in (formats.FILE, formats.HF_FILE)]
        return (*file_names, *(str(path) for path in written if path.exists()))

    def train_new_from_iterator(self, *_: Any, **__: Any) -> Any:
        """Not supported; use `tokenizer.train_bpe` or `superbpe.train_superbpe`."""
        raise UserError("train_new_from_iterator is not supported; train with tokenizer.train_bpe and load the result")


_NOT_OURS = ("config", "tokenizer_type", "use_fast", "trust_remote_code", "code_revision", "mistral_format")
"""Arguments that only `AutoTokenizer.from_pretrained` uses, to choose a class."""
_REGISTERED = "_opens_superbpe_folders"
_ASKED = ("cache_dir", "force_download", "proxies", "token", "revision", "subfolder", "local_files_only")


def _is_ours(name: Any, options: dict[str, Any]) -> bool:
    """Whether a folder or a hub repository contains our file."""
    if options.get("tokenizer_type") or options.get("gguf_file") or Path(name).is_file():
        return False
    if Path(name).is_dir():
        return (Path(name) / (options.get("subfolder") or "") / formats.FILE).is_file()
    asked = {key: options[key] for key in _ASKED if options.get(key)}
    quiet = ("gated_repo", "missing_entries", "connection_errors")
    asked |= dict.fromkeys((f"_raise_exceptions_for_{key}" for key in quiet), False)
    try:
        return cached_file(str(name), formats.FILE, **asked) is not None
    except (OSError, ValueError):  # no such repository: the stock class reports the error
        return False


def register() -> None:
    """Make `AutoTokenizer.from_pretrained` open folders with our file as our class; others open as before.

    `AutoTokenizer.register` cannot do this: our folders name `PreTrainedTokenizerFast` as their class, so that they
    open without this project too, and that name is never looked up in the registry.
    """
    stock = AutoTokenizer.from_pretrained.__func__
    if getattr(stock, _REGISTERED, False):
        return

    def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *inputs: Any, **options: Any) -> Any:
        if not _is_ours(pretrained_model_name_or_path, options):
            return stock(cls, pretrained_model_name_or_path, *inputs, **options)
        options = {key: value for key, value in options.items() if key not in _NOT_OURS}
        return SuperBPETokenizerFast.from_pretrained(pretrained_model_name_or_path, *inputs, **options)

    from_pretrained.__doc__ = stock.__doc__
    setattr(from_pretrained, _REGISTERED, True)
    AutoTokenizer.from_pretrained = classmethod(from_pretrained)

"""`SuperBPETokenizerFast`, a `transformers` tokenizer that encodes with our core.

Calls and results are those of `PreTrainedTokenizerFast`. A one-pass tokenizer gives the same ids as the stock class; a
two-pass tokenizer, which the stock class cannot express, gives the ids of `Tokenizer`. As everywhere in `transformers`,
and unlike in `Tokenizer.encode`, strings of special tokens in a text become those tokens, unless
`split_special_tokens=True`.

In `datasets.map`, `return_tensors="np"` returns arrays instead of lists of Python numbers, and takes half the time.

Unsupported, with an error: the flags `lstrip`, `rstrip` and `single_word` of added tokens, `train_new_from_iterator`,
and file name prefixes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy, cached_file

from tokenizer import files, formats
from tokenizer.errors import UserError, quoted
from tokenizer.formats.hf import TEMPLATE, hf_config, overlap
from tokenizer.hf.batches import (
    Call,
    Column,
    Columns,
    LazyBatchEncoding,
    Padding,
    Pair,
    columns_of,
    cut_rows,
    rows_of,
    windows,
)
from tokenizer.hf.encoding import TextEncoder, backend, template_ids
from tokenizer.preparation import Preparation
from tokenizer.tokenizer import Tokenizer

_AROUND = (0, 0)  # the span of tokens that are not in the text


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
        self._text = TextEncoder(superbpe)
        self._tokenizer = backend(superbpe)
        super().__init__(**kwargs)

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, **kwargs: Any) -> Self:
        """Wrap a tokenizer without saving it to a folder first. Keyword arguments are those of the class."""
        config = hf_config(tokenizer.definition)
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

    def _encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> Any:
        if options.get("sanitize_control_tokens"):  # for chats: the stock method calls back for each piece
            return super()._encode_plus(text, text_pair, **options)
        call = Call.of(options)
        batched, rows = rows_of(text, text_pair, words=call.is_split_into_words)
        encode = partial(self._encodings, rows, call)
        names = call.columns(self.model_input_names)
        columns = self._columns(rows, call, names)
        if columns is None:
            columns = columns_of(encode(), names)
        if len(columns["input_ids"]):
            longest = max(columns["input_ids"], key=len)
            self._eventual_warn_about_too_long_sequence(longest, call.max_length, call.verbose)
        if not batched and call.return_tensors is None and not call.return_overflowing_tokens:
            columns = {name: got[0] if isinstance(got[0], list) else got for name, got in columns.items()}
        paired = any(isinstance(row, Pair) for row in rows)
        return LazyBatchEncoding(columns, encode, call.return_tensors, paired=paired)

    def _splits(self, call: Call) -> bool:
        return bool(self.split_special_tokens if call.split_special_tokens is None else call.split_special_tokens)

    def _padding(self, call: Call) -> Padding:
        side = self.padding_side if call.padding_side is None else call.padding_side
        token: tuple[str, int, int] = ("", 0, 0)
        if call.padding_strategy != PaddingStrategy.DO_NOT_PAD:
            token = (self.pad_token, self.pad_token_id, self.pad_token_type_id)
        return Padding(call.padding_strategy, call.max_length, call.pad_to_multiple_of, side, *token)

    def _columns(self, rows: Sequence[Any], call: Call, names: set[str]) -> Columns | None:
        """The columns from our encoder; None if the call needs `tokenizers` (see `_encodings`)."""
        processor, longest = self._tokenizer.post_processor, call.longest
        template = template_ids(processor, add_special_tokens=call.add_special_tokens)
        if template is None or not all(isinstance(row, str) for row in rows):
            return None
        if call.return_offsets_mapping and processor and b'"trim_offsets":true' in processor.__getstate__():
            return None
        before, behind, types = template
        room = None if longest is None else longest - len(before) - len(behind)
        if room is not None and (
            room < 1 or call.stride >= room or call.truncation_strategy == TruncationStrategy.ONLY_SECOND
        ):
            return None
        encoded = self._text.encode(
            rows, self._tokenizer, split_special_tokens=self._splits(call), spans=call.return_offsets_mapping
        )
        cut = partial(windows, room=room, stride=call.stride, side=self.truncation_side)
        parts, samples = cut_rows(encoded.offsets.tolist(), cut, overflow=call.return_overflowing_tokens)
        padding = self._padding(call)
        lengths = [len(before) + stop - start + len(behind) for start, stop in parts]
        target = padding.target(lengths)
        ones, more_ones = [1] * len(before), [1] * len(behind)
        text_type = types[len(before)]
        made = {
            "input_ids": Column(before, encoded.ids, behind, padding.token_id),
            "token_type_ids": Column(types[: len(before)], text_type, types[len(before) + 1 :], padding.type_id),
            "attention_mask": Column(ones, 1, more_ones, 0),
            "special_tokens_mask": Column(ones, 0, more_ones, 1),
        }
        if encoded.spans is not None:
            made["offset_mapping"] = Column([_AROUND] * len(before), encoded.spans, [_AROUND] * len(behind), _AROUND)
        columns: Columns = {}
        for name, column in made.items():
            if name in names:
                arrays = call.return_tensors in ("np", "pt") and name != "offset_mapping"
                columns[name] = (column.array if arrays else column.lists)(parts, target, padding.side)
        if "length" in names:
            columns["length"] = [max(length, target) for length in lengths]
        if "overflow_to_sample_mapping" in names:
            columns["overflow_to_sample_mapping"] = samples
        return columns

    def _encodings(self, rows: Sequence[Any], call: Call) -> list[tuple[int, Any]]:
        """Pairs of (index of the row, `tokenizers.Encoding`), including overflowing parts if requested.

        Encodings are built from our ids; the backend does the rest: truncation, post-processing and padding.
        """
        encode = partial(self._text.encoding, backend=self._tokenizer, split_special_tokens=self._splits(call))
        made = []
        self._tokenizer.no_padding()  # all rows are padded together, below
        try:
            if call.longest is not None:
                self._tokenizer.enable_truncation(
                    call.longest,
                    stride=call.stride,
                    strategy=call.truncation_strategy.value,
                    direction=self.truncation_side,
                )
            else:
                self._tokenizer.no_truncation()
            for row in rows:
                first, second = row if isinstance(row, Pair) else (row, None)
                pair = None if second is None else encode(second, 1)
                made.append(self._tokenizer.post_process(encode(first, 0), pair, call.add_special_tokens))
        finally:
            self._tokenizer.no_truncation()  # a call must not change the pickle of this object
        padding = self._padding(call)
        target = padding.target([len(encoding.ids) for encoding in made])
        for encoding in made:
            if target:
                padding.fill_encoding(encoding, target)
        overflow = call.return_overflowing_tokens
        return [(i, part) for i, one in enumerate(made) for part in (one, *(one.overflowing if overflow else ()))]

    def _encode_without_added_tokens(self, text: str) -> list[int]:
        return self._text.tokenizer.encode_ordinary(text)

    # --- tokens and files ---

    def _add_tokens(self, new_tokens: Sequence[Any], special_tokens: bool = False) -> int:
        tokenizer = self._text.tokenizer
        its_own = {*tokenizer.special_tokens, *tokenizer.preparation.added_tokens}
        for token in new_tokens:
            content = str(token)
            known = self._tokenizer.token_to_id(content)
            flags = [name for name in ("lstrip", "rstrip", "single_word") if getattr(token, name, None) is True]
            if flags and (content not in its_own or tokenizer.preparation):
                raise UserError(
                    f"the added token {quoted(content)} has {flags[0]}=True, which is not supported: add it without "
                    "the flag"
                )
            if known is not None and known < tokenizer.vocab_size and content not in its_own:
                raise UserError(
                    f"{quoted(content)} is already a token (id {known}) and cannot be added; use another string"
                )
        added: int = super()._add_tokens(new_tokens, special_tokens)
        self._text.forget_added_tokens()
        return added

    def _with_added_tokens(self) -> Tokenizer:
        """Our tokenizer with the backend's added tokens and post-processor, to be saved with it."""
        tokenizer = self._text.tokenizer
        added = self._tokenizer.get_added_tokens_decoder()
        processor = self._tokenizer.post_processor
        template = {
            **(tokenizer.provenance.get(TEMPLATE) or {}),
            "added_tokens": {t.content: {"normalized": t.normalized, "special": t.special} for t in added.values()},
            "post_processor": None if processor is None else json.loads(processor.__getstate__()),
        }
        forms = tokenizer.preparation.forms
        flags = {token.content: {"normalized": token.normalized} for token in added.values()}
        preparation = Preparation(
            forms=forms,
            added_tokens={token.content: i for i, token in added.items() if not token.special},
            late=frozenset(name for name, flag in flags.items() if flag["normalized"] and (forms or overlap(flags))),
        )
        special_tokens = {token.content: i for i, token in added.items() if token.special}
        definition = replace(tokenizer.definition, special_tokens=special_tokens, preparation=preparation)
        return Tokenizer(definition, {**tokenizer.provenance, TEMPLATE: template})

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
        config = files.read_json(folder / formats.HF_CONFIG_FILE)
        # Name the stock class, so that it can open the folder too; `register` detects our file.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        formats.save(self._with_added_tokens(), folder, config)
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
    subfolder = options.get("subfolder") or ""
    if Path(name).is_dir():
        return (Path(name) / subfolder / formats.FILE).is_file()
    asked = {key: options[key] for key in _ASKED if options.get(key)}
    quiet = dict.fromkeys(("gated_repo", "missing_entries", "connection_errors"), False)
    flags = {f"_raise_exceptions_for_{key}": value for key, value in quiet.items()}
    try:
        return cached_file(str(name), formats.FILE, **asked, **flags) is not None
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

"""Causal language models of `transformers` as models that an evaluation can score."""

from __future__ import annotations

import copy
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.evaluate.deployment import Deployment
from lm.evaluate.forward import LOGITS, ScorableModel, chunked_nats, product
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lm.hf.first_token import StartToken
    from tokenizer.interface import TokenizerLike

_CONVERTED = 2**24
"""Weights of a 16-bit head that a CPU converts to fp32 at a time, 64 MiB."""
_COMPARED = 64
"""Positions whose losses are compared with the model's own logits."""
_UNLIMITED = 2**20
"""Positions of a model whose configuration names no limit."""
_ROPE_OF_LENGTH = ("dynamic", "longrope")
"""Rotations that depend on the length of the text, so that a cache has other keys than a whole pass."""
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "seq_length",
    "context_length",
    "max_seq_len",
)


class PretrainedModel(ScorableModel):
    """A causal language model of `transformers`.

    The layers run once, and the head in chunks and in fp32. The model's own code computes the logits of a chunk, so
    that scales and caps are as in the model. The first losses are compared with a whole forward pass; if they
    differ, whole forward passes are made, one row at a time.

    Args:
        model: The model, with an output head of at least the ids of text of the tokenizer.
        tokenizer: Its tokenizer.
        start: The token before the first one of a document.
        end_id: Id of the end of text; None if the model has none.

    Attributes:
        whole: Whether whole forward passes are made; None until one is needed.
        spare_rows: Rows of the embedding that belong to no id of the tokenizer.
        cached: Whether `past` gives caches; None until one is needed.

    Raises:
        UserError: If the model has too few rows.
    """

    def __init__(self, model: Any, tokenizer: TokenizerLike, start: StartToken, end_id: int | None) -> None:
        self._model = model.eval()
        self.tokenizer_sha256, self.vocab_size = tokenizer.sha256, tokenizer.vocab_size
        self.start_id, self.starts_windows, self.end_id = start.id, start.everywhere, end_id
        self.device = model.get_input_embeddings().weight.device
        self._before = torch.tensor(start.before, dtype=torch.long, device=self.device)
        self.context_tokens = context_tokens(model.config) - len(start.before)
        rows = model.get_input_embeddings().weight.shape[0]
        needed = max([start.id, *start.before, *([] if end_id is None else [end_id]), *tokenizer.text_ids().tolist()])
        if rows <= needed:
            raise UserError(
                f"the model has {rows:,} rows, but its tokenizer has the id {needed:,}; name a folder with the model's "
                "own tokenizer"
            )
        self.spare_rows = max(rows - self.vocab_size, 0)
        self._trunk = model.base_model
        self._options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
        head = model.get_output_embeddings()
        if isinstance(head, nn.Linear):
            model.set_output_embeddings(_Head(head, self.vocab_size))
        self.whole: bool | None = None
        self.cached: bool | None = None
        self._rounding = 1e-4 if next(model.parameters()).dtype == torch.float32 else 0.05

    def nats(self, ids: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Loss of some targets."""
        if self.whole is None:
            self.whole = not self._agrees(ids[:1, :_COMPARED])
        ids, places = self._after_start(ids, places)
        if self.whole:
            nats = torch.empty(len(targets), device=self.device)
            size = max(1, LOGITS // self.vocab_size)
            for chosen, own, logits in self._whole_passes(ids, places):
                for part, at in zip(torch.split(chosen, size), torch.split(own, size), strict=True):
                    nats[part] = F.cross_entropy(logits[at], targets[part], reduction="none")
            return nats
        hidden = self._hidden(ids).flatten(0, 1)
        hidden = hidden.index_select(0, places.to(hidden.device))
        return self._chunked(hidden, targets.to(hidden.device))

    def logits(self, ids: Tensor, places: Tensor, past: Any = None) -> Tensor:
        """Logits of the next token."""
        if self.whole is None:
            self.whole = not self._agrees(self._any_ids())
        if past is None:
            ids, places = self._after_start(ids, places)
        if self.whole:
            return torch.cat([logits[own] for _, own, logits in self._whole_passes(ids, places, past)])
        hidden = self._hidden(ids, past).flatten(0, 1)
        return self._head(hidden.index_select(0, places.to(hidden.device))).to(self.device)

    def past(self, ids: Sequence[int], before: Any = None, keep: int = 0) -> Any:
        """Cache of inputs; None unless all layers attend to every input: other caches cannot be cut."""
        if self.cached is None:
            self.cached = True
            self.cached = self._caches()
        if not self.cached:
            return None
        past = _rows(before, 1, keep + len(self._before)) if keep else None
        if not ids:
            return past
        if past is None:
            ids = [*self._before.tolist(), *ids]
        options = self._options if past is None else {"past_key_values": past}
        layers = self._model if self.whole else self._trunk
        inputs = torch.tensor([ids], device=self.device)
        return layers(input_ids=inputs, **options | {"use_cache": True}).past_key_values

    def _after_start(self, ids: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs, and indices into the flattened ones, after `StartToken.before` in every row."""
        if not len(self._before):
            return ids, places
        rows = torch.div(places, ids.shape[1], rounding_mode="floor")
        before = self._before.expand(len(ids), -1)
        return torch.cat((before, ids), 1), places + (rows + 1) * len(self._before)

    def _caches(self) -> bool:
        """Whether a cache gives the logits of a whole pass."""
        rope = str(getattr(self._model.config.get_text_config(), "rope_parameters", None))
        if any(kind in rope for kind in _ROPE_OF_LENGTH):
            return False
        ids = self._any_ids()
        half = ids.shape[1] // 2
        places = torch.arange(ids.shape[1] - half, device=self.device)
        own = self.logits(ids, places + half)
        try:
            past = self.past(ids[0, :half].tolist())
            if {type(layer).__name__ for layer in past.layers} != {"DynamicLayer"}:
                return False
            found = self.logits(ids[:, half:], places, past)
        except Exception:  # any, in code that others wrote
            return False
        return bool((found - own).abs().max() < self._rounding * (1 + own.abs().max()))

    def _any_ids(self) -> Tensor:
        return (torch.arange(min(_COMPARED, self.context_tokens), device=self.device) % self.vocab_size)[None]

    def _chunked(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return chunked_nats(self._head, hidden, targets, self.vocab_size, queued=hidden.is_cuda).to(self.device)

    def _hidden(self, ids: Tensor, past: Any = None) -> Tensor:
        """Output of the layers."""
        found: Tensor = self._trunk(input_ids=ids, **self._after(past, len(ids)))[0]
        return found

    def _after(self, past: Any, rows: int) -> dict[str, Any]:
        """Options of a forward pass after a cache."""
        return self._options if past is None else {"past_key_values": _rows(past, rows), "use_cache": True}

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, float32[n, vocab_size], by the model's own code."""
        with _returning(self._trunk, hidden[None]):
            return self._logits(torch.zeros((1, len(hidden)), dtype=torch.long, device=self.device))[0]

    def _logits(self, ids: Tensor, past: Any = None) -> Tensor:
        """Logits of a forward pass."""
        logits: Tensor = self._model(input_ids=ids, **self._after(past, len(ids))).logits
        return logits[..., : self.vocab_size].float()

    def _agrees(self, ids: Tensor) -> bool:
        """Whether the layers with the head in chunks give the losses of a whole forward pass."""
        targets = ids.roll(-1, 1)[0]
        logits = self._logits(ids)[0]
        rounding = self._rounding
        other = ids.clone()
        half = ids.shape[1] // 2
        other[0, half:] = (other[0, half:] + 1) % self.vocab_size
        seen = (self._logits(other)[0] - logits)[:half].abs()
        if seen.numel() and seen.max() > rounding * (1 + logits.abs().max()):
            raise UserError("the model is not causal: it sees the tokens that it is to predict; leave it out")
        own = F.cross_entropy(logits, targets, reduction="none")
        try:
            found = self._chunked(self._hidden(ids)[0], targets)
        except Exception:  # any, in code that others wrote
            return False
        return found.shape == own.shape and bool((found - own).abs().max() < rounding * (1 + own.abs().max()))

    def _whole_passes(self, ids: Tensor, places: Tensor, past: Any = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each row, by a whole forward pass: indices of its places, its places, and its logits."""
        width = ids.shape[1]
        for row in range(len(ids)):
            chosen = (places // width == row).nonzero()[:, 0]
            if not len(chosen):
                continue
            own = places[chosen] - row * width
            yield chosen, own, self._logits(ids[row : row + 1, : int(own.max()) + 1], past)[0]


class _Head(nn.Module):
    """An output head whose logits are in fp32 whatever its weights, for the first ids only."""

    def __init__(self, head: nn.Linear, vocab_size: int) -> None:
        super().__init__()
        bias: Tensor | None = head.bias
        self.weight = nn.Parameter(head.weight[:vocab_size], requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias[:vocab_size], requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.to(self.weight.device)
        if self.weight.dtype == torch.float32:
            return F.linear(hidden.float(), self.weight, self.bias)
        flat = hidden.flatten(0, -2)
        if hidden.is_cuda:
            logits = product(flat.to(self.weight.dtype), self.weight)
        else:
            logits = torch.empty((len(flat), len(self.weight)))
            rows = max(1, _CONVERTED // self.weight.shape[1])
            for first in range(0, len(self.weight), rows):
                logits[:, first : first + rows] = product(flat, self.weight[first : first + rows])
        logits = logits.view(*hidden.shape[:-1], -1)
        return logits if self.bias is None else logits + self.bias.float()


class _Output:
    """Output of a model's layers that has only hidden states."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, place: int) -> Tensor | None:
        return None if place else self.last_hidden_state

    def __getattr__(self, name: str) -> None:
        return None


def _rows(cache: Any, rows: int, tokens: int | None = None) -> Any:
    """The first tokens of a cache of one row, for several rows; the cache itself does not change."""
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in copied.layers:
        layer.keys, layer.values = (x[:, :, :tokens].expand(rows, -1, -1, -1) for x in (layer.keys, layer.values))
    return copied


@contextmanager
def _returning(trunk: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Let the layers return given hidden states in the block."""
    before = trunk.__dict__.get("forward")
    trunk.forward = lambda *_, **__: _Output(hidden)
    try:
        yield
    finally:
        if before is None:
            del trunk.forward
        else:
            trunk.forward = before


def context_tokens(config: Any) -> int:
    """Number of positions that a model was trained for."""
    text = config.get_text_config()
    limits = [getattr(text, name, None) for name in _POSITIONS]
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), _UNLIMITED)


def deployment_of(model: Any, context_bytes: int) -> Deployment:
    """Shape of a model, for the price of serving it.

    Other layers than attention are priced as attention with the heads of the configuration. A model whose configuration
    does not have the usual entries is priced by its number of weights.
    """
    config = model.config.get_text_config()
    table = model.get_input_embeddings().weight
    weights = dict(model.named_parameters())

    def first(*names: str) -> int:
        found = (getattr(config, name, None) for name in names)
        return next((value for value in found if isinstance(value, int) and value > 0), 0)

    hidden = table.shape[1]
    heads = first("num_attention_heads") or 1
    kv_heads = first("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        kv_heads = 1
    experts = first("num_local_experts", "num_experts", "n_routed_experts")
    mlp_size = first("intermediate_size", "n_inner", "ffn_dim")
    if experts:
        mlp_size = first("moe_intermediate_size") or mlp_size
    try:
        return Deployment(
            n_layers=first("num_hidden_layers"),
            hidden_size=hidden,
            n_heads=heads,
            n_kv_heads=kv_heads or heads,
            head_dim=first("head_dim") or hidden // heads,
            mlp="gated" if any("gate_" in name or ".w1." in name for name in weights) else "plain",
            mlp_size=mlp_size or 4 * hidden,
            n_experts=experts,
            active_experts=first("num_experts_per_tok") if experts else 0,
            shared_experts=first("n_shared_experts") if experts else 1,
            context_bytes=context_bytes,
        )
    except UserError:  # zero layers, for instance
        inner = sum(weight.numel() for weight in weights.values() if weight.shape[:1] != table.shape[:1])
        size = max(1, inner // (2 * hidden))
        return Deployment(
            n_layers=1, hidden_size=hidden, n_heads=1, n_kv_heads=1, head_dim=1, mlp="plain", mlp_size=size,
            context_bytes=context_bytes,
        )  # fmt: skip


def parameters_of(model: Any) -> tuple[int, int]:
    """Number of parameters of a model: in all, and without the embedding and an untied output head."""
    total: int = model.num_parameters()
    tables = {weight.data_ptr(): weight.numel() for weight in (model.get_input_embeddings().weight,)}
    head = model.get_output_embeddings()
    if head is not None:
        tables[head.weight.data_ptr()] = head.weight.numel()
    return total, total - sum(tables.values())

r"""Speed and correctness on a GPU, in parts that fit into ten minutes each, without Hydra and without a network.

    python -m experiments.benchmarks.gpu prepare TEXT... --data FOLDER
    python -m experiments.benchmarks.gpu measure --part training --minutes 8 --data FOLDER --to OUT

`prepare` writes what the parts read: two tokenizers, and text as compressed JSON lines, small enough to be copied to a
machine that has nothing else. `measure` needs PyTorch, NumPy, the compiled core and (`tests`) pytest. Each part writes
`OUT/PART.json` and a table, `OUT/PART.md`, after every row, so that a part that is stopped leaves what it has measured.

- tests: the tests marked `cuda`.
- matmul: matrix products and attention kernels, the limits of the other parts.
- training: steps of the trainer on random tokens, by depth, row length and vocabulary.
- peer: the same steps of `transformers`' Llama (a plain one without `transformers`), compiled, in turn.
- evaluation: held-out tokens per second beside a plain forward pass, and byte probabilities in batches.
- bakeoff: models of both tokenizers on the text of `prepare`, equal bytes, as many rungs as the time allows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.benchmarks import common
from experiments.benchmarks.train_lm import hugging_face_llama
from experiments.cli.console import exit_code
from lm.bytelevel.byte_model import ByteModel
from lm.data.sharding import write_shards
from lm.data.shards import END_OF_TEXT, Shards, TextLoss
from lm.evaluate.comparison import compare_all
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.model.config import ModelConfig
from lm.model.device import arithmetic, resolve_device
from lm.model.language_model import LanguageModel
from lm.model.packing import compiled_flex_attention, document_blocks
from lm.model.transformer import Transformer
from lm.model.weights import load_model
from lm.train.config import TrainConfig
from lm.train.diagnostics import matmul_flops_per_second
from lm.train.loop import train
from lm.train.trainer import Trainer
from superbpe import train_superbpe
from tokenizer import Tokenizer, count_pretokens, train_bpe
from tokenizer.errors import UserError

Row = dict[str, Any]
Part = Callable[["Run"], Iterator[Row]]
ARMS = ("bpe", "superwords")
MIB = 2**20
NOMINAL = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
"""Dense bf16 FLOPs per second, by a part of the device's name, from the vendor's data sheets."""


@dataclass
class Run:
    """One part: its options, its device and the time that is left."""

    options: argparse.Namespace
    device: torch.device
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return 60.0 * float(self.options.minutes) - (time.monotonic() - self.began)

    @property
    def toy(self) -> bool:
        """Whether to measure the smallest sizes."""
        return bool(self.options.toy)

    @property
    def precision(self) -> str:
        """Precision of matrix products."""
        return str(arithmetic("auto", "auto", self.device)["precision"])

    def limit(self) -> float:
        """FLOPs per second of a large matrix product."""
        return matmul_flops_per_second(self.device.type, self.precision, torch.get_num_threads())

    def nominal(self) -> float | None:
        """FLOPs per second by the data sheet."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else ""
        return next((flops for part, flops in NOMINAL.items() if part in name), None)

    def seconds(self, work: Callable[[], Any], rounds: int = 5) -> float:
        """Seconds of one call, on average over some rounds after one that warms up."""
        work()
        self.synchronize()
        began = time.perf_counter()
        for _ in range(rounds):
            work()
        self.synchronize()
        return (time.perf_counter() - began) / rounds

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak_gigabytes(self) -> float:
        """Most memory in use since the last call."""
        if self.device.type != "cuda":
            return 0.0
        peak = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return peak


class SyntheticShards(Shards):
    """Documents of random tokens in memory; tokens have the frequencies of a Zipf law and 4 bytes each."""

    def __init__(self, vocab_size: int, n_tokens: int, document_tokens: int = 600) -> None:
        rng = np.random.default_rng(0)
        weights = np.cumsum(1 / (np.arange(vocab_size - 1) + 10))
        tokens = np.searchsorted(weights, rng.random(n_tokens) * weights[-1]).clip(max=vocab_size - 2)
        lengths = rng.lognormal(0, 1, 2 + 2 * n_tokens // document_tokens) * document_tokens / math.exp(0.5)
        ends = np.cumsum(lengths.astype(np.int64) + 2)
        self.document_ends = np.append(ends[ends < n_tokens - 2], n_tokens)
        self.vocab_size, self.eos_id, self.n_tokens = vocab_size, vocab_size - 1, n_tokens
        tokens[np.concatenate(([0], self.document_ends[:-1]))] = self.eos_id
        self._files, self._starts = [tokens.astype(np.uint32)], np.array([0, n_tokens])
        self.n_documents = len(self.document_ends)
        self.document_bytes = 4 * (np.diff(self.document_ends, prepend=0) - 1)
        self.n_bytes = int(self.document_bytes.sum())
        self.normalized_bytes, self.covered_bytes = np.zeros(self.n_documents, np.int64), None
        self.token_byte_lengths = np.append(np.full(vocab_size - 1, 4), 0)
        self.token_hashes = np.arange(vocab_size, dtype=np.uint64)
        self.folder, self.tokenizer_sha256, self.text_loss = Path("synthetic"), "", TextLoss()


@dataclass(frozen=True)
class Case:
    """Sizes of one measurement of training."""

    depth: int
    context: int
    vocabulary: int
    document_mask: bool = True
    compile: bool | str = "auto"

    def trainer(self, run: Run, folder: Path) -> Trainer:
        """A run of 2^18 tokens a step and 2^15 or 2^16 tokens a forward pass; tiny for toys."""
        tokens = 4 * self.context if run.toy else 1 << 18
        part = 2 * self.context if run.toy else 1 << (15 if self.depth > 16 else 16)
        config = TrainConfig(
            train_bytes=10**6 * tokens,
            bytes_per_step=tokens,
            context_bytes=self.context,
            context_tokens=self.context,
            document_mask=self.document_mask,
            microbatch_size=max(1, part // self.context),
            device=str(run.device),
            compile=self.compile,
            diagnostics_every=0,
            log_every=10**6,
        )
        shards = SyntheticShards(self.vocabulary, max(4 * tokens, 1 << (12 if run.toy else 22)), 20 if run.toy else 600)
        model = ModelConfig(n_layers=self.depth, hidden_size=32 if run.toy else 0, head_dim=16 if run.toy else 64)
        return Trainer(model, config, shards, folder)

    def row(self, trainer: Trainer) -> Row:
        """The sizes for a table."""
        return {
            "layers": self.depth,
            "context": self.context,
            "vocabulary": self.vocabulary,
            "documents": "masked" if self.document_mask else "joined",
            "compiled": bool(trainer.identity.get("compile")),
            "parameters": trainer.model.n_parameters()["total"],
        }


FIRST = [Case(24, 2048, 50_304), Case(12, 2048, 50_304)]
CASES = [
    *FIRST,
    *(Case(24, 2048, 200_064), Case(12, 1024, 50_304), Case(24, 4096, 50_304), Case(24, 1024, 50_304)),
    *(Case(12, 4096, 50_304), Case(12, 2048, 200_064), Case(12, 2048, 50_304, document_mask=False)),
    Case(12, 2048, 50_304, compile=False),
]
TOYS = [Case(1, 16, 300), Case(2, 32, 600)]


def tests(run: Run) -> Iterator[Row]:
    """Run the tests of a CUDA device; one row with their numbers, and one for each failure."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = ["-k", "test_generation"] if run.toy else ["-m", "cuda"]
        command = [sys.executable, "-m", "pytest", "-q", "tests/lm/cuda", *chosen, f"--junitxml={report}"]
        try:
            subprocess.run(command, check=False, timeout=max(1.0, run.left))
        except subprocess.TimeoutExpired:
            yield {"test": "all", "result": f"stopped after {run.options.minutes} minutes"}
            return
        suite = next(ElementTree.parse(report).iter("testsuite"))
        counts = ("tests", "failures", "errors", "skipped")
        yield {"test": "all", "result": " ".join(f"{name}={suite.get(name)}" for name in counts)}
        for case in suite.iter("testcase"):
            for problem in (*case.findall("failure"), *case.findall("error")):
                yield {"test": case.get("name"), "result": (problem.get("message") or "")[:300]}


def matmul(run: Run) -> Iterator[Row]:
    """Matrix products of the models' shapes, and attention within documents by several kernels."""
    dtype = torch.bfloat16 if run.precision == "bf16" else torch.float32
    flops = run.limit()
    share = flops / nominal if (nominal := run.nominal()) else None
    yield {"work": f"large product, {run.precision}", "FLOPs/s": flops, "of nominal": share}
    tokens, widths = (64, (32,)) if run.toy else (1 << 15, (768, 1536))
    for width in widths:
        for outputs in (width, math.ceil(width * 8 / 3 / 32) * 32, 600 if run.toy else 50_304):
            left, right = (torch.randn(n, width, device=run.device, dtype=dtype) for n in (tokens, outputs))
            seconds = run.seconds(lambda left=left, right=right: left @ right.T)  # type: ignore[misc]
            rate = 2 * tokens * width * outputs / seconds
            yield {"work": f"{tokens} x {width} x {outputs}", "FLOPs/s": rate, "of large product": rate / flops}
    yield from _attention(run, dtype)


def _attention(run: Run, dtype: torch.dtype) -> Iterator[Row]:
    rows, heads, length, size = (2, 2, 64, 16) if run.toy else (16, 24, 2048, 64)
    shards = SyntheticShards(300, rows * length * 4, max(8, length // 4))
    ids = torch.from_numpy(shards.tokens(0, rows * length)).view(rows, length).to(run.device)
    documents = (ids == shards.eos_id).cumsum(1)
    shape = (rows, heads, length, size)
    inputs = [torch.randn(shape, device=run.device, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = (documents[:, None, :, None] == documents[:, None, None, :]).tril()
    kernels: dict[str, Callable[..., Tensor]] = {
        "causal, rows as one document": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "documents, dense mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    }
    if run.device.type == "cuda":  # on a CPU it has no backward pass
        blocks = document_blocks(documents)
        kernels["documents, FlexAttention"] = lambda q, k, v: compiled_flex_attention()(q, k, v, block_mask=blocks)
    for name, kernel in kernels.items():

        def both(kernel: Callable[..., Tensor] = kernel) -> None:
            torch.autograd.backward(kernel(*inputs).sum())

        work = f"attention forward and backward, {name}, {list(shape)}"
        yield {"work": work, "milliseconds": 1e3 * run.seconds(both)}


def training(run: Run) -> Iterator[Row]:
    """Steps of the trainer."""
    for case in TOYS if run.toy else CASES:
        if run.left < 60 and not run.toy:
            yield {"layers": case.depth, "context": case.context, "vocabulary": case.vocabulary, "note": "no time left"}
            continue
        with tempfile.TemporaryDirectory() as folder:
            yield _steps(run, case, Path(folder))


def _steps(run: Run, case: Case, folder: Path) -> Row:
    run.peak_gigabytes()
    trainer = case.trainer(run, folder)
    row = case.row(trainer)
    try:
        began = time.perf_counter()
        trainer.begin()
        for _ in range(2):
            trainer.advance()
        run.synchronize()
        warm_up = time.perf_counter() - began
        waited, began, first = trainer.data_seconds, time.perf_counter(), trainer.step
        while trainer.step < first + 2 or (time.perf_counter() - began < 15 and not run.toy):
            trainer.advance()
            run.synchronize()  # once in 2^18 tokens, so that the time is not overrun
        elapsed = time.perf_counter() - began
    except torch.OutOfMemoryError:
        return row | {"note": "out of memory"}
    rate = (trainer.step - first) * trainer.tokens_per_step / elapsed
    flops, nominal = rate * trainer.flops_per_token, run.nominal()
    return row | {
        "tokens/s": rate,
        "MFU, measured limit": flops / run.limit(),
        "MFU, nominal": flops / nominal if nominal else None,
        "peak GB": run.peak_gigabytes(),
        "data wait": (trainer.data_seconds - waited) / elapsed,
        "warm-up s": warm_up,
    }


class PlainLlama(nn.Module):
    """Llama in plain PyTorch: the logits of all positions, and their cross-entropy."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of int64[rows, positions]."""
        return F.cross_entropy(self.model.head(self.model.hidden(inputs)).flatten(0, 1).float(), targets.flatten())


def _llama(trainer: Trainer) -> tuple[str, nn.Module, Callable[[nn.Module, Tensor, Tensor], Tensor]]:
    """A peer of the same shape, and its mean loss."""
    shape = trainer.model.config
    try:
        import transformers
    except ImportError:
        peer = Transformer(shape, trainer.model.vocab_size, trainer.context_tokens)
        peer.initialize(0, trainer.shards.token_hashes)
        return "plain Llama", PlainLlama(peer), lambda model, inputs, targets: model(inputs, targets)

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        found: Tensor = model(input_ids=inputs, labels=targets, shift_labels=targets, use_cache=False).loss
        return found

    return f"transformers {transformers.__version__}", hugging_face_llama(trainer), loss


def peer(run: Run) -> Iterator[Row]:
    """Our steps and a Llama's in turn, over whole rows, with AdamW for the Llama."""
    for case in TOYS[:1] if run.toy else FIRST:
        case = Case(case.depth, case.context, case.vocabulary, document_mask=False)
        with tempfile.TemporaryDirectory() as folder:
            ours = _steps(run, case, Path(folder))
            yield {"model": "ours"} | ours
            trainer = case.trainer(run, Path(folder))
            trainer.model.cpu()  # only its shape and its batches are used
            name, model, loss = _llama(trainer)
            try:
                rate = _peer_steps(run, trainer, model.to(run.device), loss)
            except torch.OutOfMemoryError:
                yield {"model": name} | case.row(trainer) | {"note": "out of memory"}
                continue
            flops = rate * trainer.flops_per_token
            yield (
                {"model": name}
                | case.row(trainer)
                | {
                    "tokens/s": rate,
                    "MFU, measured limit": flops / run.limit(),
                    "peak GB": run.peak_gigabytes(),
                    "ours / peer": ours["tokens/s"] / rate if "tokens/s" in ours else None,
                }
            )


def _peer_steps(run: Run, trainer: Trainer, model: nn.Module, loss: Callable[..., Tensor]) -> float:
    """Tokens per second of the peer."""
    if run.device.type == "cuda":
        torch.compiler.reset()
        model.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    config, rows = trainer.config, trainer.config.microbatch_size or trainer.config.batch_size
    run.peak_gigabytes()

    def step(number: int) -> None:
        ids, _ = trainer.batches.take(number, 10**6)
        inputs, targets = (x.view(config.batch_size, -1) for x in (ids[:-1], ids[1:]))
        for first in range(0, config.batch_size, rows):
            part = slice(first, first + rows)
            with torch.autocast(run.device.type, torch.bfloat16, enabled=run.precision == "bf16"):
                mean = loss(model, inputs[part], targets[part])
            torch.autograd.backward(mean * (rows / config.batch_size))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.synchronize()

    for number in range(2):
        step(number)
    began, number = time.perf_counter(), 2
    while number < 4 or (time.perf_counter() - began < 15 and not run.toy):
        step(number)
        number += 1
    return (number - 2) * trainer.tokens_per_step / (time.perf_counter() - began)


def evaluation(run: Run) -> Iterator[Row]:
    """Evaluation beside the plain forward pass, by depth and batch; then byte probabilities."""
    context, sizes = (32, (128,)) if run.toy else (1024, (8192, 32_768, 131_072))
    for case in TOYS[1:] if run.toy else FIRST[::-1]:
        torch.compiler.reset()  # Torch keeps a limited number of graphs
        shards = SyntheticShards(case.vocabulary, 1 << (12 if run.toy else 22), 20 if run.toy else 600)
        config = ModelConfig(n_layers=case.depth, hidden_size=32 if run.toy else 0, head_dim=16 if run.toy else 64)
        model = Transformer(config, case.vocabulary, context)
        model.initialize(0, shards.token_hashes)
        model = model.to(run.device).eval()
        for size in sizes:
            row = {"layers": case.depth, "vocabulary": case.vocabulary, "batch_tokens": size}
            plain = _plain_rate(run, model, shards, size)
            for least in (0, context):
                settings = EvalConfig(context_bytes=3 * context, min_context_bytes=least, batch_tokens=size)

                def score(model: Transformer = model, settings: EvalConfig = settings) -> Any:
                    return evaluate(model, shards, shards.token_byte_lengths, settings)  # noqa: B023

                score()  # compiles
                began = time.perf_counter()
                found = score()
                elapsed = time.perf_counter() - began
                yield row | {
                    "min_context_bytes": least,
                    "MB/s": shards.n_bytes / elapsed / 1e6,
                    "tokens/s": found.forward_tokens / elapsed,
                    "plain tokens/s": plain,
                    "of plain": found.forward_tokens / elapsed / plain,
                    "peak GB": run.peak_gigabytes(),
                }
            if run.left < 60 and not run.toy:
                return
    if (run.options.data / "tokenizers").is_dir():
        yield from _bytewise(run)


@torch.no_grad()
def _plain_rate(run: Run, model: Transformer, shards: Shards, batch_tokens: int) -> float:
    """Tokens per second of the forward pass over full rows, which discards the logits."""
    rows = max(1, batch_tokens // model.context_tokens)
    ids = torch.from_numpy(shards.tokens(0, rows * model.context_tokens)).view(rows, -1).to(run.device)
    hidden = torch.compile(model.hidden, dynamic=False) if run.device.type == "cuda" else model.hidden

    def work() -> Tensor:
        with torch.autocast(run.device.type, torch.bfloat16, enabled=run.precision == "bf16"):
            return model.head(hidden(ids))

    return ids.numel() / run.seconds(work, rounds=2 if run.toy else 20)


def _bytewise(run: Run) -> Iterator[Row]:
    """Answers scored per second by bytes, one prompt at a time and in batches."""
    tokenizer = Tokenizer.load(run.options.data / "tokenizers" / "superwords")
    n = 4 if run.toy else 128
    shape = ModelConfig(n_layers=1, hidden_size=32, head_dim=16) if run.toy else ModelConfig(n_layers=12)
    model = Transformer(shape, tokenizer.vocab_size, 512)
    model.initialize(0, range(tokenizer.vocab_size))
    lm = LanguageModel(model.to(run.device), tokenizer)
    with gzip.open(run.options.data / "heldout.jsonl.gz", "rt") as file:
        text = "".join(json.loads(line)["text"] + "\n" for line in file)[: n * 1200]
    size = max(8, len(text) // n)
    starts = range(0, len(text) - size, size)
    requests = [(text[i : i + size - 40], [text[i + size - 40 : i + size], " no", " yes"]) for i in starts]
    rates = {}
    for rows in (1, 32):
        scorer = ByteModel(lm, batch_rows=rows)
        scorer.choices_of(requests[: rows + 1])
        began = time.perf_counter()
        scorer.choices_of(requests)
        rates[rows] = len(requests) / (time.perf_counter() - began)
    row = {"layers": shape.n_layers, "vocabulary": tokenizer.vocab_size}
    yield row | {"prompts/s": rates[1], "prompts/s, batches": rates[32]}


def bakeoff(run: Run) -> Iterator[Row]:
    """Train and score one model per arm, seed and budget of text; smaller budgets first."""
    data, options = run.options.data, run.options
    with tempfile.TemporaryDirectory() as name:
        folder, shards = Path(name), {}
        for arm in ARMS:
            tokenizer = Tokenizer.load(data / "tokenizers" / arm)
            for split in ("train", "heldout"):
                text = common.corpus([str(data / f"{split}.jsonl.gz")], "text", None)
                write_shards(folder / arm / split, tokenizer, text.batches("all"))
                shards[arm, split] = Shards.open(folder / arm / split, tokenizer, verify="never")
        model = ModelConfig(n_layers=options.layers, hidden_size=32 if run.toy else 0, head_dim=16 if run.toy else 64)
        took = 0.0
        for megabytes in options.budgets:
            runs: dict[str, list[Any]] = {arm: [] for arm in ARMS}
            for seed in range(options.seeds):
                if took * 1.2 > run.left:
                    break
                began = time.monotonic()
                for arm in ARMS:
                    config = _bakeoff_config(run, int(megabytes * 1e6), seed)
                    place = folder / f"{arm}-{megabytes}-{seed}"
                    summary = train(model, config, shards[arm, "train"], place)
                    heldout = shards[arm, "heldout"]
                    settings = EvalConfig(config.context_bytes * 3 // 4, config.context_bytes // 4, 32_768)
                    scores = evaluate(load_model(place, str(run.device)), heldout, heldout.token_byte_lengths, settings)
                    runs[arm].append(scores)
                    yield {
                        "MB": megabytes,
                        "seed": seed,
                        "arm": arm,
                        "bits per byte": scores.bits_per_byte,
                        "bytes/token": heldout.n_bytes / (heldout.n_tokens - heldout.n_documents),
                        "parameters": summary.parameters_total,
                        "FLOPs": summary.flops,
                        "tokens/s": summary.tokens_per_second,
                        "epochs": summary.epochs,
                        "seconds": summary.seconds,
                    }
                took = (time.monotonic() - began) * 2  # the next budget is about twice as large
            if runs[ARMS[0]]:
                found = compare_all([runs[arm] for arm in ARMS])[0, 1].summary()
                yield {"MB": megabytes, "arm": " - ".join(ARMS[::-1]), "comparison": found}


def _bakeoff_config(run: Run, train_bytes: int, seed: int) -> TrainConfig:
    step, context = (512, 128) if run.toy else (1 << 18, 4096)
    return TrainConfig(
        train_bytes=max(train_bytes, step),
        bytes_per_step=step,
        context_bytes=context,
        document_mask=True,
        seed=seed,
        log_every=100,
        diagnostics_every=0,
        device=str(run.device),
        checkpoint_seconds=1e9,
    )


def prepare(options: argparse.Namespace) -> None:
    """Train both tokenizers and write the text."""
    text = common.corpus(options.paths, options.field, options.max_bytes)
    transition = options.vocab_size * 9 // 10
    bpe = train_bpe(count_pretokens(text.batches(), "superbpe"), options.vocab_size, special_tokens=[END_OF_TEXT])
    size = options.vocab_size
    superwords = train_superbpe(bpe, text.batches, vocab_size=size, transition=transition, rules="uw-2025")
    for arm, tokenizer in zip(ARMS, (bpe, superwords), strict=True):
        tokenizer.save(options.data / "tokenizers" / arm)
    files = {split: gzip.open(options.data / f"{split}.jsonl.gz", "wt") for split in ("train", "heldout")}  # noqa: SIM115
    number = 0
    for batch in text.batches("all"):
        for i in range(len(batch)):
            split = "heldout" if number % options.heldout_every == 0 else "train"
            files[split].write(json.dumps({"text": batch.text(i)}, ensure_ascii=False) + "\n")
            number += 1
    for file in files.values():
        file.close()
    size = sum(path.stat().st_size for path in options.data.rglob("*") if path.is_file())
    print(f"{options.data}: {size / MIB:.1f} MiB, {number} documents")
    if size > MIB * options.max_mib:
        raise UserError(f"{options.data} has more than {options.max_mib} MiB; use a smaller --max-bytes")


PARTS: dict[str, Part] = {part.__name__: part for part in (tests, matmul, training, peer, evaluation, bakeoff)}


def measure(options: argparse.Namespace) -> None:
    """Measure one part; write its rows after each."""
    run = Run(options, resolve_device(options.device))
    options.to.mkdir(parents=True, exist_ok=True)
    facts = {
        "part": options.part,
        "device": torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "command": " ".join(sys.argv[1:]),
    }
    rows: list[Row] = []
    for row in PARTS[options.part](run):
        rows.append(row)
        seconds = round(time.monotonic() - run.began, 1)
        content = json.dumps({**facts, "seconds": seconds, "rows": rows}, indent=1)
        (options.to / f"{options.part}.json").write_text(content)
        (options.to / f"{options.part}.md").write_text(markdown(rows))
        print(f"{seconds:7.1f} s  {json.dumps(row)}", flush=True)


def markdown(rows: list[Row]) -> str:
    """Return a table with the columns of all rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def main(argv: list[str]) -> int:
    """Parse the command line and do the work; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("prepare", help="write tokenizers and text")
    making.add_argument("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs")
    making.add_argument("--field", default="text", help="field that holds the text (default text)")
    making.add_argument("--max-bytes", type=common.size, metavar="SIZE", help="100MB, or all (default)")
    making.add_argument("--vocab-size", type=common.positive, default=32_768)
    making.add_argument("--heldout-every", type=common.positive, default=50, help="hold out one document in so many")
    making.add_argument("--max-mib", type=common.positive, default=45, help="most that the folder may have")
    measuring = commands.add_parser("measure", help="measure one part")
    measuring.add_argument("--part", choices=PARTS, required=True)
    measuring.add_argument("--minutes", type=float, default=9.0, help="no new row is begun after this time")
    measuring.add_argument("--to", type=Path, required=True, help="folder of the JSON and the table")
    measuring.add_argument("--device", default="auto")
    measuring.add_argument("--toy", action="store_true", help="the smallest sizes, for a test on a CPU")
    measuring.add_argument("--layers", type=common.positive, default=8, help="bakeoff: layers of the models")
    measuring.add_argument("--seeds", type=common.positive, default=1, help="bakeoff: seeds")
    measuring.add_argument("--budgets", type=float, nargs="+", default=[50, 100, 200], help="bakeoff: MB of text")
    for command in (making, measuring):
        command.add_argument("--data", type=Path, default=Path("gpu-data"), help="folder of `prepare`")
    options = parser.parse_args(argv)
    return exit_code(lambda: prepare(options) if options.command == "prepare" else measure(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

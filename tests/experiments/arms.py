"""Made-up arms of an experiment, and their comparisons."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.findings.compared import scored as load_scored
from experiments.results import TrainedModel
from experiments.stages.shards import EncodedArm
from lm.data.shards import TextLoss
from lm.evaluate.comparison import Comparison
from tests.lm.evaluate.evaluations import made_up

N_DOCUMENTS = 98


def scored(label, bits, vocab_size=8192, parameters=1000, layers=600, n_seeds=1, barred="", settings=None, flops=1000):
    summary = SimpleNamespace(parameters_total=parameters, parameters_non_embedding=layers, flops=flops)
    model = SimpleNamespace(contents=TrainedModel(tokenizer="t", summary=summary))
    return SimpleNamespace(
        trained_here=True,
        label=label,
        settings=settings or {},
        tokenizer=SimpleNamespace(vocab_size=vocab_size),
        lm=model,
        lms=[model] * n_seeds,
        scores=SimpleNamespace(bits_per_byte=bits),
        heldout=SimpleNamespace(contents=SimpleNamespace(text_loss=None)),
        barred=barred,
        untraced="",
    )


def compared(difference, *, n_documents=50, apart=True, **settings):
    """A comparison with 2 bits per byte, whose interval contains 0 unless `apart`."""
    percent = 50 * difference
    interval = (percent, percent) if apart else (-abs(percent), abs(percent))
    counts = {"n_clusters": n_documents, "effective_clusters": float(n_documents), "n_seeds": 3}
    interval = settings.pop("interval", interval)
    settings = {**counts, "seed_error": 0.21, "document_error": 0.13, **settings}
    return Comparison(
        bits_per_byte_a=2.0,
        bits_per_byte_b=2.0 + difference,
        percent=percent,
        interval=interval,
        confidence=0.95,
        n_documents=n_documents,
        **settings,
    )


def measured_arm(
    label,
    shift,
    *,
    changed=0,
    scale=1.0,
    n_bytes=1000,
    bytes_per_token=(4, 4),
    heldout_paths=(),
    groups=None,
    tokens=100,
    flops=1000,
):
    """An arm with three seeds, whose tokenizer changes this many documents of equal size."""
    rng, sizes = np.random.default_rng(0), np.full(N_DOCUMENTS, 1000)
    base = sizes * rng.normal(1.0, 0.2, N_DOCUMENTS)
    lost = np.arange(N_DOCUMENTS) < changed
    evaluations = [
        made_up(scale * (base + sizes * rng.normal(shift, 0.01, N_DOCUMENTS)), sizes, groups, lost) for _ in range(3)
    ]
    amounts = {"flops": flops, "bytes": n_bytes, "tokens": tokens, "seconds": 1.0, "steps": 1}
    summary = SimpleNamespace(parameters_total=1000, parameters_non_embedding=600, **amounts)
    lm = SimpleNamespace(contents=TrainedModel(tokenizer="t", summary=summary), name="lm", folder=Path("nowhere"))
    loss = TextLoss(changed_documents=changed) if changed else None
    settings = {"corpus.source": "files", "corpus.heldout_paths": heldout_paths}
    tokenizer = SimpleNamespace(vocab_size=300, superword_ids=list, text_ids=lambda: np.arange(300))
    arm = SimpleNamespace(key=label, label=label, tokenizer=tokenizer, settings=settings)
    arm.artifact, arm.record, arm.counts = lm, None, None
    training, heldout = (
        SimpleNamespace(contents=SimpleNamespace(text_loss=loss, corpus="c", bytes_per_token=density), name="shards")
        for density in bytes_per_token
    )
    cost = {"prefill_flops_per_byte": 1.0, "decode_flops_per_byte": 1.0, "kv_bytes_per_byte": 1.0}
    contents = SimpleNamespace(cost=cost)
    artifacts = [SimpleNamespace(path=each, contents=contents, name="evaluation") for each in evaluations]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.findings.compared.Evaluation.load", lambda path: path)
        return load_scored(EncodedArm.of(arm, training, heldout), [lm] * 3, artifacts)

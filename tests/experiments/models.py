"""Two untrained models in a folder of artifacts, as the stages leave trained ones."""

import hashlib

from experiments.results import Folder
from experiments.store.artifacts import Store
from lm.model.weights import save_model
from superbpe import Rules, train_superbpe
from tests import texts
from tests.lm import tiny
from tokenizer import Batch, count_pretokens, train_bpe


def write_models(root, training=None, *, transition=350, vocab_size=400):
    """Two artifacts `lm-*`, BPE's first, with their tokenizers; returns their folders."""
    batches = [Batch.from_texts(training or texts.sample(60_000))]
    bpe = train_bpe(count_pretokens(batches, "gpt2"), transition + 10)
    superbpe = train_superbpe(bpe, lambda: batches, vocab_size=vocab_size, transition=transition, rules=Rules())
    return [write_model(Store(root), tokenizer, seed) for seed, tokenizer in enumerate((bpe, superbpe))]


def write_model(store, tokenizer, seed):
    store.root.mkdir(parents=True, exist_ok=True)
    model = tiny.model(tokenizer.vocab_size, 96, seed=seed, scale=0.1, sha256=tokenizer.sha256)
    for stage, name, key, write in (
        ("tokenizer", f"tokenizer-{tokenizer.sha256[:12]}", tokenizer.sha256, tokenizer.save),
        ("lm", f"lm-{seed:012x}", hashlib.sha256(bytes([seed])).hexdigest(), lambda folder: save_model(model, folder)),
    ):

        def build(folder, write=write):
            write(folder)
            return Folder()

        artifact = store.make(Folder, stage, config={}, inputs={}, build=build, name=name, key=key)
    return artifact.path

"""Made-up arms of an experiment, and their comparisons."""

from types import SimpleNamespace

from lm.evaluate.comparison import Comparison


def scored(label, bits, vocab_size=8192, parameters=1000, layers=600, n_seeds=1, barred="", settings=None, flops=1000):
    summary = SimpleNamespace(parameters_total=parameters, parameters_non_embedding=layers, flops=flops)
    model = SimpleNamespace(contents=SimpleNamespace(summary=summary))
    return SimpleNamespace(
        label=label,
        arm=SimpleNamespace(settings=settings or {}),
        tokenizer=SimpleNamespace(vocab_size=vocab_size),
        lm=model,
        lms=[model] * n_seeds,
        scores=SimpleNamespace(bits_per_byte=bits),
        heldout=SimpleNamespace(contents=SimpleNamespace(text_loss=None)),
        barred=barred,
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

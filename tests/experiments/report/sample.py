# ruff: noqa: E501  (a table of values)
"""Numbers of a made-up run, hostile tokens included, in the shape of `report.json`."""

import math

TEXT = (
    "You can use the following operation to create a snapshot of the volume. If you do not specify a value, the "
    "default is used.\nFor more information, see the Amazon EC2 User Guide. <script>alert('x')</script> naïve \U0001f600"
)


def sample_report(labels=("BPE", "SuperBPE"), *, winner=None):
    first, *others = labels
    hostile = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", " of the\n", "\\xf0\\x9f"]
    phrases = [" you can use the", " of the", " in the", " Amazon Resource Name (ARN) of the", " & \"'"]
    words = [
        {"id": 6000 + i, "text": text, "n_bytes": len(text), "n_words": len(text.split()) or 1, "count": 9000 // (i + 1)}
        for i, text in enumerate((phrases + hostile) * 4)
    ]  # fmt: skip
    rows = [
        {
            "key": key, "label": label, "software": None, "text_lost": "", "untraced": "", "evaluation": {"context_bytes": 1024}, "barred": "", "sha256": "ab" * 32, "vocab_size": 8192, "transition": transition, "superwords": n,
            "bytes_per_token": bpt, "bits_per_byte": bpb, "low": bpb - 0.03, "high": bpb + 0.03,
            "train_tokens": int(12e6 / bpt), "train_bytes": 12_000_000, "train_flops": 1.4e14 / bpt, "deployed_flops": 5e17 / bpt, "parameters": 7_400_000,
            "train_seconds": 98.2 * 4.4 / bpt, "train_steps": 1464, "context_tokens": int(1024 / bpt), "vocab_used": 7777,
            "cost": {"decode_flops_per_byte": 2e7 / bpt, "kv_bytes_per_byte": 4096 / bpt},
        }
        for key, label, transition, n, bpt, bpb in [("bpe", first, None, 0, 4.41, 1.702), *((f"superbpe{i or ''}", other, 6554, 1421, 5.52 - i / 10, 1.695 + i / 100) for i, other in enumerate(others))]
    ]  # fmt: skip
    sizes = [512, 700, 1000, 1500, 2200, 3200, 4700, 6554, 8192]
    return {
        "title": "BPE and SuperBPE compared",
        "demonstration": True,
        "trained_here": True,
        "verdict": {
            "winner": winner,
            "withheld": "" if winner else "1 seed, at least 3 are required",
            "sentence": "No significant difference between BPE and SuperBPE in how well they predict held-out text.",
            "detail": "SuperBPE against BPE: −0.42 % bits per byte, 95 % interval −0.90 to +0.06 (713 documents).",
            "percent": -0.42, "low": -0.9, "high": 0.06, "pooled": [], "at_scale": "", "confidence": 0.95,
        },
        "next": {"what": "train 3 seeds instead of 1", "why": "a verdict requires 3 seeds", "command": "superbpe pipeline lm.n_seeds=3", "seconds": 120.0},
        "answer": {
            "columns": ["", "text", "tokens", "cost of serving", "bits per byte, equal text", "bits per byte, equal training compute"],
            "rows": [[label, hostile[0], "−20.1 %", "−19.0 %", "−0.42 %\n−0.90 to +0.06\nundecided", "not measured"] for label in labels],
            "priced": "deployed",
            "exchange": ["An e-fold (2.7 times) of training compute is worth 6.0 % of the bits per byte."],
            "lines": [],
        },
        "tiles": [
            {"value": "+25.2 %", "text": "bytes per token, SuperBPE against BPE"},
            {"value": "−0.0071", "text": "bits per byte (−0.0152 to +0.0011)"},
            {"value": "−20.1 %", "text": "tokens for the same text"},
        ],
        "conditions": "All models read the same documents in the same order and in the same number of steps, and see the same number of bytes of context.",
        "tokenizers": rows,
        "learning": [
            {"tokenizer": label, "model": 1, "bytes": n, "flops": 10 * n, "bits_per_byte": 5 - n / 1e4}
            for label in labels
            for n in (1000, 2000)
        ],
        "differences": [
            {"by": by, "group": group, "tokenizer": label, "reference": first, "documents": 713, "n_bytes": 5000, "bytes_per_token": 4.5, "bits_per_byte": 1.695, "level": 0.95, "p": 0.09, "decision": "undecided", "withheld": "", **dict.fromkeys(("percent", "low", "high"), None if label == first else -0.42)}
            for by, group in (("all", ""), ("clean", ""), ("kind", "code"), ("kind", hostile[0]), ("source", "a.jsonl"), ("source", hostile[1])) for label in labels if (by, label) != ("all", first)
        ],
        "division": {
            "missing": "", "left_out": 3,
            "rows": [
                {"tokenizer": label, "reference": first, "class": name, "share": 0.25, "percent": -0.105, "low": None if name == "all" else -0.2, "high": None if name == "all" else 0.01}
                for label in others for name in ("all", "words", "superwords", "mixed")
            ],
            "documents": [{"tokenizer": others[-1], "reference": first, "document": 17, "source": hostile[1], "n_bytes": 5000, "reference_bits_per_byte": 1.7, "bits_per_byte": 1.6, "change": -500.0, "text": TEXT}],
            "segments": [{"tokenizer": others[-1], "reference": first, "text": hostile[0], "before": "value is ", "after": hostile[1], "class": "mixed", "document": 17, "reference_bits": 20.0, "bits": 12.5, "change": -7.5}],
        },
        "contamination": {"sentence": "12.7 % of the held-out words occur in the training text."},
        "tuning": [
            {"tokenizer": label, "factor": factor, "bits_per_byte": bits, "n_documents": 40, "n_bytes": 500_000, "chosen": factor == 1, "warning": ""}
            for label in labels for factor, bits in ((0.5, 2.42), (1, 2.37), (2, 2.4))
        ],
        "measured_bytes": 2_000_000,
        "compression": [
            {"tokenizer": label, "vocab_size": s, "bytes_per_token": 0.55 * math.log(s) - 0.6 + (0.9 * max(0, s - 6554) / 1638 if label != first else 0)}
            for label in labels for s in sizes
        ],
        "superwords": [{
            "label": others[-1], "n": 1421, "vocab_size": 8192, "share_of_tokens": 0.214, "share_of_bytes": 0.423, "unused": 12,
            "most_frequent": words,
        }],
        "sample": {
            "document": 17, "whole": False,
            "sides": [
                {
                    "label": label, "n_tokens": 61, "bytes_per_token": 4.4,
                    "pieces": [{"id": i, "text": part, "superword": label != first and " " in part.strip(), "partial": part.startswith("\\x")} for i, part in enumerate([TEXT[j : j + step] for j in range(0, len(TEXT), step)] + ["\\xf0\\x9f", "\\x98\\x80"])],
                }
                for step, label in enumerate(labels, start=5)
            ],
        },
        "provenance": {
            "made": "2026-11-21 07:10 UTC", "command": "python -m experiments pipeline",
            "corpus": [["source", "embedded: botocore 1.44.5"], ["training text", "26.1 MB, 9,876 documents"], ["sentences of held-out text that also occur in training text", "23.1 %"]],
            "artifacts": [{"arm": "bpe", "name": "count-0123456789ab", "hash": "01" * 32, "seconds": 3.3, "peak_memory_bytes": 231_000_000, "made": "2026-11-21T07:01:00+00:00"}],
            "platform": "Linux x86_64, 2 cores", "versions": {"python": "3.11.2", "torch": "2.13.0"}, "config": "bpe:\n  vocab_size: 8192\n",
        },
    }  # fmt: skip

"""The numbers of a small page of perturbed text."""

from __future__ import annotations

from typing import Any


def row(tokenizer: str, title: str, bits: float | None, **more: Any) -> dict[str, Any]:
    """One row of `robustness.json`; an interval reaches 0.05 to both sides."""
    found: dict[str, Any] = {
        "perturbation": title.replace(" ", "-"),
        "title": title,
        "random": title == "typing errors",
        "tokenizer": tokenizer,
        "changed_documents": 0 if bits is None else 30,
        "changed_share": 0.0 if bits is None else 0.75,
        "effective_changed": 0.0 if bits is None else 28.0,
        "text_lost": "",
        "tokens": None if bits is None else bits / 2,
        "tokens_per_byte": None if bits is None else 0.3,
        "bits": bits,
        "difference": None,
        "level": 0.98,
        "p_adjusted": 0.01,
        "too_few": False,
        "withheld": "",
        "loses_more": None,
    } | more
    for name in ("tokens", "bits", "difference"):
        value = found[name]
        found |= {f"{name}_low": None, f"{name}_high": None}
        if value is not None:
            found |= {f"{name}_low": value - 0.05, f"{name}_high": value + 0.05}
    return found


def report(rows: list[dict[str, Any]], n_seeds: int = 3) -> dict[str, Any]:
    """The report of these rows; its first tokenizer is the reference."""
    names = list(dict.fromkeys(each["tokenizer"] for each in rows))
    return {
        "title": "Perturbed text",
        "made": "2026-11-22 12:00 UTC",
        "command": "python",
        "confidence": 0.95,
        "share": 0.1,
        "seed": 0,
        "n_seeds": n_seeds,
        "demonstration": False,
        "cluster": "document",
        "n_clusters": 40,
        "effective_clusters": 38.0,
        "n_documents": 40,
        "n_bytes": 40_000,
        "tokenizers": [
            {"name": name, "vocab_size": 400, "bytes_per_token": 4.0, "bits_per_byte": 2.0} for name in names
        ],
        "rows": rows,
    }


def usual(**more: Any) -> list[dict[str, Any]]:
    """Rows of two tokenizers under three perturbations; `B` loses more under the first."""
    return [
        row("A", "upper case", 1.0),
        row("B", "upper case", 1.2, difference=0.2, loses_more="this", **more),
        row("A", "typing errors", 0.2),
        row("B", "typing errors", 0.2, difference=0.01),
        row("A", "accents dropped", None),
        row("B", "accents dropped", None),
    ]

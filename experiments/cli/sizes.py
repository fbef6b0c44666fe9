"""Numbers as people write them: sizes in bytes (`10GB`, `400 MB`) and counts (`50k`, `50,000`)."""

from __future__ import annotations

import argparse
import re

_THOUSANDS = {"": 1, "K": 10**3, "M": 10**6}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(?<![\w.])(\d[\d_]*(?:\.\d+)?) ?([KMGT]B)\b", re.IGNORECASE)
# Keys of the configuration whose values are bytes.
_BYTES = re.compile(r"(^|[._])bytes(_|$)|(^|\.)ladder$")


def parse_size(text: str) -> int:
    """Number of bytes of a size; units are powers of 1,000. For `type=` of argparse.

    >>> parse_size("10GB"), parse_size("1.5 mb"), parse_size("512")
    (10000000000, 1500000, 512)
    """
    found = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?) ?([KMGT]?B)?", text.strip(), re.IGNORECASE)
    if found is None or (n_bytes := _bytes(found)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write a number of bytes, or 400MB, 10GB, 2TB")
    return n_bytes


def parse_count(text: str) -> int:
    """Number of things; `k` and `M` are powers of 1,000, and digits may be grouped. For `type=` of argparse.

    >>> parse_count("50k"), parse_count("50_000"), parse_count("50,000"), parse_count("1.5M")
    (50000, 50000, 50000, 1500000)
    """
    found = re.fullmatch(r"(\d+|\d{1,3}(?:[,_]\d{3})+|\d+\.\d+(?=[KM])) ?([KM]?)", text.strip(), re.IGNORECASE)
    number = float(re.sub("[,_]", "", found[1])) * _THOUSANDS[found[2].upper()] if found else 0
    if number < 1 or number != round(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; write 50000, 50,000, 50k or 1.5M")
    return round(number)


def with_sizes(override: str) -> str:
    """Replace the sizes in an override of a key that is measured in bytes by numbers.

    >>> with_sizes("budget.train_bytes=2GB,10GB"), with_sizes("report.title=2GB")
    ('budget.train_bytes=2000000000,10000000000', 'report.title=2GB')
    """
    key, equals, value = override.partition("=")
    return f"{key}{equals}{_SIZE.sub(lambda found: str(_bytes(found)), value)}" if _BYTES.search(key) else override


def _bytes(found: re.Match[str]) -> int:
    return round(float(found[1].replace("_", "")) * _UNITS[(found[2] or "").upper()])

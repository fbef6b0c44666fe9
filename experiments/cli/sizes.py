"""Sizes in bytes as people write them: `10GB`, `400 MB`, `512`."""

from __future__ import annotations

import argparse
import re

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


def with_sizes(override: str) -> str:
    """Replace the sizes in an override of a key that is measured in bytes by numbers.

    >>> with_sizes("budget.train_bytes=2GB,10GB"), with_sizes("report.title=2GB")
    ('budget.train_bytes=2000000000,10000000000', 'report.title=2GB')
    """
    key, equals, value = override.partition("=")
    return f"{key}{equals}{_SIZE.sub(lambda found: str(_bytes(found)), value)}" if _BYTES.search(key) else override


def _bytes(found: re.Match[str]) -> int:
    return round(float(found[1].replace("_", "")) * _UNITS[(found[2] or "").upper()])

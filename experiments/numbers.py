"""Numbers as text, and sizes in text as numbers: SI prefixes, percent, signs, durations."""

from __future__ import annotations

import re

_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(?<![\w.])(\d[\d_]*(?:\.\d+)?) ?([KMGT])(i?)B?\b", re.IGNORECASE)


def si(value: float) -> str:
    """Format a number with an SI prefix and three digits.

    >>> si(94_200_000), si(512), si(0)
    ('94.2M', '512', '0')
    """
    for limit, suffix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def percent(share: float, digits: int = 1) -> str:
    """Format a share in percent.

    >>> percent(0.1274), percent(0.5, 0)
    ('12.7 %', '50 %')
    """
    return f"{100 * share:.{digits}f} %"


def signed(value: float, digits: int = 4) -> str:
    """Format a difference with its sign; one that rounds to zero has none.

    >>> signed(-0.0071), signed(25.24, 1), signed(-0.04, 1)
    ('−0.0071', '+25.2', '0.0')
    """
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if text.strip("+-0.") else text[1:]


def percent_change(value: float, base: float, digits: int = 1) -> str:
    """Format a relative change with its sign.

    >>> percent_change(1.2524, 1)
    '+25.2 %'
    """
    return f"{signed(100 * (value / base - 1), digits)} %"


def duration(seconds: float) -> str:
    """Format a number of seconds for reading.

    >>> duration(0.04), duration(8.31), duration(83), duration(7300)
    ('0.0 s', '8.3 s', '1 min 23 s', '2 h 01 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def with_sizes(text: str) -> str:
    """Replace all sizes with a unit by numbers: of bytes, or of tokens.

    >>> with_sizes("2GB,32k,[500 kB],4GiB")
    '2000000000,32000,[500000],4294967296'
    """

    def number(found: re.Match[str]) -> str:
        unit = found[2].upper()
        factor = 1024 ** (1 + list(_UNITS).index(unit)) if found[3] else _UNITS[unit]
        return str(round(float(found[1].replace("_", "")) * factor))

    return _SIZE.sub(number, text)

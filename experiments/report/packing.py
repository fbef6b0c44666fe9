"""Tables of numbers inside a page: deflated, base64-encoded, and unpacked by `unpack` in `encoder.js`."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_LEVEL = 6


def pack(facts: Mapping[str, Any], columns: Mapping[str, npt.ArrayLike]) -> str:
    """Return JSON-able facts and columns of integers from 0 to 2**32 - 1 as one base64 string.

    A column uses 1 to 4 bytes per number, depending on its maximum. The bytes are stored in planes (all lowest bytes
    first), which compresses better because neighbouring bytes are similar.
    """
    parts, about = [], []
    for name, values in columns.items():
        array = np.ascontiguousarray(values, dtype="<u4").reshape(-1)
        highest = int(array.max(initial=0))
        width = max(1, (highest.bit_length() + 7) // 8)
        parts.append(np.ascontiguousarray(array.view(np.uint8).reshape(-1, 4)[:, :width].T).tobytes())
        about.append([name, width, len(array)])
    header = json.dumps({"facts": dict(facts), "columns": about}, ensure_ascii=True, allow_nan=False).encode()
    whole = len(header).to_bytes(4, "little") + header + b"".join(parts)
    return base64.b64encode(zlib.compress(whole, _LEVEL)).decode("ascii")

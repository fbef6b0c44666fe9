"""Tables that users write: CSV or Parquet with typed columns, whose mistakes are named by place, column and value."""

from __future__ import annotations

import csv
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizer.errors import UserError, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ABOVE_ZERO = math.ulp(0.0)


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: `str`, `int` or `float`.
        least: Lowest number; `ABOVE_ZERO` for numbers above 0.
        needed: Whether every row has a value.
    """

    kind: type[str | int | float] = str
    least: float = 0
    needed: bool = True


class Row(NamedTuple):
    """A row: where it is, for messages, and its values by column; None for one that is left out."""

    place: str
    values: dict[str, Any]


def read_table(path: Path, columns: Mapping[str, Column], others: Column | None = None, hint: str = "") -> list[Row]:
    """Read a CSV (RFC 4180, UTF-8) or Parquet table.

    Args:
        path: The file; Parquet if its name ends in `.parquet`.
        columns: Columns by name.
        others: What every further column is; None to ignore these.
        hint: End of the message about a missing column.

    Raises:
        UserError: If the file cannot be read, a column is missing or repeated, or a value is missing or wrong.
    """
    names, rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    needed = [name for name, column in columns.items() if column.needed]
    if missing := [name for name in needed if name not in names]:
        raise UserError(f"{path} has no column {listed(missing)}; it needs {listed(needed)}{hint}")
    chosen = {**columns, **{name: others for name in names if others is not None and name not in columns}}
    if repeated := [name for name in chosen if names.count(name) > 1]:
        raise UserError(f"{path} has the column {listed(repeated)} more than once; remove one")
    read = []
    for place, row in rows:
        at = f"{path}, {place}"
        read.append(Row(at, {name: _value(at, name, row.get(name), column) for name, column in chosen.items()}))
    return read


def header(path: Path) -> list[str]:
    """Names of the columns of a CSV table; none for a file of another kind."""
    if path.suffix != ".csv" or not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        return next(csv.reader(file), [])


def _csv(path: Path) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), [(f"line {reader.line_num}", row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV in UTF-8: {error}") from None


def _parquet(path: Path) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} cannot be read as Parquet: {error}") from None
    named = zip(*(column.to_pylist() for column in table.columns), strict=True)
    rows = [(f"row {i}", dict(zip(table.column_names, row, strict=True))) for i, row in enumerate(named, 1)]
    return table.column_names, rows


def _value(at: str, name: str, value: Any, column: Column) -> Any:
    """A cell as a value of its column's kind."""
    kind, least = column.kind, column.least
    if value is None or value == "":
        if column.needed:
            raise UserError(f"{at}: {name} is empty; write {'a name' if kind is str else 'a number'}")
        return None
    if kind is str:
        return str(value)
    number = math.nan
    with suppress(ValueError, TypeError):
        number = float(value)
    if least <= number < math.inf and (kind is float or number.is_integer()):
        return kind(number)
    bound = "above 0" if least == ABOVE_ZERO else f"of at least {least:g}"
    whole = "a whole number" if kind is int else "a number"
    raise UserError(f"{at}: {name}={quoted(value)} must be {whole} {bound}")

"""Tables that users write: typed columns, whose mistakes are named by row, column and value."""

from __future__ import annotations

import csv
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.reading import records_of
from tokenizer.errors import DataError, UserError, listed, quoted

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


class TableRow(NamedTuple):
    """A row: where it is, for messages, and its values by column; None for one that is left out."""

    place: str
    values: dict[str, Any]


def read_table(
    path: Path, columns: Mapping[str, Column], others: Column | None = None, hint: str = ""
) -> list[TableRow]:
    """Read a CSV (RFC 4180, UTF-8) or Parquet table.

    Args:
        path: The file; Parquet if its name ends in `.parquet`.
        columns: Columns by name.
        others: What every further column is; None to ignore these.
        hint: End of the message about a missing column.

    Raises:
        UserError: If the file cannot be read, a column is missing or repeated, or a value is missing or wrong.
    """
    chosen = dict(columns)
    rows: list[TableRow] = []
    names = header(path)
    if len(names) == 1 and (separator := re.search("[;\t|]", names[0])):
        raise UserError(f"{path}: its columns are separated by {separator[0]!r}; separate them by commas")
    form = "parquet" if path.suffix == ".parquet" else "csv"
    for number, record in enumerate(records_of((path, form), CorpusConfig()), 1):
        if isinstance(record, DataError):
            raise UserError(f"{path}: {record}")
        if not rows:
            names = header(path) or list(record)
            _check(path, names, columns, hint)
            if others is not None:
                chosen |= {name: others for name in names if name not in columns}
        place = f"{path}, row {number}"
        rows.append(
            TableRow(place, {name: _value(place, name, record.get(name), column) for name, column in chosen.items()})
        )
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows


def header(path: Path) -> list[str]:
    """Names of the columns of a CSV table; none for a file of another kind."""
    if path.suffix != ".csv" or not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        return next(csv.reader(file), [])


def _check(path: Path, names: list[str], columns: Mapping[str, Column], hint: str) -> None:
    needed = [name for name, column in columns.items() if column.needed]
    if missing := [name for name in needed if name not in names]:
        raise UserError(
            f"{path} has no column {listed(missing)} (it has {listed(names)}); it needs {listed(needed)}{hint}"
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path} has the column {repeated[0]} more than once; remove one")


def _value(at: str, name: str, value: Any, column: Column) -> Any:
    """A cell as a value of its column's kind."""
    kind, least = column.kind, column.least
    if value is None or value == "":
        if column.needed:
            raise UserError(f"{at}: {name} is empty; write {'a name' if kind is str else 'a number'}")
        return None
    if kind is str:
        if re.search("[\ud800-\udfff]", str(value)):
            raise UserError(f"{at}: {name} is not UTF-8; save the table in UTF-8")
        return str(value)
    number = math.nan
    with suppress(ValueError, TypeError):
        number = float(value)
    if least <= number < math.inf and (kind is float or number.is_integer()):
        return kind(number)
    bound = "above 0" if least == ABOVE_ZERO else f"of at least {least:g}"
    whole = "a whole number" if kind is int else "a number"
    raise UserError(f"{at}: {name}={quoted(value)} must be {whole} {bound}")

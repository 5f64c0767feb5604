"""Rows of CSV files, with columns of given dtypes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from graphc.data.core.cursor import Cursor, Items
from graphc.data.core.node import FileSource, Run
from graphc.data.sources.files import FileCursor, LineFile
from graphc.errors import DataError, DTypeError, nearest
from graphc.ir.dtypes import as_dtype, is_floating, is_integer

_SAMPLE = 1000  # rows from which dtypes are found
_TRUE = {"true", "1", "yes", "t"}
_FALSE = {"false", "0", "no", "f"}


class Column(NamedTuple):
    """A column that is read.

    Attributes:
        name: its name.
        place: its number in the rows.
        dtype: a dtype, or None for text.
        missing: the value of an empty field; None: an error, or NaN for floats.
    """

    name: str
    place: int
    dtype: np.dtype[Any] | None
    missing: Any

    @property
    def reader(self) -> Callable[[str], Any]:
        """The function from a field to its value; it raises ValueError or OverflowError."""
        if self.dtype is None:
            return str
        kind = self.dtype.type
        if self.dtype.kind == "b":
            return _bool
        return (lambda text: kind(int(text))) if is_integer(self.dtype) else self._float

    def _float(self, text: str) -> Any:
        return np.dtype(self.dtype).type(float(text))


def _bool(text: str) -> np.bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is not a bool")
    return np.bool(word in _TRUE)


@dataclass(frozen=True, eq=False)
class Table(FileSource):
    """The rows of CSV files as dicts.

    Attributes:
        paths: the files, in order.
        encoding: their encoding.
        delimiter: between fields.
        header: whether each file begins with a row of names.
        columns: the columns to read.
        width: how many fields a row has.
    """

    function = "from_csv"
    encoding: str
    delimiter: str
    header: bool
    columns: tuple[Column, ...]
    width: int

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor at the first row."""
        return _Rows(self)


class _Rows(FileCursor):
    def __init__(self, node: Table) -> None:
        super().__init__(node.paths, node.encoding, node.made_at)
        self._node = node
        self._rows: Iterator[list[str]] | None = None
        self._readers = [(c, c.reader) for c in node.columns]

    def _current_rows(self) -> Iterator[list[str]] | None:
        if self._rows is None and (file := self.current()) is not None:
            self._rows = rows_of(file, self._node.delimiter)
            if self._node.header and not file.line:
                next(self._rows, None)
        return self._rows

    def _next_row(self) -> list[str] | None:
        while (rows := self._current_rows()) is not None:
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise self._error(str(error)) from error
            if row is None:
                self.next_file()
            elif row:  # empty lines have no fields
                return row
        return None

    def read(self, n: int) -> Items:
        found: list[Any] = []
        while len(found) < n and (row := self._next_row()) is not None:
            if len(row) != self._node.width:
                raise self._error(f"{len(row)} fields, expected {self._node.width}")
            found.append({c.name: self._value(c, r, row[c.place]) for c, r in self._readers})
        return found

    def skip(self, n: int) -> int:
        done = 0
        while done < n and self._next_row() is not None:
            done += 1
        return done

    def _value(self, column: Column, reader: Callable[[str], Any], text: str) -> Any:
        if not text.strip() and (column.dtype is not None or column.missing is not None):
            return self._missing(column)
        try:
            return reader(text)
        except (ValueError, OverflowError) as error:
            kind = "str" if column.dtype is None else column.dtype.name
            raise self._error(f"column {column.name!r}: {text!r} is not {kind}") from error

    def _missing(self, column: Column) -> Any:
        if column.missing is not None:
            return column.missing
        if column.dtype is not None and is_floating(column.dtype):
            return column.dtype.type(np.nan)
        raise self._error(
            f"column {column.name!r}: the field is empty", f"missing={{{column.name!r}: 0}}"
        )

    def _error(self, what: str, hint: str | None = None) -> DataError:
        return DataError(
            f"{self.origin()}: {what}",
            source=self.made_at,
            hint=hint or 'columns={"name": "float32", "title": "str"} gives the dtypes',
        )

    def close(self) -> None:
        self._rows = None
        super().close()


def rows_of(file: LineFile, delimiter: str) -> Iterator[list[str]]:
    """The rows of a file. No line after a row is read."""
    return csv.reader(file, delimiter=delimiter, strict=True)


def table_columns(
    first: LineFile,
    delimiter: str,
    header: bool | Sequence[str],
    dtypes: Mapping[str, Any] | None,
    missing: Mapping[str, Any],
) -> tuple[tuple[Column, ...], int]:
    """The columns to read, and the number of fields of a row.

    Raises:
        DataError: the file has no rows, or a name is not a column.
        DTypeError: a dtype is not one.
    """
    try:
        rows = [row for row in islice(rows_of(first, delimiter), _SAMPLE + 1) if row]
    except csv.Error as error:
        raise DataError.here(f"{first.path}, line {first.line}: {error}") from error
    names = (rows[0] if rows else []) if isinstance(header, bool) else list(header)
    if header is False:
        names = [str(number) for number in range(len(names))]
    if not names:
        raise DataError.here(f"from_csv: {first.path} is empty")
    sample = rows[1:] if header is True else rows
    kinds = dict(dtypes) if dtypes is not None else _found(names, sample)
    for name in (*kinds, *missing):
        if name not in names:
            raise DataError.here(
                f"from_csv: {first.path} has no column {name!r}",
                details=[f"its columns are {', '.join(map(repr, names))}"],
                hint=nearest(name, names),
            )
    columns = [_column(name, names.index(name), kinds[name], missing) for name in kinds]
    return tuple(columns), len(names)


def _column(name: str, place: int, kind: Any, missing: Mapping[str, Any]) -> Column:
    dtype = None if kind in (str, "str") else as_dtype(kind)
    value = missing.get(name)
    if value is not None and dtype is not None:
        try:
            value = dtype.type(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DTypeError.here(
                f"from_csv: missing value {value!r} of column {name!r} is not {dtype.name}"
            ) from error
    return Column(name, place, dtype, value)


def _found(names: Sequence[str], sample: Sequence[Sequence[str]]) -> dict[str, str]:
    """int64, float64 or str for each column, by its first rows."""
    kinds = {}
    for place, name in enumerate(names):
        fields = [row[place] for row in sample if place < len(row)]
        present = [text for text in fields if text.strip()]
        kinds[name] = "str"
        if present and _can_read(float, present):
            whole = len(present) == len(fields) and _can_read(lambda t: np.int64(int(t)), present)
            kinds[name] = "int64" if whole else "float64"
    return kinds


def _can_read(number: Callable[[str], object], texts: Sequence[str]) -> bool:
    """Whether all texts are numbers that the function can make."""
    try:
        for text in texts:
            number(text)
    except (ValueError, OverflowError):
        return False
    return True

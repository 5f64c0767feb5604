"""`Features`: the bytes of one feature in many records, each as protobuf gave it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphc.data.records.wire import PREFIXES, Malformed, OtherKind, elements, packed, usual_prefix
from graphc.ir.dtypes import Array


class Wrong(Exception):
    """What is wrong with the feature of one record.

    Args:
        row: the number of the record.
        found: what the feature is.
        wanted: what it should be.
        hint: how to fix it.
    """

    def __init__(self, row: int, found: str, wanted: str, hint: str | None = None) -> None:
        super().__init__(found)
        self.row, self.found, self.wanted, self.hint = row, found, wanted, hint


class Lists(Protocol):
    """The lists of one feature in many records, as bytes."""

    def __len__(self) -> int:
        """How many records."""

    def packed(self, kind: str) -> tuple[bytes, Array, Array]:
        """The packed numbers of all records, how many bytes each has, and who has the feature.

        Raises:
            Wrong: a record has another kind of list, or is damaged.
        """

    def elements(self) -> list[list[bytes] | None]:
        """The elements of bytes of each record; None for those without the feature.

        Raises:
            Wrong: see `packed`.
        """

    def joined(self, size: int) -> bytes | None:
        """The elements of all records, if each has one of `size` bytes; None if that is not known
        at once."""


class Features:
    """The lists of features in any form that protobuf allows.

    Args:
        values: the bytes of each record's feature; None for records without it.
    """

    def __init__(self, values: list[bytes | None]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def packed(self, kind: str) -> tuple[bytes, Array, Array]:
        """See `Lists`."""
        there = np.ones(len(self.values), bool)
        whole = _uniform(kind, self.values)
        if whole is None:
            bodies, sizes = _bodies(kind, self.values, there)
            return b"".join(bodies), sizes, there
        return whole[0], np.full(len(self.values), whole[1], np.int64), there

    def elements(self) -> list[list[bytes] | None]:
        """See `Lists`."""
        return [elements_of(row, value) for row, value in enumerate(self.values)]

    def joined(self, size: int) -> bytes | None:
        """See `Lists`."""
        whole = _uniform("bytes_list", self.values)
        return whole[0] if whole is not None and whole[1] == size else None


def packed_of(kind: str, row: int, value: bytes | None) -> bytes | None:
    """The packed numbers of one record; None if it does not have the feature.

    Raises:
        Wrong: it has another kind of list, or is damaged.
    """
    if value is None:
        return None
    try:
        return packed(kind, value)
    except OtherKind as error:
        raise Wrong(row, f"is {_a(str(error))}", _a(kind), _kind_hint(str(error))) from None
    except Malformed as error:
        raise damaged(row, error, kind) from None


def elements_of(row: int, value: bytes | None) -> list[bytes] | None:
    """The elements of one record; None if it does not have the feature.

    Raises:
        Wrong: see `packed_of`.
    """
    if value is None:
        return None
    body = value.removeprefix(PREFIXES["bytes_list"][len(value)])
    if len(body) < len(value):
        return [body]
    try:
        return elements(value)
    except OtherKind as error:
        kind = str(error)
        raise Wrong(row, f"is {_a(kind)}", "a bytes_list", _kind_hint(kind)) from None
    except Malformed as error:
        raise damaged(row, error, "bytes_list") from None


def damaged(row: int, error: Malformed, kind: str) -> Wrong:
    """The error for a record whose list is not in protobuf's wire format."""
    return Wrong(
        row,
        f"is damaged ({error})",
        _a(kind),
        "the record is no Example, or its bytes were changed",
    )


def _uniform(kind: str, values: list[bytes | None]) -> tuple[bytes, int] | None:
    """The packed numbers of records that have equally many bytes of them, without a loop; and how
    many bytes each has. None if the records differ, or are not in the usual form."""
    if not values or None in values:
        return None
    given: Any = values
    sizes = set(map(len, given))
    prefix = usual_prefix(kind, min(sizes)) if len(sizes) == 1 else None
    if prefix is None:
        return None
    size = min(sizes)
    table = np.frombuffer(b"".join(given), np.uint8).reshape(len(values), size)
    start = len(prefix)
    if not (table[:, :start] == np.frombuffer(prefix, np.uint8)).all():
        return None
    return table[:, start:].tobytes(), size - start


def _bodies(kind: str, values: list[bytes | None], there: Array) -> tuple[list[bytes], Array]:
    """The packed numbers of each record, and their sizes. `there` becomes False for records without
    the feature."""
    prefixes = PREFIXES[kind]
    given = [value or b"" for value in values]
    bodies = [value.removeprefix(prefixes[len(value)]) for value in given]
    sizes = _sizes(bodies)
    for row in np.flatnonzero(sizes == _sizes(given)).tolist():  # not in the usual form
        found = packed_of(kind, row, values[row])
        there[row] = found is not None
        bodies[row] = found or b""
        sizes[row] = len(bodies[row])
    return bodies, sizes


def _sizes(parts: list[bytes]) -> Array:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _a(kind: str) -> str:
    return f"{'an' if kind[0] == 'i' else 'a'} {kind}"


def _kind_hint(kind: str) -> str:
    dtypes = {"bytes_list": "bytes", "float_list": "np.float32", "int64_list": "np.int64"}
    return f"its spec needs the dtype {dtypes[kind]}"

"""`parse_example`: one Example, for functions of single records and to look into unknown files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from graphc.data.records.columns import column
from graphc.data.records.parsing import parse_examples
from graphc.data.records.specs import RaggedArray, Spec, VarLen
from graphc.data.records.values import Features, Wrong
from graphc.data.records.wire import Malformed, elements, fields, list_of
from graphc.errors import DataError
from graphc.ir.calls import explained

Value: TypeAlias = np.ndarray[Any, Any] | np.generic | bytes | str | list[bytes] | None

_DTYPES = {"int64_list": np.int64, "float_list": np.float32}


@explained
def parse_example(record: bytes, features: Mapping[str, Spec] | None = None) -> dict[str, Value]:
    """Features of one `tf.train.Example`.

    `parse_examples` is faster, because it takes a whole batch.

    Args:
        record: the message as bytes.
        features: see `parse_examples`; the results have no leading axis. None: every feature of the
            record, in the order of their names: arrays of numbers, lists of bytes, and None for
            features without values.

    Raises:
        DataError: see `parse_examples`.
        MissingExtraError: protobuf is not installed.

    Examples:
        >>> record = gc.data.example({"name": "Ada", "ids": [3, 1]})
        >>> gc.data.parse_example(record)
        {'ids': array([3, 1]), 'name': [b'Ada']}
        >>> gc.data.parse_example(record, {"name": gc.data.FixedLen((), str)})
        {'name': 'Ada'}
    """
    if features is not None:
        batch = parse_examples([record], features)
        return {
            name: value.rows()[0] if isinstance(value, RaggedArray) else value[0]
            for name, value in batch.items()
        }
    parse_examples([record], {})  # its errors
    found = _features(bytes(record))
    return {name: _value(name, found[name]) for name in sorted(found)}


def _features(record: bytes) -> dict[str, bytes]:
    """The features by their names, which need not be UTF-8, as protobuf's maps require."""
    found = {}
    for example in _parts(record, 1):
        for entry in _parts(example, 1):
            name = [b"", *_parts(entry, 1)][-1].decode("utf-8", "backslashreplace")
            found[name] = b"".join(_parts(entry, 2))
    return found


def _parts(message: bytes, number: int) -> list[bytes]:
    return [each.value for each in fields(message) if each == (number, 2, each.value)]


def _value(name: str, feature: bytes) -> Value:
    """The values of a feature of any kind."""
    try:
        kind, _ = list_of(feature)
        if kind is None:
            return None
        if kind == "bytes_list":
            return elements(feature)
        values: np.ndarray[Any, Any] = column(VarLen(_DTYPES[kind]), Features([feature])).values
    except (Malformed, Wrong) as error:
        raise DataError.here(f"parse_example: feature {name!r} is damaged: {error}") from None
    return values

"""Nests of records: stacking them to batches, with errors that say which records differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from graphc.errors import DTypeError, FeedError
from graphc.ir.dtypes import Array
from graphc.ir.host_values import read


class Ragged(list[Any]):
    """The arrays of the records of a batch, which may differ in their leading size. JAX takes it
    for a leaf of a nest, and `gc.Bucketing` for a feed of rows."""


def stack(records: Sequence[Any], where: Callable[[], str], ragged: bool) -> Any:
    """A nest of arrays with a leading axis for the records.

    Args:
        records: at least one.
        where: describes the records, for errors.
        ragged: arrays with axes become a `Ragged`.
    """
    first = records[0]
    if type(first) is np.ndarray:
        return _stacked("", records, where, ragged)
    if type(first) is bytes and set(map(type, records)) == {bytes}:  # records of files
        return _stacked("", records, where, ragged)
    tree: Any
    flat, tree = jax.tree.flatten(first, is_leaf=_is_none)
    rows = [flat]
    for number, record in enumerate(records[1:], 1):
        leaves, other = jax.tree.flatten(record, is_leaf=_is_none)
        if other != tree:
            raise FeedError(
                "batch: the records have different structures",
                details=[
                    f"record 0 of the batch: {tree}",
                    f"record {number} of the batch: {other}",
                    *_lines(where()),
                ],
                hint="return the same keys from each record, and arrays instead of lists of "
                "numbers: np.asarray(tokens)",
            )
        rows.append(leaves)
    columns = list(zip(*rows, strict=True))
    if not columns:
        return first
    try:
        return tree.unflatten(_stacked("", column, where, ragged) for column in columns)
    except FeedError:
        names = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(first)]
        for name, column in zip(names, columns, strict=False):
            _stacked(name, column, where, ragged)
        raise


def _is_none(value: Any) -> bool:
    return value is None


def _lines(text: str) -> list[str]:
    return [text] if text else []


def _stacked(name: str, values: Sequence[Any], where: Callable[[], str], ragged: bool) -> Any:
    kind = type(values[0])
    if kind in (str, bytes) or values[0] is None:  # NumPy would cut zeros at the end of a text
        result = np.empty(len(values), object)
        result[:] = values
        return result
    if kind in (int, float, bool):
        return _numbers(name, values, where)
    arrays = [_array(name, value, where) for value in values]
    shapes = [array.shape for array in arrays]
    tails = {shape[1:] if shape else None for shape in shapes}
    if ragged and len(tails) == 1 and None not in tails:
        return Ragged(arrays)
    if shapes.count(shapes[0]) == len(shapes):
        return np.stack(arrays)
    number = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
    raise FeedError(
        f"batch: the records have arrays of different shapes{_at(name)}",
        details=[
            f"record 0 of the batch: {shapes[0]}",
            f"record {number} of the batch: {shapes[number]}",
            *_lines(where()),
        ],
        hint="pad directly after batch: .batch(n).pad(); or give all records one shape in a map",
    )


def _at(name: str) -> str:
    return f" at {name}" if name else ""


def _numbers(name: str, values: Sequence[Any], where: Callable[[], str]) -> Array:
    if not all(isinstance(value, (int, float, np.generic)) for value in values):
        values = [_array(name, value, where) for value in values]
    try:
        return np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise FeedError(
            f"batch: the numbers{_at(name)} do not fit one array",
            details=[str(error), *_lines(where())],
        ) from error


def _array(name: str, value: Any, where: Callable[[], str]) -> Array:
    if type(value) is np.ndarray:
        return value
    try:
        return read(value)
    except DTypeError as error:
        raise FeedError(
            f"batch: {error.what}{_at(name)}",
            details=[*error.details, *_lines(where())],
            hint=error.hint,
        ) from error.__cause__

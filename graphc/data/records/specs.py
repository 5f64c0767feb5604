"""What `parse_examples` is told about each feature, and what it returns for ragged ones."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, GraphcError
from graphc.ir.dtypes import SHORT, Array, as_dtype, is_complex, is_floating
from graphc.ir.host_values import read
from graphc.ir.operand_types import SupportsArray
from graphc.ir.source import current_source
from graphc.typing import DTypeLike

ElementType: TypeAlias = DTypeLike | type[bytes] | type[str]
Numbers: TypeAlias = float | SupportsArray | Sequence[float]
Default: TypeAlias = Numbers | bytes | str


@dataclass(frozen=True, eq=False)
class FixedLen:
    """A feature with the same number of values in each record.

    Args:
        shape: of the values of one record.
        dtype: `bytes`; `str` for UTF-8; or a dtype. Integers and bool are read from an int64_list,
            floats from a float_list. Integers must be in the range of the dtype.
        default: the value of records that do not have the feature: of this shape, or a scalar.
            Without one they are an error.

    Raises:
        AttributeValueError: the shape is not one.
        DTypeError: there is no such dtype, or the default does not fit it.

    Examples:
        >>> record = gc.data.example({"size": [4, 5]})
        >>> gc.data.parse_examples([record], {"size": gc.data.FixedLen((2,), np.int32)})
        {'size': array([[4, 5]], dtype=int32)}
    """

    shape: tuple[int, ...]
    dtype: ElementType
    default: Default | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked_shape("FixedLen", self.shape))
        object.__setattr__(self, "dtype", _checked_type("FixedLen", self.dtype))
        if self.default is not None:
            object.__setattr__(self, "default", _checked_default(self))


@dataclass(frozen=True, eq=False)
class VarLen:
    """A feature with any number of values in each record, also none.

    Args:
        dtype: see `FixedLen`.
        shape: of one value: a record has rows of this shape.
        pad: pads the records of a batch to one length with this value. Without, the result is a
            `RaggedArray`.
        length: with `pad`: the length to pad to; a longer record is an error. None: the longest
            record of the batch.

    Raises:
        AttributeValueError: the shape is not one, or `length` is given without `pad`.
        DTypeError: there is no such dtype, or `pad` does not fit it.

    Examples:
        >>> records = [gc.data.example({"ids": ids}) for ids in ([3, 1, 4], [1])]
        >>> gc.data.parse_examples(records, {"ids": gc.data.VarLen(np.int64, pad=0)})
        {'ids': array([[3, 1, 4], [1, 0, 0]])}
    """

    dtype: ElementType
    shape: tuple[int, ...] = ()
    pad: Default | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked_shape("VarLen", self.shape))
        object.__setattr__(self, "dtype", _checked_type("VarLen", self.dtype))
        if 0 in self.shape:
            raise AttributeValueError.here(
                f"VarLen: rows of shape {self.shape} have no values to count"
            )
        if self.pad is not None:
            one = FixedLen((), self.dtype, self.pad)
            object.__setattr__(self, "pad", one.default)
        if self.length is not None and (
            self.pad is None or type(self.length) is not int or self.length < 0
        ):
            raise AttributeValueError.here(
                f"VarLen: length={self.length!r} with pad={self.pad!r}",
                hint="VarLen(np.int64, pad=0, length=16)",
            )


@dataclass(frozen=True, eq=False)
class Raw:
    """A feature of one element of bytes, which are the numbers of an array: `array.tobytes()`.

    Args:
        shape: of the array.
        dtype: of the array, in the byte order of the bytes: ">i2" for big-endian numbers.
        default: see `FixedLen`.

    Raises:
        AttributeValueError: the shape is not one.
        DTypeError: there is no such dtype, or the default does not fit it.

    Examples:
        >>> record = gc.data.example({"image": np.eye(2, dtype="uint8").tobytes()})
        >>> gc.data.parse_examples([record], {"image": gc.data.Raw((2, 2), np.uint8)})
        {'image': array([[[1, 0], [0, 1]]], dtype=uint8)}
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    default: Numbers | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked_shape("Raw", self.shape))
        given = self.dtype
        ordered = isinstance(given, np.dtype) or (isinstance(given, str) and given[:1] in "<>")
        dtype = np.dtype(given) if ordered and given else as_dtype(given)
        if dtype.hasobject or dtype.itemsize == 0 or dtype.names or dtype.subdtype:
            raise DTypeError.here(f"Raw: no numbers have the dtype {dtype}")
        object.__setattr__(self, "dtype", dtype)
        if self.default is not None:
            one = FixedLen(self.shape, dtype.newbyteorder("="), self.default)
            object.__setattr__(self, "default", one.default)


Spec: TypeAlias = FixedLen | VarLen | Raw


class RaggedArray(NamedTuple):
    """Rows of different lengths: all their values, one row after the other, and the lengths.

    A nest of arrays, so pipelines, `jax.tree` and feeds take it.

    Attributes:
        values: [all values, ...]; a RaggedArray where the rows are ragged themselves.
        lengths: int64 [rows].

    Examples:
        >>> words = gc.data.RaggedArray(np.array([3, 1, 4, 1]), np.array([3, 1]))
        >>> words.rows()
        [array([3, 1, 4]), array([1])]
        >>> words.padded(0)
        array([[3, 1, 4], [1, 0, 0]])
    """

    values: Array | RaggedArray
    lengths: Array

    def rows(self) -> list[Any]:
        """The rows: arrays, or RaggedArrays where the rows are ragged themselves.

        Examples:
            >>> gc.data.RaggedArray(np.array([3, 1, 4]), np.array([2, 1])).rows()
            [array([3, 1]), array([4])]
        """
        ends = np.cumsum(self.lengths).tolist()
        return [self._part(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def _part(self, start: int, end: int) -> Any:
        if not isinstance(self.values, RaggedArray):
            return self.values[start:end]
        lengths = self.values.lengths[start:end]
        first = int(self.values.lengths[:start].sum())
        flat: Any = self.values.values
        return RaggedArray(flat[first : first + int(lengths.sum())], lengths)

    def padded(self, value: Default = 0, length: int | None = None) -> Array:
        """One array [rows, length, ...].

        Args:
            value: of the padding.
            length: None: that of the longest row.

        Raises:
            AttributeValueError: a row is longer.

        Examples:
            >>> gc.data.RaggedArray(np.array([3, 1, 4]), np.array([2, 1])).padded()
            array([[3, 1],
                   [4, 0]])
        """
        inner = self.values
        if isinstance(inner, RaggedArray):
            inner = inner.padded(value)
        longest = int(self.lengths.max(initial=0))
        if length is not None and longest > length:
            raise AttributeValueError.here(
                f"padded: row {int(self.lengths.argmax())} is longer than {length}: {longest}"
            )
        width = longest if length is None else length
        found = np.full((len(self.lengths), width, *inner.shape[1:]), value, inner.dtype)
        found[np.arange(width) < np.asarray(self.lengths)[:, None]] = inner
        return found


@lru_cache(maxsize=1024)
def kind_of(spec: Spec) -> str:
    """The name of the list that the feature must have."""
    if isinstance(spec, Raw) or spec.dtype in (bytes, str):
        return "bytes_list"
    return "float_list" if is_floating(np.dtype(spec.dtype)) else "int64_list"


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        sizes = tuple(operator.index(size) for size in given)
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise AttributeValueError.here(
            f"{name}: shape must be a tuple of sizes, got {shape!r}",
            hint="(28, 28), or () for a scalar; VarLen for sizes that differ between records",
        )
    return sizes


def _checked_type(name: str, dtype: Any) -> Any:
    if dtype is bytes or dtype is str:
        return dtype
    found = as_dtype(dtype)
    if not is_real(found):
        raise DTypeError.here(
            f"{name}: a feature has bytes, integers or floats, not {found}",
            hint="gc.data.Raw(shape, dtype) reads the bytes of arrays of any dtype",
        )
    return found


def _checked_default(spec: FixedLen) -> Any:
    """The default as an array of the shape; bytes and text as they are."""
    given: Any = spec.default
    if spec.dtype in (bytes, str):
        if isinstance(given, spec.dtype):  # type: ignore[arg-type]
            return given
        raise DTypeError(
            f"FixedLen: the default {given!r} is not {spec.dtype.__name__}",  # type: ignore[union-attr]
            source=current_source(),
        )
    dtype: Any = np.dtype(spec.dtype)
    array = read(given)
    if array.shape not in ((), spec.shape):
        raise AttributeValueError.here(
            f"FixedLen: the default has shape {array.shape}, expected {spec.shape} or a scalar"
        )
    try:
        return np.broadcast_to(converted(array, dtype), spec.shape)
    except Unfit as error:
        raise DTypeError.here(f"FixedLen: the default {error}") from None


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether it is a dtype of integers, floats or bool, in any byte order."""
    return dtype.kind in "biuf" or (dtype in SHORT and not is_complex(dtype))


class Unfit(GraphcError):
    """Numbers do not fit a dtype. Caught inside this package."""


def converted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in a dtype that holds them.

    Raises:
        Unfit: it does not.
    """
    if values.dtype == dtype:
        return values
    if not is_real(values.dtype):
        raise Unfit(f"is not a number: {values.dtype}")
    with np.errstate(all="ignore"):
        found = values.astype(dtype)
        if is_floating(dtype):
            bad = np.isfinite(values) & ~np.isfinite(found.astype(np.float64))
        else:
            bad = found.astype(values.dtype) != values
            if dtype.kind == "u":
                bad |= values < 0
    if bad.any():
        first = values[np.unravel_index(int(np.argmax(bad)), values.shape)]
        raise Unfit(f"{first} is out of the range of {dtype}")
    return found

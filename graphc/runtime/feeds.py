"""Values that users feed: checked against the placeholder, cast within a kind, copied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from graphc.errors import DTypeError, FeedError, GraphcError
from graphc.ir.dims import Dim, DimExpr, as_symbol, substitute, symbol, symbols_of
from graphc.ir.dtypes import as_dtype, is_integer, kind_of, promote_scalar
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.emit import as_array

_ALIGNMENT = 64  # bytes
_LARGE = 1 << 18  # bytes: from here a copy takes longer than asking for aligned memory
_WEAK_CONTAINERS = (bool, int, float, complex, list, tuple)
_SCALARS = {"b": bool, "i": int, "f": float, "c": complex}  # by NumPy's letter for the kind


class FeedSpec:
    """One feed of an executable, ready to take values quickly.

    Args:
        port: the program's input.
        label: how the user knows it, for errors.
        source: the user's line of the placeholder.
        copy: whether host arrays must be copied: on CPU JAX may go on reading the caller's
            buffer after the call, and a caller that reuses it would change the result.
    """

    __slots__ = ("copy", "dtype", "label", "shape", "source", "type")

    def __init__(self, port: Port, source: Any, copy: bool) -> None:
        self.label = port.name
        self.type: TensorType = port.tensor.type
        self.dtype = self.type.dtype
        self.shape = self.type.shape
        self.source = source
        self.copy = copy

    @staticmethod
    def of_type(name: str, type: TensorType, source: Any) -> FeedSpec:
        """A spec for a value that is not a program's input: one that sets a variable."""
        return FeedSpec(Port(name, "feed", Tensor(type, name)), source, copy=True)

    def convert(self, value: Any, copy: bool = True) -> Any:
        """`value` as an array of the feed's dtype that nobody else will write to.

        Args:
            copy: False where the result is read at once: it may be the caller's array then.

        Raises:
            FeedError: the dtype is of another kind, or it is not numeric.
        """
        if type(value) is np.ndarray:
            if value.dtype == self.dtype:
                return own(value) if self.copy and copy else value
            return self._cast(value)
        if isinstance(value, jax.Array):
            return self._convert_jax(value)
        return self._convert_other(value)

    def _convert_jax(self, value: jax.Array) -> jax.Array:
        if value.is_deleted():
            raise FeedError(
                f"feed {self.label!r} is an array that was deleted, or donated to a JAX function",
                source=self.source,
                mend="feed one that is still alive, or a copy made before",
            )
        if value.dtype == self.dtype:
            return value
        self._check_kind(value.dtype)
        with jax.enable_x64(True):
            return value.astype(self.dtype)

    def _convert_other(self, value: Any) -> Any:
        """Python numbers, lists, and whatever NumPy can read; always a copy."""
        try:
            array = np.array(value)
            if type(value) in _WEAK_CONTAINERS and array.dtype.kind in _SCALARS:
                # Python's numbers are weak: they take any dtype of their kind or above.
                scalar = _SCALARS[array.dtype.kind]
                if promote_scalar(self.dtype, scalar) == self.dtype:
                    return np.array(value, self.dtype)
            array = as_array(array)
        except (GraphcError, TypeError, ValueError, OverflowError) as error:
            raise FeedError(
                f"feed {self.label!r} is not an array of {self.dtype.name}: "
                f"{type(value).__name__} {str(value)[:60]}",
                details=[str(error).splitlines()[0]],
                source=self.source,
                mend=f"feed an array of {self.type}",
            ) from None  # its first line is in the details
        return self._cast(array)

    def _cast(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy in the feed's dtype; integers must fit, or they would wrap around."""
        self._check_kind(array.dtype)
        result = array.astype(self.dtype)
        if is_integer(self.dtype) and not np.array_equal(result, array):
            raise FeedError(
                f"feed {self.label!r} must be {self.dtype.name}, got {array.dtype} with values "
                "that do not fit",
                details=[f"its values run from {array.min()} to {array.max()}"],
                source=self.source,
                mend="give the placeholder a wider dtype",
            )
        return result

    def _check_kind(self, dtype: Any) -> None:
        try:
            same = kind_of(as_dtype(dtype)) == kind_of(self.dtype)
        except DTypeError:
            same = False
        if not same:
            raise FeedError(
                f"feed {self.label!r} must be {self.dtype.name}, got {dtype}",
                source=self.source,
                mend=f"feed value.astype({self.dtype.name!r}), if that is what you mean",
            )


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array, not filled, whose memory XLA takes as it is: it copies what begins elsewhere."""
    count = math.prod(shape) * dtype.itemsize
    memory = np.empty(count + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    array: np.ndarray[Any, Any] = memory[start : start + count].view(dtype).reshape(shape)
    return array


def own(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy of it if somebody can write to it."""
    if not _may_change(array):
        return array
    return array.copy() if array.nbytes < _LARGE else _aligned_copy(array)


def _aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = aligned(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _may_change(array: Any) -> bool:
    """Whether somebody can write to the array's memory, if only through the array it views."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def bind_feeds(
    program: Program, shapes: Sequence[Sequence[int]], sources: Mapping[str, Any]
) -> dict[str, int]:
    """The named sizes, solved from the shapes of the program's feeds.

    Raises:
        FeedError: a rank or size that does not fit; the text says which size is bound to what.
    """
    bindings: dict[str, int] = {}
    bound_by: dict[str, str] = {}
    ports = program.ports("feed")
    rows: list[tuple[Dim, int, str]] = []
    for port, shape in zip(ports, shapes, strict=True):
        wanted = port.tensor.type.shape
        if len(wanted) != len(shape):
            raise _misfit(port, shape, sources, f"rank {len(wanted)}, got rank {len(shape)}")
        rows += [(dim, int(size), port.name) for dim, size in zip(wanted, shape, strict=True)]
    # Bare names first, so that an error names the plainest feed; then `2*n`, `n + 1`.
    rows.sort(key=lambda row: as_symbol(row[0]) is None)
    for dim, size, feed in rows:
        solved = _solve(substitute(dim, bindings), size)
        if solved is not None:
            bindings[solved[0]] = solved[1]
            bound_by[solved[0]] = feed
    for port, shape in zip(ports, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(port.tensor.type.shape, shape, strict=True)):
            expected = substitute(dim, bindings)
            if isinstance(expected, DimExpr):
                raise _misfit(port, shape, sources, f"size {dim} on axis {axis}, got {size}")
            if expected != size:
                name = as_symbol(dim)
                by = bound_by.get(name) if name is not None else None
                reason = f" ({name} is {expected} by feed {by!r})" if by else ""
                raise _misfit(
                    port, shape, sources, f"size {expected} on axis {axis}, got {size}{reason}"
                )
    for a, b in program.equalities:
        left, right = substitute(a, bindings), substitute(b, bindings)
        unknown = isinstance(left, DimExpr) or isinstance(right, DimExpr)  # of other fetches
        if left != right and not unknown:
            raise FeedError(
                f"the graph needs {a} == {b}, and the feeds give {left} and {right}",
                source=current_source(),
                mend="feed values whose sizes meet it",
                details=[
                    f"feed {p.name!r}: {tuple(s)}" for p, s in zip(ports, shapes, strict=True)
                ],
            )
    return bindings


def _solve(dim: Dim, size: int) -> tuple[str, int] | None:
    """The one named size in `dim` and its value, where `dim == size` decides it."""
    names = symbols_of(dim)
    if len(names) != 1:
        return None
    (name,) = names
    constant = substitute(dim, {name: 0})
    factor = substitute(dim, {name: 1}) - constant
    if factor == 0 or factor * symbol(name) + constant != dim:
        return None  # not of the form a*n + b
    value, rest = divmod(size - constant, factor)
    return (name, value) if rest == 0 and value >= 0 else None


def _misfit(port: Port, shape: Sequence[int], sources: Mapping[str, Any], words: str) -> FeedError:
    return FeedError(
        f"feed {port.name!r} must be {port.tensor.type}, got shape {tuple(shape)}: "
        f"expected {words}",
        source=sources.get(port.name),
        mend="feed a value of that shape, or change the placeholder's",
    )

"""Values that users feed. They are checked against the placeholder, cast within a kind, and
copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from graphc.errors import DTypeError, FeedError, GraphcError, ShapeError
from graphc.ir.dims import Dim, DimExpr, as_symbol, substitute, symbol, symbols_of
from graphc.ir.dtypes import as_dtype, kind_of, promote_scalar
from graphc.ir.host_values import fitted, host_array, is_typed_key, python_kind, shown
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.runtime.feeds.device_values import fitted_on_device
from graphc.runtime.feeds.feed_memory import own


class FeedSpec:
    """One feed of an executable, prepared to convert values quickly.

    Args:
        port: the program's input.
        label: the user's name of the feed, for errors.
        source: the user's line of the placeholder.
        copy: whether host arrays must be copied. On CPU, JAX may read the caller's buffer after the
            call, so a caller that reuses the buffer would change the result.
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
        """`value` as an array of the feed's dtype that no other code will write to.

        Args:
            copy: False if the result is read at once. In that case it may be the caller's array.

        Raises:
            FeedError: the value's dtype is of another kind, a number does not fit, or the value is
                not numeric or cannot be read.
        """
        # `is`: what equals uint64 may be np.ulonglong, which would stay in the caches of JAX.
        if type(value) is np.ndarray and value.dtype is self.dtype:
            return own(value) if self.copy and copy else value
        if isinstance(value, jax.Array):
            return self._convert_jax(value)
        return self._convert_other(value, self.copy and copy)

    def _convert_jax(self, value: jax.Array) -> jax.Array:
        if isinstance(value, Tracer):
            raise FeedError(
                f"feed {self.label!r} is a value that JAX is tracing, and has no numbers yet",
                source=self.source,
                hint="run the session outside of jax.jit and jax.grad, or make a JAX function "
                "of the graph: gc.to_jax",
            )
        if value.is_deleted():
            raise FeedError(
                f"feed {self.label!r} is an array that was deleted, or donated to a JAX function",
                source=self.source,
                hint="feed one that is still alive, or a copy made before",
            )
        if value.dtype == self.dtype:
            return value
        if is_typed_key(value):
            return self._convert_jax(jax.random.key_data(value))
        self._check_kind(value.dtype)
        try:
            return fitted_on_device(value, self.dtype)
        except DTypeError as error:
            raise self._misfit(value.dtype, error) from None

    def _convert_other(self, value: Any, copy: bool) -> Any:
        """Converts Python numbers, lists, and everything that NumPy or DLPack can read."""
        try:
            array = self._read(value)
        except FeedError:
            raise
        except GraphcError as error:
            raise FeedError(
                f"feed {self.label!r} is not an array of {self.dtype.name}: {shown(value)}",
                details=[error.what, *error.details],
                source=self.source,
                hint=error.hint or f"feed an array of {self.type}",
            ) from error.__cause__
        try:
            result = fitted(array, self.dtype)
        except DTypeError as error:
            weak = python_kind(value, array) is not None
            given = type(value).__name__ if weak else array.dtype
            raise self._misfit(given, error) from None
        return own(result) if result is array and copy else result

    def _read(self, value: Any) -> np.ndarray[Any, Any]:
        """`value` as an array whose dtype is of the feed's kind."""
        array = host_array(value, self.dtype)
        scalar = python_kind(value, array)
        if scalar is not None and promote_scalar(self.dtype, scalar) == self.dtype:
            return array  # Python numbers are weak: they adapt to any dtype of at least their kind
        if scalar is not None and not array.size:
            return array.astype(self.dtype)  # an empty list, which NumPy reads as floats
        self._check_kind(array.dtype)
        return array

    def _misfit(self, given: Any, error: DTypeError) -> FeedError:
        return FeedError(
            f"feed {self.label!r} must be {self.dtype.name}, got {given} with values that do "
            "not fit",
            details=error.details,
            source=self.source,
            hint="give the placeholder a wider dtype",
        )

    def _check_kind(self, dtype: Any) -> None:
        try:
            same = kind_of(as_dtype(dtype)) == kind_of(self.dtype)
        except DTypeError:
            same = False
        if not same:
            raise FeedError(
                f"feed {self.label!r} must be {self.dtype.name}, got {dtype}",
                source=self.source,
                hint=f"feed value.astype({self.dtype.name!r}), if that is what you mean",
            )


def variable_value(
    name: str, type: TensorType, value: Any, source: Any = None, *, copy: bool = True
) -> Any:
    """A new value for a variable, as an array of its type that no other code writes to.

    Args:
        copy: False if the result is read at once. In that case it may be the caller's array.

    Raises:
        DTypeError, ShapeError: the value does not fit, by the rules for feeds.
    """
    try:
        array = FeedSpec.of_type(name, type, source).convert(value, copy)
    except FeedError as error:
        raise DTypeError(
            error.what.replace("feed", "variable", 1),
            details=error.details,
            source=error.source,
            hint=error.hint
            and error.hint.replace("feed", "set", 1).replace("placeholder", "variable", 1),
        ) from error.__cause__
    if array.shape != type.shape:
        raise ShapeError(
            f"variable {name!r} has shape {type.shape}, the value {tuple(array.shape)}",
            source=source,
            hint="set a value of that shape",
        )
    return array


def bind_feeds(
    program: Program, shapes: Sequence[Sequence[int]], sources: Mapping[str, Any]
) -> dict[str, int]:
    """The named sizes, solved from the shapes of the program's feeds.

    Raises:
        FeedError: a rank or size does not fit. The text says which size is bound to which value.
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
    # Plain names come first, so that an error names the simplest feed. Then come `2*n` and `n + 1`.
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
            raise FeedError.here(
                f"the graph needs {a} == {b}, and the feeds give {left} and {right}",
                hint="feed values whose sizes satisfy this",
                details=[
                    f"feed {p.name!r}: {tuple(s)}" for p, s in zip(ports, shapes, strict=True)
                ],
            )
    return bindings


def _solve(dim: Dim, size: int) -> tuple[str, int] | None:
    """The one named size in `dim` and its value, if `dim == size` determines it."""
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
        hint="feed a value of that shape, or change the placeholder's",
    )

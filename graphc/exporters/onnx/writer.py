"""`Writer`: builds the nodes of an ONNX graph.

ONNX has images as [batch, channels, ...], graphc as [batch, ..., channels]. The writer therefore
remembers which values are transposes of others: a transpose of a transpose becomes one or none, and
elementwise operators work on the values before the transpose. What nothing uses is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.exporters.onnx.dtypes import number_of
from graphc.exporters.onnx.legal import Schemas
from graphc.exporters.onnx.values import Value, inverse
from graphc.ir.dtypes import is_floating
from graphc.ir.names import Names

INT64 = np.dtype("int64")
BOOL = np.dtype("bool")

_SUMS = ("ReduceSum", "ReduceMean", "ReduceProd")

Perm = tuple[int, ...]
View = tuple[Value, Perm]


@dataclass
class Shared:
    """What the graph and the bodies of its loops and branches have together.

    Attributes:
        arrays: the values that are known, by name: variables and constants.
        views: name -> (value, perm) for values that are the transpose of another.
    """

    schemas: Schemas
    names: Names = field(default_factory=Names)
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    constants: dict[tuple[Any, ...], Value] = field(default_factory=dict)


class Writer:
    """Nodes of one graph or body, in order.

    Attributes:
        nodes: what is written, as messages of ONNX.
        prefix: the name that new values begin with: that of the graph's node.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.nodes: list[Any] = []
        self.prefix = "value"

    def body(self) -> Writer:
        """A writer for the body of a loop or a branch. It may use all values of this one."""
        inner = Writer(self.shared)
        inner.prefix = self.prefix
        return inner

    # -- values ------------------------------------------------------------------------------

    def new_name(self, base: str) -> str:
        """A name that no other value has."""
        return self.shared.names.unique(base)

    def known(self, name: str, array: np.ndarray[Any, Any]) -> Value:
        """A variable or constant, under a new name like `name`."""
        number_of(array.dtype)
        name = self.new_name(name)
        self.shared.arrays[name] = array
        return Value(name, array.dtype, array.ndim)

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """A constant. Equal ones are one value."""
        array = np.asarray(value, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        found = self.shared.constants.get(key)
        if found is None:
            found = self.shared.constants[key] = self.known("constant", array)
        return found

    def ints(self, values: Sequence[int]) -> Value:
        """A vector of int64, as sizes and axes are given."""
        return self.constant(list(values), INT64)

    def array_of(self, x: Value) -> np.ndarray[Any, Any] | None:
        """The elements of a variable or constant, otherwise None."""
        return self.shared.arrays.get(x.name)

    # -- nodes -------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        results: Sequence[tuple[Any, int]],
        attrs: Mapping[str, Any],
    ) -> list[Value]:
        """Adds a node and returns its results, given their dtypes and ranks."""
        from onnx import helper

        values = [
            Value(self.new_name(self.prefix), np.dtype(dtype), rank) for dtype, rank in results
        ]
        names = ["" if x is None else x.name for x in inputs]
        self.nodes.append(helper.make_node(op, names, [v.name for v in values], values[0].name))
        for key, value in attrs.items():
            self.nodes[-1].attribute.append(helper.make_attribute(key, value))
        return values

    def ops(
        self, op: str, *inputs: Value | None, results: Sequence[tuple[Any, int]], **attrs: Any
    ) -> list[Value]:
        """As `op`, for several results."""
        return self.shared.schemas.legal(self, op, inputs, results, attrs)

    def op(
        self,
        op: str,
        *inputs: Value | None,
        dtype: Any = None,
        rank: int | None = None,
        **attrs: Any,
    ) -> Value:
        """Adds a node with one result.

        Dtypes that the operator does not take are cast to wider ones, and the result is cast back.

        Args:
            inputs: None for an optional input that is not given.
            dtype: of the result; by default that of the first input.
            rank: of the result; by default the largest of the inputs.
        """
        given = [x for x in inputs if x is not None]
        dtype = given[0].dtype if dtype is None else dtype
        rank = max(x.rank for x in given) if rank is None else rank
        return self.ops(op, *inputs, results=[(dtype, rank)], **attrs)[0]

    def cast(self, x: Value, dtype: Any) -> Value:
        """`x` in another dtype."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        attrs = {"saturate": 0} if dtype.name.startswith("float8") else {}
        return self.elementwise("Cast", x, dtype=dtype, to=number_of(dtype), **attrs)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with axis `perm[i]` as axis i."""
        source, before = self.shared.views.get(x.name, (x, tuple(range(x.rank))))
        whole = tuple(before[axis] for axis in perm)
        if whole == tuple(range(x.rank)):
            return source
        array = self.array_of(source)
        if array is not None:
            return self.known(f"{source.name}.transposed", np.transpose(array, whole))
        y = self.add("Transpose", [source], [(x.dtype, x.rank)], {"perm": whole})[0]
        self.shared.views[y.name] = (source, whole)
        return y

    def elementwise(self, op: str, *xs: Value, dtype: Any = None, **attrs: Any) -> Value:
        """A node that computes each element from the elements at its place, with broadcasting."""
        perm = self._common_view(xs)
        if perm is None:
            return self.op(op, *xs, dtype=dtype, **attrs)
        before = [self._before(x, perm) for x in xs]
        y = self.op(op, *before, dtype=dtype, **attrs)
        return self.transpose(y, perm)

    def _common_view(self, xs: Sequence[Value]) -> Perm | None:
        """The permutation of those operands that are transposes, if the others are constants."""
        rank = max(x.rank for x in xs)
        perms = {
            self.shared.views[x.name][1] if x.name in self.shared.views else None
            for x in xs
            if x.rank and x.name not in self.shared.arrays
        }
        perm = perms.pop() if len(perms) == 1 else None
        return perm if perm is not None and len(perm) == rank else None

    def _before(self, x: Value, perm: Perm) -> Value:
        """The operand of which a transpose by `perm` is `x`."""
        if not x.rank:
            return x
        if x.name in self.shared.views:
            return self.shared.views[x.name][0]
        array = self.shared.arrays[x.name]
        whole = array.reshape((1,) * (len(perm) - x.rank) + array.shape)
        if whole.size == 1:
            return x
        turned = np.transpose(whole, inverse(perm))
        return self.known(x.name, turned) if turned.shape != array.shape else self.constant(turned)

    # -- what many rules need -------------------------------------------------------------------

    def like(self, x: Value, value: Any) -> Value:
        """A scalar of the dtype of x."""
        return self.constant(value, x.dtype)

    def number(self, op: str, x: Value, value: Any) -> Value:
        """`op(x, value)` for a number."""
        return self.elementwise(op, x, self.like(x, value))

    def compare(self, op: str, x: Value, y: Value) -> Value:
        return self.elementwise(op, x, y, dtype=BOOL)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.elementwise("Where", condition, x, y, dtype=x.dtype)

    def invert(self, condition: Value) -> Value:
        return self.elementwise("Not", condition)

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """`x` with axes of size 1 at these places of the result."""
        if not axes:
            return x
        array = self.array_of(x)
        if array is not None:
            return self.constant(np.expand_dims(array, tuple(axes)))
        return self.op("Unsqueeze", x, self.ints(axes), rank=x.rank + len(axes))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        if not axes:
            return x
        return self.op("Squeeze", x, self.ints(axes), rank=x.rank - len(axes))

    def reduce(self, op: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """A reduction over `axes`."""
        if not axes:
            return x
        if op in _SUMS and is_floating(x.dtype) and x.dtype.itemsize < 4:  # as graphc sums
            return self.cast(self.reduce(op, self.cast(x, "float32"), axes, keepdims), x.dtype)
        source, perm = self.shared.views.get(x.name, (x, tuple(range(x.rank))))
        own = sorted(perm[axis] for axis in axes)
        left = [perm[axis] for axis in range(x.rank) if axis not in axes]
        rank = x.rank if keepdims else len(left)
        takes_input = op == "ReduceSum" or self.shared.schemas.opset >= 18
        inputs = [source, self.ints(own)] if takes_input else [source]
        attrs: dict[str, Any] = {} if takes_input else {"axes": own}
        y = self.op(op, *inputs, rank=rank, keepdims=int(keepdims), **attrs)
        if keepdims:
            return self.transpose(y, perm)
        order = sorted(left)
        return self.transpose(y, [order.index(axis) for axis in left])

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        return self.op("Gather", x, indices, rank=x.rank + indices.rank - 1, axis=axis)

    def slice(
        self, x: Value, starts: Value, ends: Value, axes: Sequence[int], steps: Sequence[int] = ()
    ) -> Value:
        taken = self.ints(steps or [1] * len(axes))
        return self.op("Slice", x, starts, ends, self.ints(axes), taken, rank=x.rank)

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        if len(xs) == 1:
            return xs[0]
        perm = self._common_view(xs)
        if perm is not None and all(x.name in self.shared.views for x in xs):
            before = [self.shared.views[x.name][0] for x in xs]
            y = self.op("Concat", *before, rank=xs[0].rank, axis=perm[axis])
            return self.transpose(y, perm)
        return self.op("Concat", *xs, rank=xs[0].rank, axis=axis)

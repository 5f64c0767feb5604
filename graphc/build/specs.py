"""Shapes as users write them, and `TensorSpec`: the shape, dtype and name of a future value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Protocol, TypeAlias

from graphc.errors import AttributeValueError, ShapeError, TextError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.dtypes import DType, as_dtype
from graphc.ir.graph import Graph
from graphc.ir.names import is_legal
from graphc.ir.operand import Operand
from graphc.typing import DTypeLike

SpecShape: TypeAlias = Dim | str | Sequence[Dim | str | None]
"""A size for each axis: an int, a name such as "batch", an expression such as "2*batch", or None
for a size that is known only when fed. A single size stands for one axis."""


class HasShape(Protocol):
    """An array, a `jax.ShapeDtypeStruct`, or another object with a shape and a dtype."""

    @property
    def shape(self) -> Any:
        """The sizes."""

    @property
    def dtype(self) -> Any:
        """The dtype."""


SpecTree: TypeAlias = Any
"""A `TensorSpec`, an object with a shape and a dtype, or a nest (lists, tuples, dicts) of them."""


def as_dim(dim: Any, what: str) -> Dim | None:
    """A dim in the form of the IR; None is unchanged. `what` is the start of the error text.

    Raises:
        ShapeError: `dim` is not a dim, or is a negative size.
    """
    if dim is None or isinstance(dim, DimExpr):
        return dim
    try:
        parsed = parse_dim(dim) if isinstance(dim, str) else index(dim)
    except (TextError, TypeError) as error:
        raise ShapeError.here(
            f"{what}: {dim!r} is not a dim",
            hint='write a size, None, or a name such as "batch" or "2*batch"',
        ) from error
    if isinstance(dim, bool) or (isinstance(parsed, int) and parsed < 0):
        raise ShapeError.here(
            f"{what}: {dim!r} is not a size",
            hint="sizes are 0 or more; write None for a size that is known only when fed",
        )
    return parsed


def as_dims(shape: Any, what: str) -> tuple[Dim | None, ...]:
    """The dims of `shape`, a sequence or one bare size.

    Raises:
        ShapeError: `shape` does not consist of dims.
    """
    if shape is None:
        raise ShapeError.here(
            f"{what}: the rank must be known",
            hint="write one None for each size that is not known: (None, None)",
        )
    bare = isinstance(shape, (str, DimExpr)) or not isinstance(shape, Sequence)
    return tuple(as_dim(dim, what) for dim in ([shape] if bare else shape))


def as_static_shape(shape: Any, what: str) -> tuple[int, ...]:
    """The sizes of `shape`, which must all be known.

    Raises:
        ShapeError: a size is not known, or not a size.
    """
    dims = as_dims(shape, what)
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    if len(sizes) != len(dims):
        raise ShapeError.here(
            f"{what}: every size must be known, got ({', '.join(map(str, dims))})",
            hint="write ints",
        )
    return sizes


def resolve_shape(shape: Any, graph: Graph, name: str, what: str) -> Shape:
    """The shape in `graph`: each None becomes a fresh named size, `<name>_<axis>`.

    Raises:
        ShapeError: `shape` does not consist of dims.
    """
    dims = as_dims(shape, what)
    return tuple(
        graph.fresh_dim(f"{name}_{axis}") if dim is None else dim for axis, dim in enumerate(dims)
    )


@dataclass(frozen=True, init=False)
class TensorSpec:
    """The shape, dtype and name of a value that is given later.

    Args:
        shape: dims as for `gc.placeholder`: ints, None, names or expressions over names.
        dtype: anything that names a dtype.
        name: the name of its placeholder; None for the name of the function's parameter.

    Raises:
        ShapeError, DTypeError: the shape or the dtype is invalid.

    Examples:
        >>> gc.TensorSpec((None, 784), "float32", "x")
        TensorSpec(shape=(None, 784), dtype=dtype('float32'), name='x')
        >>> gc.placeholder(gc.TensorSpec(("batch", 784), name="x"))
        <Tensor x:0 f32[batch, 784]>
    """

    shape: tuple[Dim | None, ...]
    dtype: DType
    name: str | None

    def __init__(
        self, shape: SpecShape, dtype: DTypeLike = "float32", name: str | None = None
    ) -> None:
        object.__setattr__(self, "shape", as_dims(shape, "TensorSpec"))
        object.__setattr__(self, "dtype", as_dtype(dtype))
        object.__setattr__(self, "name", name)

    @classmethod
    def of(cls, value: TensorSpec | HasShape) -> TensorSpec:
        """`value` as a spec: itself, or the spec of an array or of a `jax.ShapeDtypeStruct`.

        Raises:
            AttributeValueError: it has no shape and dtype.
        """
        if isinstance(value, cls):
            return value
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return cls(value.shape, value.dtype)
        raise AttributeValueError.here(
            f"{value!r} is not a spec",
            hint='pass gc.TensorSpec((None, 784), "float32"), or an array of the same shape and '
            "dtype",
        )


def check_name(name: Any, what: str) -> str:
    """Returns `name` if it is a valid name for a placeholder or a variable.

    Raises:
        AttributeValueError: the name is empty, or contains characters that the text form and
            fetches use.
    """
    if isinstance(name, str) and name and all(map(is_legal, name)):
        parts = name.split("/")
        if all(parts):
            return name
    raise AttributeValueError.here(f"{what}: {name!r} is not a name", hint=_name_hint(name, what))


def _name_hint(name: Any, what: str) -> str:
    if isinstance(name, Operand):
        return f"make the layer, then call it: layer = {what}(...), y = layer(x)"
    if isinstance(name, (int, tuple, list)) and what[:1].isupper():  # a layer
        return f"a size or a shape is one argument, such as {what}((2, 3))"
    return 'use letters, digits and "_", such as "kernel"; "/" separates scopes'

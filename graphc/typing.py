"""The types of the parameters of graphc's functions, also for the user's own signatures.

>>> import graphc as gc
>>> from graphc.typing import TensorLike
>>> def scaled(x: TensorLike, by: TensorLike = 2.0) -> gc.Tensor:
...     return gc.multiply(x, by)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.dims import Dim, DimExpr
from graphc.ir.node import Tensor
from graphc.ir.operand_types import SupportsArray
from graphc.ir.variable import Variable

__all__ = [
    "ArrayTree",
    "DTypeLike",
    "Feeds",
    "Fetched",
    "Fetches",
    "Padding",
    "Seed",
    "ShapeLike",
    "StateTree",
    "TensorLike",
    "TensorTree",
    "VariableTree",
]

TensorLike: TypeAlias = Tensor | Variable | DimExpr | complex | SupportsArray | Sequence[Any]
"""A tensor or a variable, or a value that becomes a constant: a number, nested lists of numbers, an
array of NumPy or JAX, or anything that NumPy can read. A named size, such as `x.shape[0]`, stands
for its value."""

TensorTree: TypeAlias = Any
"""A tensor-like value, or tuples, lists, dicts and other pytrees of them."""

StateTree: TypeAlias = Any
"""The state of a pipeline or a callback in a checkpoint: a nest of dicts with str keys, lists, str,
int, float, bool, None and arrays."""

ShapeLike: TypeAlias = Dim | Sequence[Dim]
"""The sizes of all axes: ints and named sizes. One size alone stands for one axis."""

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any]
"""A dtype: `"float32"`, `"f32"`, `np.float32`, `jnp.bfloat16` or `np.dtype("int8")`."""

Seed: TypeAlias = int | Tensor | Variable | None
"""An int from 0 to 2**31 - 1, or an int32 scalar tensor. With None, each random function draws
different numbers."""

Padding: TypeAlias = str | int | Sequence[int] | Sequence[Sequence[int]]
"""`"valid"`, `"same"`, one number for every side, one for each axis, or a pair (before, after) for
each axis."""

Fetches: TypeAlias = Any
"""The fetches of a run: a tensor, a variable, a node or the name of one; or a nest (lists, tuples,
dicts) of them."""

Fetched: TypeAlias = Any
"""The results of a run, in the nest of the fetches: a `jax.Array` for each fetch, None for a node
without results."""

Feeds: TypeAlias = Mapping[Tensor, Any] | Mapping[str, Any] | Mapping[Tensor | str, Any]
"""The values fed to a run, by tensor or by name: numbers, nested lists or arrays. If a step is
compiled without a run, a shape or a `TensorSpec` may replace a value."""

ArrayTree: TypeAlias = Any
"""An array of NumPy or JAX, or a nest (lists, tuples, dicts) of arrays."""

VariableTree: TypeAlias = Any
"""Variables, or names of variables, in a nest (lists, tuples, dicts, any pytree)."""

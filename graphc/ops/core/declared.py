"""Operators whose nodes declare the types of their results as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from graphc.errors import LoweringError
from graphc.ir.dtypes import BY_SHORT, SHORT
from graphc.ir.node import Node
from graphc.ir.opdef import Attr, LowerContext
from graphc.ir.types import TensorType

ATTRS: Mapping[str, Attr] = {
    "shapes": Attr("pairs", doc="the shapes of the results"),
    "dtypes": Attr(
        "str",
        check=lambda names: all(name in BY_SHORT for name in names.split()),
        must="be names of dtypes, such as 'f32 i32'",
        doc="the dtypes of the results",
    ),
}


def declare(types: Sequence[TensorType]) -> dict[str, Any]:
    """The attributes that declare results of `types`."""
    return {
        "shapes": tuple([type.shape for type in types]),
        "dtypes": " ".join([SHORT[type.dtype] for type in types]),
    }


def declared(ctx: Any, shapes: Sequence[Any], dtypes: str) -> tuple[TensorType, ...]:
    """The types that the attributes declare. For an operator's `infer`."""
    names = dtypes.split()
    ctx.require(len(names) == len(shapes), f"{len(shapes)} shapes and {len(names)} dtypes")
    pairs = zip(names, shapes, strict=True)
    return tuple([TensorType(BY_SHORT[name], shape) for name, shape in pairs])


def structs(ctx: LowerContext, shapes: Sequence[Any], dtypes: str) -> list[jax.ShapeDtypeStruct]:
    """The declared results as JAX structs."""
    pairs = zip(shapes, dtypes.split(), strict=True)
    return [jax.ShapeDtypeStruct(ctx.shape(shape), BY_SHORT[name]) for shape, name in pairs]


def checked(
    node: Node, results: Sequence[Any], expected: Sequence[jax.ShapeDtypeStruct]
) -> tuple[Any, ...]:
    """`results` as a tuple.

    Raises:
        LoweringError: their types are not those that the node declares.
    """
    got = [(r.shape, r.dtype) for r in results]
    wanted = [(s.shape, s.dtype) for s in expected]
    if got != wanted:
        raise LoweringError(
            f"{node.op.name} {node.name!r}: the results do not have the declared types",
            details=[f"declared  {wanted}", f"got       {got}"],
            source=node.source,
        )
    return tuple(results)

"""Represents a loss of the graph as a function that JAX can trace and differentiate twice.

While JAX traces an optimizer, one primitive represents the loss, another its gradients, and a third
the derivatives of the gradients along tangents. They become calls of empty bodies, which are later
replaced by the nodes of the loss. So the traced jaxpr depends on types only, and can be cached.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from graphc.errors import JaxImportError
from graphc.ir.dtypes import DType, as_dtype, is_complex
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.ops.control.deferred_bodies import call_curvature, call_objective
from graphc.ops.core.emit import cast
from graphc.ops.elementwise.arithmetic import add, multiply
from graphc.ops.elementwise.complex_parts import real
from graphc.ops.reductions.reduction import reduce_sum

# All primitives take the parameters, then the other inputs of the loss.
_LOSS = Primitive("graphc_loss")
_SLOPES = Primitive("graphc_slopes")
_SLOPES.multiple_results = True
# These primitives also take tangents of the parameters, in which they are linear.
_ALONG = Primitive("graphc_slope_along")
_CURVATURE = Primitive("graphc_curvature")
_CURVATURE.multiple_results = True


def loss_and_slopes(
    count: int, captured: Sequence[Any], dtype: DType
) -> tuple[Callable[..., Any], Callable[..., list[Any]]]:
    """The loss and its gradients as functions of `count` parameters, for tracing by JAX.

    Args:
        captured: the other inputs of the loss.
        dtype: the dtype of the loss, which is a scalar.

    Returns:
        Functions of the parameters, in order. The first can be differentiated twice, the second
        once.
    """

    def loss(*parameters: Any) -> Any:
        return _LOSS.bind(*parameters, *captured, count=count, dtype=dtype)

    def slopes(*parameters: Any) -> list[Any]:
        found: list[Any] = _SLOPES.bind(*parameters, *captured, count=count, dtype=dtype)
        return found

    return loss, slopes


def _loss_type(*avals: Any, count: int, dtype: DType) -> ShapedArray:
    return ShapedArray((), dtype)


def _slope_types(*avals: Any, count: int, dtype: DType) -> list[ShapedArray]:
    return [ShapedArray(aval.shape, aval.dtype) for aval in avals[:count]]


def _loss_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, dtype: DType
) -> tuple[Any, Any]:
    """The gradient is computed only once the tangents are known, because a line search may never
    need it."""
    moved = [ad.instantiate_zeros(t) for t in tangents[:count]]
    options = {"count": count, "dtype": dtype}
    return _LOSS.bind(*primals, **options), _ALONG.bind(*primals, *moved, **options)


def _along_transposed(adjoint: Any, *operands: Any, count: int, dtype: DType) -> list[Any]:
    given = operands[:-count]
    nothing: list[Any] = [None] * len(given)
    if type(adjoint) is ad.Zero:
        return [*nothing, *[None] * count]
    found = _SLOPES.bind(*given, count=count, dtype=dtype)
    return [*nothing, *[lax.convert_element_type(adjoint, g.dtype) * g for g in found]]


def _along_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, dtype: DType
) -> tuple[Any, Any]:
    """The JVP of s(p) . t: s(p) . dt, plus the derivative of the gradient s along dp, times t."""
    options = {"count": count, "dtype": dtype}
    given, ts = primals[:-count], primals[-count:]
    dp, dt = tangents[:count], tangents[-count:]
    moved = [ad.instantiate_zeros(t) for t in dt]
    bent = _curved(given, dp, options)
    change = _ALONG.bind(*given, *moved, **options)
    for each, t in zip(bent, ts, strict=True):
        change += lax.convert_element_type((each * t).sum(), dtype)
    return _ALONG.bind(*primals, **options), change


def _slopes_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, dtype: DType
) -> tuple[list[Any], list[Any]]:
    options = {"count": count, "dtype": dtype}
    return _SLOPES.bind(*primals, **options), _curved(primals, tangents[:count], options)


def _curved(given: Sequence[Any], along: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """The derivatives of the gradients at the parameters along tangents.

    Raises:
        JaxImportError: parameters are complex, for which the second derivative is not a linear map.
    """
    if any(np.issubdtype(p.dtype, np.complexfloating) for p in given[: options["count"]]):
        raise JaxImportError(
            "it takes second derivatives of the loss for complex parameters",
            hint="keep their real and imaginary parts as two variables",
        )
    moved = [ad.instantiate_zeros(t) for t in along]
    found: list[Any] = _CURVATURE.bind(*given, *moved, **options)
    return found


def _curvature_transposed(
    adjoints: Sequence[Any], *operands: Any, count: int, dtype: DType
) -> list[Any]:
    """Second derivatives are symmetric, so the adjoints replace the tangents."""
    given = operands[:-count]
    moved = [ad.instantiate_zeros(a) for a in adjoints]
    found = _CURVATURE.bind(*given, *moved, count=count, dtype=dtype)
    return [*[None] * len(given), *found]


def _refuse_third(*args: Any, **params: Any) -> NoReturn:
    raise JaxImportError(
        "it takes third derivatives of the loss",
        hint="compute them with gc.gradients, and give them to the transformation as gradients",
    )


def _batch_by_turns(
    primitive: Primitive, operands: Sequence[Any], axes: Sequence[int | None], **params: Any
) -> tuple[Any, Any]:
    """Under `jax.vmap`, evaluates batch elements one after the other, because the loss has no
    batched form."""
    mapped = [i for i, axis in enumerate(axes) if axis is not None]
    stacks = [jnp.moveaxis(operands[i], axes[i] or 0, 0) for i in mapped]

    def at(values: Sequence[Any]) -> Any:
        given = list(operands)
        for i, value in zip(mapped, values, strict=True):
            given[i] = value
        return primitive.bind(*given, **params)

    results = lax.map(at, stacks)
    return results, [0] * len(results) if primitive.multiple_results else 0


_LOSS.def_abstract_eval(_loss_type)
_SLOPES.def_abstract_eval(_slope_types)
_ALONG.def_abstract_eval(_loss_type)
ad.primitive_jvps[_LOSS] = _loss_jvp
_CURVATURE.def_abstract_eval(_slope_types)
ad.primitive_jvps[_SLOPES] = _slopes_jvp
ad.primitive_jvps[_ALONG] = _along_jvp
ad.primitive_jvps[_CURVATURE] = _refuse_third
ad.primitive_transposes[_ALONG] = _along_transposed
ad.primitive_transposes[_CURVATURE] = _curvature_transposed
for _each in (_LOSS, _SLOPES, _ALONG, _CURVATURE):
    batching.primitive_batchers[_each] = functools.partial(_batch_by_turns, _each)


# -- as nodes ----------------------------------------------------------------------------------


def _called(eqn: Equation, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return call_objective(operands, eqn.params["count"], as_dtype(eqn.params["dtype"]))


def _along(eqn: Equation, *operands: Tensor) -> Tensor:
    count = eqn.params["count"]
    slopes = _called(eqn, operands[:-count])[1:]
    parts = []
    for slope, tangent in zip(slopes, operands[-count:], strict=True):
        product = multiply(slope, tangent)
        part = reduce_sum(real(product) if is_complex(product.dtype) else product)
        parts.append(cast(part, eqn.type.dtype))
    return functools.reduce(add, parts)


RULES: dict[str, Rule] = {
    "graphc_curvature": lambda eqn, *operands: call_curvature(operands, eqn.params["count"]),
    "graphc_loss": lambda eqn, *operands: _called(eqn, operands)[0],
    "graphc_slope_along": _along,
    "graphc_slopes": lambda eqn, *operands: _called(eqn, operands)[1:],
}

"""`Primitive`: a node for any JAX primitive that has no operator in graphc."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp
from jax.extend.core import primitives

from graphc.errors import LoweringError
from graphc.ir.opdef import Attr, LowerContext, OpDef
from graphc.ops.core.declared import ATTRS, checked, declared, structs
from graphc.ops.core.defining import define
from graphc.ops.structure.primitive_params import decode

# Primitives whose parameters hold functions. JAX's public functions supply them.
_SCATTERS: Mapping[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-max": lax.scatter_max,
    "scatter-min": lax.scatter_min,
    "scatter-mul": lax.scatter_mul,
    "scatter-sub": lax.scatter_sub,
}
_PRIMITIVES: Mapping[str, Any] = {
    primitive.name: primitive
    for module in (lax, lax.linalg, primitives)
    for name, primitive in vars(module).items()
    if name.endswith("_p")
}


# Primitives without a public name: public functions whose jaxprs have them.
_HIDDEN: Mapping[str, Callable[[Any], Any]] = {
    "geqp3": lambda x: jax.scipy.linalg.qr_multiply(x, x, pivoting=True),
    "geqrf": lambda x: jnp.linalg.qr(x, mode="raw"),
    "platform_index": lambda x: lax.platform_dependent(x, cpu=lax.sin, default=lax.cos),
}


@cache
def _hidden(name: str) -> Any:
    """The primitive of this name in the jaxpr of its public function."""
    waiting = list(jax.make_jaxpr(_HIDDEN[name])(jnp.zeros((2, 2))).eqns)
    while waiting:
        eqn = waiting.pop()
        if eqn.primitive.name == name:
            return eqn.primitive
        waiting += [e for value in eqn.params.values() for e in getattr(value, "eqns", ())]
    return None


def is_scatter(name: str) -> bool:
    """Whether `name` is a scatter; `Primitive` needs no function parameters for these."""
    return name in _SCATTERS


def is_known(name: str) -> bool:
    """Whether JAX has a primitive of this name that can be reached by its public API."""
    return name in _PRIMITIVES or name in _HIDDEN


def _lower(
    ctx: LowerContext, *operands: Any, primitive: str, params: Any, keys: Any, **given: Any
) -> tuple[Any, ...]:
    values = [
        jax.random.wrap_key_data(x, impl="threefry2x32") if i in keys else jnp.asarray(x)
        for i, x in enumerate(operands)
    ]
    given_params = decode(params, ctx.dim)
    if primitive in _SCATTERS:
        return (_SCATTERS[primitive](*values, **given_params),)
    known = _hidden(primitive) if primitive in _HIDDEN else _PRIMITIVES.get(primitive)
    if known is None:
        raise LoweringError(
            f"Primitive {ctx.node.name!r}: JAX {jax.__version__} has no primitive {primitive!r}",
            source=ctx.node.source,
            hint="run it with the JAX version that it was imported with, or import it again",
        )
    results = known.bind(*values, **given_params)
    listed = results if known.multiple_results else [results]
    return checked(ctx.node, listed, structs(ctx, **given))


PRIMITIVE = define(
    "Primitive(*operands) -> *results",
    precision="wide",
    attrs={
        "primitive": Attr("str", doc="its name"),
        "params": Attr("attrs", doc="its parameters: see `ops.primitive_params`"),
        "keys": Attr("ints", default=(), doc="the operands that are words of random keys"),
        **ATTRS,
    },
    infer=lambda ctx, *types, primitive, params, keys, **given: declared(ctx, **given),
    lower=_lower,
    doc="A JAX primitive. `gc.from_jax` uses it for primitives without an operator. Its gradient "
    "is that of `jax.vjp`. All dtypes.",
)

OPS: tuple[OpDef, ...] = (PRIMITIVE,)

"""Rules of primitives that contain jaxprs: calls, and functions with custom derivatives.

JAX keeps a custom derivative as Python functions inside the equation. The forward jaxpr is replayed
unchanged; the derivative is traced here, through `jax.vjp` of the equation alone, and becomes the
region of a `CustomGradient` node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
from jax import numpy as jnp

from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule, depends_on_nothing
from graphc.jaxpr.keys import is_key, with_keys
from graphc.jaxpr.opaque import alone, opaque, variables_of
from graphc.jaxpr.symbols import x64_for
from graphc.ops.control.custom_gradient import with_late_gradient
from graphc.ops.core.emit import emit_one
from graphc.ops.structure.ordering import FENCE


def _call(parameter: str) -> Rule:
    def rule(eqn: Equation, *operands: Tensor) -> Results:
        return eqn.inline(eqn.params[parameter], operands, eqn.used)

    return rule


def _checkpoint(eqn: Equation, *operands: Tensor) -> Results:
    """A function whose intermediate values are computed again for its gradient.

    In a derivative, JAX marks the equation that computes them again. Fences keep these values
    separate from those of the first computation. Outside a derivative, the node gets JAX's
    derivative, which has such an equation.
    """
    params = eqn.params
    if params["differentiated"]:
        kept = params["prevent_cse"]
        apart = [kept] * len(operands) if isinstance(kept, bool) else kept
        fenced = [
            emit_one(FENCE, (x,), number=0) if each else x
            for x, each in zip(operands, apart, strict=True)
        ]
        return eqn.inline(params["jaxpr"], fenced, eqn.used)
    return differentiated(eqn, operands, eqn.inline(params["jaxpr"], operands, eqn.used))


def _custom(eqn: Equation, *operands: Tensor) -> Results:
    results = eqn.inline(eqn.params["call_jaxpr"], operands, eqn.used)
    return differentiated(eqn, operands, results)


def _linear_solve(eqn: Equation, *operands: Tensor) -> Results:
    """The solution by the equation's own `solve`. The derivative is JAX's, which solves again."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    given = operands[start : start + lengths.solve]
    right = operands[start + lengths.solve + lengths.transpose_solve :]
    results = eqn.inline(jaxprs.solve, [*given, *right], eqn.used)
    return differentiated(eqn, operands, results)


def _expanded(eqn: Equation, *operands: Tensor) -> Results:
    """A higher-level primitive (from jax 0.12 on), replaced by its expansion."""
    high = eqn.params["_prim"]

    def expand(*values: Any) -> Any:
        return high.expand(*jax.tree.unflatten(high.in_tree, values))

    jaxpr = jax.make_jaxpr(expand)(*[eqn.symbols.struct(t.type) for t in operands])
    return differentiated(eqn, operands, eqn.inline(jaxpr, operands, eqn.used))


def foreign(eqn: Equation, *operands: Tensor) -> Results:
    """A primitive of another package, replaced by the JAX function that evaluates it, or by a node
    for its lowered form if there is no such function.

    Raises:
        JaxImportError: JAX cannot lower it.
    """
    found = eqn.eqn.primitive

    def evaluate(*values: Any) -> Any:
        return found.impl(*with_keys(values, eqn.eqn.invars), **eqn.params)

    try:
        jaxpr = jax.make_jaxpr(evaluate)(*[eqn.symbols.struct(t.type) for t in operands])
    except Exception:  # the other package's code may raise any error for traced values
        jaxpr = None
    if jaxpr is None or _contains(jaxpr, found):  # JAX's default evaluates by compiling it
        return differentiated(eqn, operands, opaque(eqn, *operands))
    return differentiated(eqn, operands, eqn.inline(jaxpr, operands, eqn.used))


def _contains(jaxpr: Any, primitive: Any) -> bool:
    """Whether a jaxpr, or one inside it, contains a primitive."""
    for eqn in jaxpr.eqns:
        inner = [value for value in eqn.params.values() if hasattr(value, "eqns")]
        if eqn.primitive is primitive or any(_contains(value, primitive) for value in inner):
            return True
    return False


def differentiated(
    eqn: Equation, operands: Sequence[Tensor], results: list[Tensor | None]
) -> list[Tensor | None]:
    """`results` of a whole equation, with JAX's derivative."""
    chosen = [i for i, y in enumerate(results) if y is not None and is_inexact(y.dtype)]
    moves = chosen and any(is_inexact(t.dtype) for t in operands)
    if not moves or not eqn.has_own_derivative:
        return results
    ys = [y for i, y in enumerate(results) if i in chosen and y is not None]
    given = variables_of(eqn.eqn, operands)
    xs = list(given.values())
    backward = _backward(eqn.eqn, list(given), chosen, _fixed(eqn.eqn, given))
    structs = [eqn.symbols.struct(t.type) for t in (*xs, *ys)]

    def rule(inner: Sequence[Tensor], adjoints: Sequence[Tensor]) -> list[Tensor]:
        with x64_for(t.type for t in (*xs, *ys)):
            return eqn.inline_derivative(jax.make_jaxpr(backward)(*structs), [*inner, *adjoints])

    marked = list(with_late_gradient(ys, xs, rule, f"a function with {eqn.eqn.primitive.name}"))
    return [marked.pop(0) if i in chosen else y for i, y in enumerate(results)]


def _fixed(eqn: Any, given: Mapping[Any, Tensor]) -> set[int]:
    """The indices of the operands that `custom_vjp` closes over and that are constants. Its rule
    has no derivative for closed-over values, and constants need none."""
    closed_over = eqn.invars[: eqn.params.get("num_consts", 0)]
    return {
        i
        for i, (variable, tensor) in enumerate(given.items())
        if any(variable is other for other in closed_over) and depends_on_nothing(tensor)
    }


def _backward(
    eqn: Any, variables: Sequence[Any], chosen: Sequence[int], fixed: Collection[int]
) -> Callable[..., Any]:
    """The function (values of `variables`, adjoints of the `chosen` results) -> adjoints, which are
    zeros for the `fixed` variables."""
    forward = alone(eqn, variables, [eqn.outvars[i] for i in chosen])
    floating = [
        i for i, v in enumerate(variables) if not is_key(v.aval.dtype) and is_inexact(v.aval.dtype)
    ]
    moving = [i for i in floating if i not in fixed]

    def backward(*values: Any) -> list[Any]:
        xs = with_keys(values[: len(variables)], variables)
        adjoints = values[len(variables) :]

        def of_moving(*moved: Any) -> Any:
            given = dict(zip(moving, moved, strict=True))
            return forward(*[given.get(i, x) for i, x in enumerate(xs)])

        _, pull = jax.vjp(of_moving, *[xs[i] for i in moving])
        found = dict(zip(moving, pull(list(adjoints)), strict=True))
        return [found[i] if i in found else jnp.zeros_like(xs[i]) for i in floating]

    return backward


RULES: dict[str, Rule] = {
    "call_hi_primitive": _expanded,
    "checkpoint": _checkpoint,
    "closed_call": _call("call_jaxpr"),
    "core_call": _call("call_jaxpr"),
    "custom_jvp_call": _custom,
    "custom_linear_solve": _linear_solve,
    "custom_vjp_call": _custom,
    "jit": _call("jaxpr"),
    "pjit": _call("jaxpr"),
    "remat2": _checkpoint,
}

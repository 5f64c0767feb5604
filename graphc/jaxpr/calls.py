"""Rules of primitives that contain jaxprs: calls, and functions with custom derivatives.

JAX keeps a custom derivative as Python functions inside the equation. The forward jaxpr is replayed
unchanged; the derivative is traced here, through `jax.vjp` of the equation alone, and becomes the
region of a `CustomGradient` node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, Literal, jaxpr_as_fun

from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.keys import is_key
from graphc.ops.control.custom_gradient import undifferentiable, with_gradient
from graphc.ops.draws.random_keys import as_jax_key

# A rule may call its own function (as that of logaddexp does), so the chain of derivatives may be
# infinite.
_MAX_ORDER = 2


def _call(parameter: str) -> Rule:
    def rule(eqn: Equation, *operands: Tensor) -> Results:
        return eqn.inline(eqn.params[parameter], operands, eqn.used)

    return rule


def _custom(eqn: Equation, *operands: Tensor) -> Results:
    results = eqn.inline(eqn.params["call_jaxpr"], operands, eqn.used)
    return _differentiated(eqn, operands, results)


def _linear_solve(eqn: Equation, *operands: Tensor) -> Results:
    """The solution by the equation's own `solve`. The derivative is JAX's, which solves again."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    given = operands[start : start + lengths.solve]
    right = operands[start + lengths.solve + lengths.transpose_solve :]
    results = eqn.inline(jaxprs.solve, [*given, *right], eqn.used)
    return _differentiated(eqn, operands, results)


def _expanded(eqn: Equation, *operands: Tensor) -> Results:
    """A higher-level primitive (from jax 0.12 on), replaced by its expansion."""
    high = eqn.params["_prim"]

    def expand(*values: Any) -> Any:
        return high.expand(*jax.tree.unflatten(high.in_tree, values))

    jaxpr = jax.make_jaxpr(expand)(*[eqn.symbols.struct(t.type) for t in operands])
    return _differentiated(eqn, operands, eqn.inline(jaxpr, operands, eqn.used))


def _differentiated(
    eqn: Equation, operands: Sequence[Tensor], results: list[Tensor | None]
) -> list[Tensor | None]:
    """`results` of a whole equation, with JAX's derivative."""
    chosen = [i for i, y in enumerate(results) if y is not None and is_inexact(y.dtype)]
    if not chosen or not any(is_inexact(t.dtype) for t in operands):
        return results
    ys = [y for i, y in enumerate(results) if i in chosen and y is not None]
    if eqn.order == _MAX_ORDER:
        why = f"derivatives above order {_MAX_ORDER} of a function with {eqn.eqn.primitive.name} "
        marked = [undifferentiable(y, why + "are not imported") for y in ys]
        return [marked.pop(0) if i in chosen else y for i, y in enumerate(results)]
    # Each variable once; literals stay inside the equation.
    given: dict[Any, Tensor] = {
        variable: tensor
        for variable, tensor in zip(eqn.eqn.invars, operands, strict=True)
        if not isinstance(variable, Literal)
    }
    xs = list(given.values())
    backward = _backward(eqn.eqn, list(given), chosen)
    structs = [eqn.symbols.struct(t.type) for t in (*xs, *ys)]

    def rule(inner: Sequence[Tensor], adjoints: Sequence[Tensor]) -> list[Tensor]:
        return eqn.inline_derivative(jax.make_jaxpr(backward)(*structs), [*inner, *adjoints])

    marked = list(with_gradient(ys, xs, rule))
    return [marked.pop(0) if i in chosen else y for i, y in enumerate(results)]


def _backward(eqn: Any, variables: Sequence[Any], chosen: Sequence[int]) -> Callable[..., Any]:
    """The function (values of `variables`, adjoints of the `chosen` results) -> adjoints."""
    outputs = [eqn.outvars[i] for i in chosen]
    names = tuple([f"x{i}" for i in range(len(variables))])
    info = DebugInfo("graphc.from_jax", eqn.primitive.name, names, ("",) * len(outputs))
    alone = Jaxpr([], variables, outputs, [eqn], debug_info=info)
    forward = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    moving = [
        i for i, v in enumerate(variables) if not is_key(v.aval.dtype) and is_inexact(v.aval.dtype)
    ]

    def backward(*values: Any) -> list[Any]:
        words, adjoints = values[: len(variables)], values[len(variables) :]
        xs = [
            as_jax_key(x) if is_key(v.aval.dtype) else x
            for x, v in zip(words, variables, strict=True)
        ]

        def of_moving(*moved: Any) -> Any:
            given = dict(zip(moving, moved, strict=True))
            return forward(*[given.get(i, x) for i, x in enumerate(xs)])

        _, pull = jax.vjp(of_moving, *[xs[i] for i in moving])
        return list(pull(list(adjoints)))

    return backward


RULES: dict[str, Rule] = {
    "call_hi_primitive": _expanded,
    "checkpoint": _call("jaxpr"),
    "closed_call": _call("call_jaxpr"),
    "core_call": _call("call_jaxpr"),
    "custom_jvp_call": _custom,
    "custom_linear_solve": _linear_solve,
    "custom_vjp_call": _custom,
    "jit": _call("jaxpr"),
    "pjit": _call("jaxpr"),
    "remat2": _call("jaxpr"),
}

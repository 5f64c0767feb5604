"""The derivative of an imported function as a whole.

Primitives of other packages have rules of differentiation that hold only for the operands that the
package itself differentiates. So the derivative of a function that contains such primitives is not
composed of the derivatives of its equations. Instead, JAX differentiates the whole function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from graphc.ir.dtypes import is_inexact
from graphc.ir.node import Tensor
from graphc.jaxpr.tracing import trace
from graphc.ops.control.custom_gradient import with_late_gradient


def differentiated(
    fn: Callable[..., Any], xs: Sequence[Tensor], results: Sequence[Tensor]
) -> list[Tensor]:
    """`results` of `fn(*xs)`, with the derivative that JAX finds for `fn`. A gradient is rejected
    if JAX finds none."""
    chosen = [i for i, y in enumerate(results) if is_inexact(y.dtype)]
    moving = [i for i, x in enumerate(xs) if is_inexact(x.dtype)]
    if not chosen or not moving:
        return list(results)
    ys = [results[i] for i in chosen]

    def backward(*values: Any) -> list[Any]:
        given, adjoints = values[: len(xs)], values[len(xs) :]

        def of_moving(*moved: Any) -> list[Any]:
            filled = dict(zip(moving, moved, strict=True))
            leaves = jax.tree.leaves(fn(*[filled.get(i, x) for i, x in enumerate(given)]))
            return [leaves[i] for i in chosen]

        _, pull = jax.vjp(of_moving, *[given[i] for i in moving])
        return list(pull(list(adjoints)))

    def rule(inner: Sequence[Tensor], adjoints: Sequence[Tensor]) -> list[Tensor]:
        operands = [*inner, *adjoints]
        found = trace(backward, [t.type for t in operands]).replay(operands, whole=True)
        return differentiated(backward, operands, found)

    marked = with_late_gradient(ys, xs, rule, "this JAX function")
    found = dict(zip(chosen, marked, strict=True))
    return [found.get(i, y) for i, y in enumerate(results)]

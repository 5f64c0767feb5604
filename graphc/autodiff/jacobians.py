"""`jacobian` and `hessian` of functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphc.autodiff.reverse import gradients
from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ops.arrays.diagonals import eye
from graphc.ops.arrays.shape import reshape
from graphc.ops.control.scan import map_fn
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert

__all__ = ["hessian", "jacobian"]


def jacobian(f: Callable[[Tensor], Any], x: Any, *, name: str | None = None) -> Tensor:
    """The derivative of each element of `f(x)` with respect to each element of `x`.

    One gradient for each element of `f(x)`, in a loop: its program does not grow with the sizes.

    Args:
        f: a function from a tensor to a floating tensor. It may use other tensors of the graph.
        x: a floating tensor or variable.

    Returns:
        A tensor of the shape of `f(x)`, followed by that of `x`; zeros where `f(x)` does not depend
        on `x`.

    Raises:
        AttributeValueError: `f` is not a function.
        ShapeError: a size of `x` or `f(x)` is not known.
        GradientError: `x` is not floating, or an operator cannot be differentiated.

    Source: jax.jacrev.

    >>> import graphc as gc
    >>> with gc.Graph() as graph:
    ...     slopes = gc.jacobian(gc.square, gc.constant([1.0, 3.0]))
    >>> gc.Session(graph).run(slopes).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    _check_function("jacobian", f)
    return _jacobian(f, x, name)


def hessian(f: Callable[[Tensor], Any], x: Any, *, name: str | None = None) -> Tensor:
    """The second derivatives of the scalar `f(x)`: a tensor of the shape of `x` twice.

    Args:
        f: a function from a tensor to a floating scalar.
        x: a floating tensor or variable.

    Raises:
        AttributeValueError: `f` is not a function.
        ShapeError: `f(x)` is not a scalar, or a size of `x` is not known.
        GradientError: see `jacobian`.

    Source: jax.hessian.

    >>> import graphc as gc
    >>> with gc.Graph() as graph:
    ...     curves = gc.hessian(lambda x: gc.reduce_sum(x**3), gc.constant([1.0, 2.0]))
    >>> gc.Session(graph).run(curves).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """

    _check_function("hessian", f)

    def slope(x: Tensor) -> Any:
        y = convert(f(x))
        if y.type.rank:
            refuse(f"hessian: f must give a scalar, got {y.type.shown()}", result=y)
        return gradients(y, x, unconnected="zero")

    return _jacobian(slope, x, name)


def _check_function(name: str, f: Any) -> None:
    if not callable(f):
        refuse(
            f"{name}: the first argument must be a function of a tensor, got {f!r}",
            error=AttributeValueError,
            hint=f"gc.{name}(lambda x: ..., x)",
        )


def _jacobian(f: Callable[[Tensor], Any], x: Any, name: str | None) -> Tensor:
    x = convert(x)
    y = convert(f(x))
    for label, tensor in (("x", x), ("f(x)", y)):
        if not tensor.type.is_static:
            refuse(f"jacobian: the sizes of {label} must be known, got {tensor.type.shown()}", x=x)
    count = math.prod(y.type.sizes)
    units = reshape(eye(count, dtype=y.dtype), (count, *y.type.shape))
    rows = map_fn(lambda unit: gradients(f(x), x, unit, unconnected="zero"), units)
    return reshape(rows, (*y.type.shape, *x.type.shape), name=name)

"""`jacobian` and `hessian` of functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphc.autodiff.reverse import gradients
from graphc.errors import AttributeValueError, GradientError
from graphc.ir.node import Tensor
from graphc.ir.types import TensorType
from graphc.ops.arrays.diagonals import eye
from graphc.ops.arrays.shape import reshape
from graphc.ops.control.bodies import assigned_in, open_body
from graphc.ops.control.scan import map_fn
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

__all__ = ["hessian", "jacobian"]


def jacobian(
    f: Callable[[Tensor], TensorLike], x: TensorLike, *, name: str | None = None
) -> Tensor:
    """The derivative of each element of `f(x)` with respect to each element of `x`.

    It computes one gradient for each element of `f(x)` in a loop, so its program does not grow with
    the sizes.

    Args:
        f: a function from a tensor to a floating tensor. It may use other tensors of the graph. It
            is called twice, and must not assign. Random numbers in it differ from row to row.
        x: a floating tensor or variable.

    Returns:
        A tensor of the shape of `f(x)`, followed by that of `x`; zeros where `f(x)` does not depend
        on `x`.

    Raises:
        AttributeValueError: `f` is not a function.
        ShapeError: a size of `x` or `f(x)` is not known.
        GradientError: `x` is not floating, an operator cannot be differentiated, or `f` assigns.

    Source: jax.jacrev.

    Examples:
        >>> run(gc.jacobian(gc.square, [1.0, 3.0]))
        Array([[2., 0.],
               [0., 6.]], dtype=float32)
    """
    return _jacobian("jacobian", _checked("jacobian", f), x, name)


def hessian(f: Callable[[Tensor], TensorLike], x: TensorLike, *, name: str | None = None) -> Tensor:
    """The second derivatives of the scalar `f(x)`: a tensor with the shape of `x` twice.

    Args:
        f: a function from a tensor to a floating scalar.
        x: a floating tensor or variable.

    Raises:
        AttributeValueError: `f` is not a function.
        ShapeError: `f(x)` is not a scalar, or a size of `x` is not known.
        GradientError: see `jacobian`.

    Source: jax.hessian.

    Examples:
        >>> run(gc.hessian(lambda x: gc.reduce_sum(x**3), [1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    function = _checked("hessian", f)

    def gradient(x: Tensor) -> Any:
        y = convert(function(x))
        if y.type.rank:
            refuse(f"hessian: f must give a scalar, got {y.type.shown()}", result=y)
        return gradients(y, x, unconnected="zero")

    return _jacobian("hessian", gradient, x, name)


def _checked(name: str, f: Any) -> Callable[[Tensor], Any]:
    if not callable(f):
        refuse(
            f"{name}: the first argument must be a function of a tensor, got {f!r}",
            error=AttributeValueError,
            hint=f"gc.{name}(lambda x: ..., x)",
        )
    function: Callable[[Tensor], Any] = f
    return function


def _jacobian(op: str, f: Callable[[Tensor], Any], x: Any, name: str | None) -> Tensor:
    x = convert(x)
    type = _result_type(op, f, x)
    for label, shape in (("x", x.type), ("f(x)", type)):
        if not shape.is_static:
            refuse(f"{op}: the sizes of {label} must be known, got {shape.shown()}", x=x)
    count = math.prod(type.sizes)
    units = reshape(eye(count, dtype=type.dtype), (count, *type.shape))
    rows = map_fn(lambda unit: gradients(f(x), x, unit, unconnected="zero"), units)
    return reshape(rows, (*type.shape, *x.type.shape), name=name)


def _result_type(op: str, f: Callable[[Tensor], Any], x: Tensor) -> TensorType:
    """The type of `f(x)`, found in a temporary body, so that the graph gets no nodes."""
    with open_body(op) as body:
        type = convert(f(x)).type
    if assigned := assigned_in(body):
        refuse(
            f"{op}: f assigns {min(assigned)!r}, and would do so once for each row",
            error=GradientError,
            hint="compute the value that is assigned outside f",
        )
    return type

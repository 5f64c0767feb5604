"""Random classes, orders and choices, drawn anew in every run. See `random_key` for seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, DimExpr, Shape, product
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.arrays.indexing import take
from graphc.ops.arrays.shape import moveaxis, reshape
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import as_dims, broadcasts_to, is_static, refuse, same_shape
from graphc.ops.core.emit import convert, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.draws.distributions import randint
from graphc.ops.draws.location_scale import gumbel
from graphc.ops.draws.random_draws import draw
from graphc.ops.draws.random_parametric import RANDOM_PERMUTATION
from graphc.ops.elementwise.transcendental import log
from graphc.ops.reductions.axiswise import argmax
from graphc.ops.reductions.sorting import top_k
from graphc.typing import Seed, ShapeLike, TensorLike

__all__ = ["categorical", "choice", "permutation", "shuffle"]


def categorical(
    logits: TensorLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Random classes; the probability of a class is proportional to the exponential of its logit.

    Args:
        logits: floating; `axis` is the axis of the classes.
        axis: the axis of the classes.
        shape: ints and named sizes, to which the other axes broadcast; by default the shape of
            these axes.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        int32 of `shape`.

    Raises:
        ShapeError: the logits do not broadcast to `shape`, or are a scalar.
        AttributeValueError: the axis is out of range.

    Source: jax.random.categorical; Gumbel, Statistical theory of extreme values, 1954.

    Examples:
        >>> run(gc.random.categorical([0.0, 1.0], shape=(5,), seed=1))
        Array([1, 1, 1, 0, 1], dtype=int32)
        >>> run(gc.random.categorical([[0.0, 99.0], [99.0, 0.0]]))
        Array([1, 0], dtype=int32)
    """
    scores = _wide(logits)
    place = normalize_axis("categorical", scores, axis)
    if place != scores.ndim - 1:
        scores = moveaxis(scores, place, -1)
    own = scores.shape[:-1]
    sizes = own if shape is None else as_dims("categorical", shape)
    if not broadcasts_to(own, sizes, scores):
        refuse(
            f"categorical: the logits do not broadcast to the shape {sizes}",
            hint=f"n draws of each: categorical(logits, shape=(n, {', '.join(map(str, own))}))"
            if own
            else "categorical(logits, shape=(n,)) draws n numbers",
            logits=scores,
        )
    noise = gumbel((*sizes, scores.shape[-1]), dtype=scores.dtype, seed=seed, name=name)
    return argmax(scores + noise, -1)


def _wide(parameter: Any) -> Tensor:
    """A parameter in at least float32, because noise of a narrow dtype has too few distinct
    values."""
    (tensor,) = promote_inexact(parameter)
    return to_dtype(tensor, wide(tensor.dtype))


def _count(x: Any) -> Dim | None:
    """The number `x`, or None if it is a tensor."""
    return as_dims("choice", x)[0] if isinstance(x, (int, np.integer, DimExpr)) else None


def permutation(
    x: TensorLike, axis: int = 0, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """`x` in random order along an axis; all orders are equally likely.

    Args:
        x: a tensor; or an int or a named size n, for the numbers 0 to n - 1 (int32).
        axis: the axis along which the slices of a tensor are reordered.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        AttributeValueError: the axis is out of range.

    Source: numpy.random.Generator.permutation.

    Examples:
        >>> run(gc.random.permutation(5, seed=1))
        Array([4, 3, 1, 0, 2], dtype=int32)
        >>> run(gc.sort(gc.random.permutation([3, 1, 2])))
        Array([1, 2, 3], dtype=int32)
    """
    count = _count(x)
    if count is not None:
        return draw(RANDOM_PERMUTATION, (), (), seed, name, size=count)[0]
    tensor = convert(x)
    place = normalize_axis("permutation", tensor, axis)
    order = draw(RANDOM_PERMUTATION, (), (), seed, name, size=tensor.shape[place])[0]
    return take(tensor, order, place)


def shuffle(x: TensorLike, axis: int = 0, *, seed: Seed = None, name: str | None = None) -> Tensor:
    """A tensor in random order along an axis: `permutation`; nothing changes in place.

    Examples:
        >>> run(gc.random.shuffle([3, 1, 2], seed=1))
        Array([1, 3, 2], dtype=int32)
        >>> run(gc.sort(gc.random.shuffle([3, 1, 2])))
        Array([1, 2, 3], dtype=int32)
    """
    return permutation(convert(x), axis, seed=seed, name=name)


def choice(
    a: TensorLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: TensorLike | None = None,
    axis: int = 0,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Elements chosen at random.

    Args:
        a: a tensor, from which slices along `axis` are chosen; or an int n, for 0 to n - 1.
        shape: ints: the shape of the choices, which replaces `axis`.
        replace: whether an element may be chosen more than once.
        p: the probability of each, floating [n]; by default they are equal. Only their ratios
            matter.
        axis: of a tensor.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        For a tensor, a result of its dtype; for an int, int32 of `shape`.

    Raises:
        AttributeValueError: without replacement, more choices than elements, or than elements with
            a positive probability if p is known; or an axis out of range.
        ShapeError: named sizes, or p does not have n elements.

    Source: numpy.random.Generator.choice; without replacement by weights: Efraimidis & Spirakis,
    Information Processing Letters 97, 2006.

    Examples:
        >>> run(gc.random.choice(10, (3,), replace=False, seed=1))
        Array([4, 3, 6], dtype=int32)
    """
    size = _count(a)
    if size is not None:
        return _places(size, shape, replace, p, seed, name)
    tensor = convert(a)
    axis = normalize_axis("choice", tensor, axis)
    return take(tensor, _places(tensor.shape[axis], shape, replace, p, seed, name), axis)


def _places(
    size: Any, shape: ShapeLike, replace: bool, p: Any, seed: Seed, name: str | None
) -> Tensor:
    """The indices of the chosen elements among `size`."""
    sizes = as_dims("choice", shape)
    if not is_static(size, *sizes):
        refuse(f"choice: the number of elements, {size}, and the shape, {sizes}, must be ints")
    weights = None if p is None else _weights(p, size)
    if not (replace or p is None or isinstance(p, Operand)):
        _check_enough(np.asarray(p), product(sizes))
    if not replace:
        return _without_replacement(size, sizes, weights, seed, name)
    if weights is None:
        return randint(sizes, 0, size, seed=seed, name=name)
    return categorical(weights, shape=sizes, seed=seed, name=name)


def _weights(p: Any, size: Dim) -> Tensor:
    weights = _wide(p)
    if not same_shape(weights.shape, (size,), weights):
        refuse(f"choice: p must hold {size} probabilities", p=weights)
    return log(weights)


def _check_enough(p: Any, count: Any) -> None:
    positive = int(np.count_nonzero(p > 0))
    if count > positive:
        refuse(
            f"choice: cannot choose {count} without replacement, because p is positive for "
            f"{positive} only",
            error=AttributeValueError,
        )


def _without_replacement(
    size: Any, sizes: Shape, weights: Tensor | None, seed: Any, name: str | None
) -> Tensor:
    count: Any = product(sizes)
    if count > size:
        refuse(
            f"choice: cannot choose {count} of {size} without replacement",
            error=AttributeValueError,
        )
    if weights is None:
        first = permutation(size, seed=seed, name=name)[:count]
    else:
        scores = weights + gumbel((size,), dtype=weights.dtype, seed=seed, name=name)
        first = top_k(scores, count)[1]
    return reshape(first, sizes)

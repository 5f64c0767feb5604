"""Covariances and correlations of rows, and the correlation of signals."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.dtypes import real_of
from graphc.ir.node import Tensor
from graphc.ops.arrays.diagonals import diagonal
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import squeeze, transpose
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import dim_value, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import clip, divide, multiply
from graphc.ops.elementwise.complex_parts import conj
from graphc.ops.elementwise.powers import sqrt
from graphc.ops.matrices.matrix_product import matmul, outer
from graphc.ops.numpy_api.rearranging import atleast_2d
from graphc.ops.reductions.reduction import reduce_mean, reduce_sum
from graphc.typing import TensorLike

__all__ = ["corrcoef", "cov"]


def cov(
    x: TensorLike,
    y: TensorLike | None = None,
    rowvar: bool = True,
    ddof: int = 1,
    *,
    fweights: TensorLike | None = None,
    aweights: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The covariances between the rows of `x`.

    Args:
        x: [variables, observations], or [observations] of one variable.
        y: more variables, of the same form.
        rowvar: whether the variables are rows; if False, they are columns.
        ddof: is subtracted from the number of observations, by which the sums are divided.
        fweights: [observations], integers: how often each observation occurred.
        aweights: [observations]: the weight of each.
        name: of the node.

    Returns:
        [variables, variables]; a scalar for one variable.

    Raises:
        ShapeError: more than two axes, or the sizes differ.

    Source: numpy.cov.

    Examples:
        >>> run(gc.cov([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    xs = promote_inexact(x) if y is None else promote_inexact(x, y)
    if fweights is None and aweights is None:
        return to_dtype(_cov(xs, rowvar, ddof, name), xs[0].dtype)
    rows = _rows(xs, rowvar)
    (own,) = promote_inexact(1.0 if aweights is None else aweights)
    own = to_dtype(own, real_of(rows.dtype))
    weights = own if fweights is None else multiply(own, to_dtype(fweights, own.dtype))
    total = reduce_sum(weights)
    off = ddof if aweights is None else ddof * divide(reduce_sum(weights * own), total)
    mean = divide(reduce_sum(rows * weights, 1, keepdims=True), total)
    centred = rows - mean
    products = matmul(centred * weights, conj(transpose(centred)))
    found = to_dtype(divide(products, total - off, name=name), xs[0].dtype)
    return squeeze(found) if rows.shape[0] == 1 else found


def _cov(xs: Sequence[Tensor], rowvar: bool, ddof: int, name: str | None = None) -> Tensor:
    """`cov`, in the dtype of the computation."""
    rows = _rows(xs, rowvar)
    centred = rows - reduce_mean(rows, 1, keepdims=True)
    products = matmul(centred, conj(transpose(centred)))
    found = divide(products, dim_value(rows.shape[1] - ddof, products.dtype), name=name)
    return squeeze(found) if rows.shape[0] == 1 else found


def _rows(xs: Sequence[Tensor], rowvar: bool) -> Tensor:
    """[variables, observations], in the dtype of the computation."""
    parts = []
    for given in xs:
        part = to_dtype(given, wide(given.dtype))
        if part.ndim > 2:
            refuse("cov: x must be [variables, observations]", x=part)
        matrix = atleast_2d(part)
        parts.append(matrix if rowvar or part.ndim < 2 else transpose(matrix))
    return parts[0] if len(parts) == 1 else concatenate(parts, 0)


def corrcoef(
    x: TensorLike, y: TensorLike | None = None, rowvar: bool = True, *, name: str | None = None
) -> Tensor:
    """The correlations between the rows of `x`, from -1 to 1, for real dtypes.

    Arguments and errors are those of `cov`. Source: numpy.corrcoef.

    Examples:
        >>> run(gc.corrcoef([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    xs = promote_inexact(x) if y is None else promote_inexact(x, y)
    found = _cov(xs, rowvar, 1)
    if found.ndim == 0:
        return to_dtype(divide(found, found, name=name), xs[0].dtype)
    scale = sqrt(diagonal(found))
    return to_dtype(clip(found / outer(scale, scale), -1, 1, name=name), xs[0].dtype)

"""Distributions of numbers, drawn anew in every run. See `random_key` for seeds."""

from __future__ import annotations

from typing import Any

from graphc.ir.dims import Shape
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import broadcast_to, expand_dims, squeeze
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import as_dims, broadcasts_to, refuse, same_shape
from graphc.ops.core.emit import emit_one, graph_of, promote_inexact
from graphc.ops.core.shape_argument import shape_first
from graphc.ops.draws.location_scale import normal, uniform
from graphc.ops.draws.random_draws import RANDOM_NORMAL, draw, placed, shape_of
from graphc.ops.draws.random_keys import fold_in, random_key
from graphc.ops.draws.random_parametric import RANDOM_GAMMA
from graphc.ops.elementwise.activation import softmax
from graphc.ops.elementwise.arithmetic import add
from graphc.ops.elementwise.powers import rsqrt
from graphc.ops.elementwise.transcendental import sigmoid
from graphc.ops.matrices.factorization import cholesky
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.numpy_api.rearranging import broadcast_shapes
from graphc.typing import DTypeLike, Seed, ShapeLike, TensorLike

__all__ = [
    "beta",
    "chisquare",
    "dirichlet",
    "gamma",
    "multivariate_normal",
    "randint",
    "student_t",
]


@shape_first
def randint(
    shape: ShapeLike,
    minval: int,
    maxval: int,
    dtype: DTypeLike = "int32",
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Uniformly distributed integers in [minval, maxval): `uniform` of an integer dtype.

    Raises:
        AttributeValueError: minval is not less than maxval, or bounds that do not fit the dtype.

    Source: jax.random.randint.

    Examples:
        >>> run(gc.random.randint((5,), 0, 10, seed=1))
        Array([8, 9, 4, 8, 2], dtype=int32)
        >>> x = gc.random.randint((100,), 0, 3)
        >>> run(gc.reduce_all((x >= 0) & (x < 3)))
        Array(True, dtype=bool)
    """
    return uniform(shape, minval, maxval, dtype, seed=seed, name=name)


def shape_for(op: str, shape: Any, *parameters: Shape) -> Shape:
    """`shape`; by default the common shape of the parameters."""
    return broadcast_shapes(*parameters) if shape is None else as_dims(op, shape)


def fitting(op: str, shape: Any, *parameters: Any) -> Shape:
    """`shape_for` of parameters; raises `ShapeError` unless they broadcast to it."""
    sizes = shape_for(op, shape, *(shape_of(x) for x in parameters))
    broadcast_shapes(sizes, *(shape_of(x) for x in parameters))  # raises if sizes differ
    known = graph_of(parameters).constraints
    if not all(known.unify_broadcast(shape_of(x), sizes) for x in parameters):
        own = ", ".join(str(x.type) if isinstance(x, Tensor) else str(x) for x in parameters)
        refuse(
            f"{op}: parameters {own} do not broadcast to the shape {sizes}",
            hint="shape= is the shape of all draws; its last axes are those of the parameters",
        )
    return sizes


def gamma(
    alpha: TensorLike,
    scale: TensorLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the gamma distribution.

    Args:
        alpha: the shape of the distribution, positive; it broadcasts to `shape`. Integers are
            converted to float32. Gradients flow to it (Figurnov et al., NeurIPS 2018).
        scale: a number or a tensor that broadcasts to `shape`.
        shape: ints and named sizes; by default the common shape of `alpha` and `scale`.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: `alpha` or `scale` do not broadcast to `shape`.

    Source: numpy.random.Generator.gamma.

    Examples:
        >>> run(gc.random.gamma([1.0, 2.0], seed=1))
        Array([0.1566, 1.5345], dtype=float32)
    """
    (a,) = promote_inexact(alpha)
    sizes = shape_for("RandomGamma", shape, a.shape, shape_of(scale))
    return placed(draw(RANDOM_GAMMA, (), (a,), seed, name, shape=sizes)[0], 0, scale)


def chisquare(
    df: TensorLike, shape: ShapeLike | None = None, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Numbers from the chi-square distribution with `df` degrees of freedom; see `gamma`.

    Source: numpy.random.Generator.chisquare.

    Examples:
        >>> run(gc.random.chisquare(3.0, shape=(3,), seed=1))
        Array([0.8367, 2.1133, 1.9457], dtype=float32)
    """
    (degrees,) = promote_inexact(df)
    return gamma(0.5 * degrees, 2.0, shape, seed=seed, name=name)


def beta(
    a: TensorLike,
    b: TensorLike,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from the beta distribution with positive `a` and `b`; gradients as in `gamma`.

    Args:
        a, b: they broadcast together and to `shape`. Integers are converted to float32.
        shape: ints and named sizes; by default the common shape of `a` and `b`.
        seed: see `random_key`.
        name: of the node that draws.

    Raises:
        ShapeError: `a` and `b` do not broadcast to `shape`.

    Source: numpy.random.Generator.beta.

    Examples:
        >>> run(gc.random.beta(2.0, [1.0, 3.0], seed=1))
        Array([0.581 , 0.3874], dtype=float32)
    """
    a, b = promote_inexact(a, b)
    sizes = shape_for("RandomGamma", shape, a.shape, b.shape)
    both = stack([broadcast_to(a, sizes), broadcast_to(b, sizes)])
    logs = draw(RANDOM_GAMMA, (), (both,), seed, name, shape=both.shape, log=True)[0]
    return sigmoid(logs[0] - logs[1])


def dirichlet(
    alpha: TensorLike, shape: ShapeLike | None = None, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Vectors from the Dirichlet distribution: proportions that sum to 1, with gradients.

    Args:
        alpha: [..., n], positive; integers are converted to float32.
        shape: the batch shape, to which the axes of `alpha` before the last broadcast; by default
            the shape of these axes.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        [*shape, n].

    Raises:
        ShapeError: a scalar, or `alpha` does not broadcast to `shape`.

    Source: numpy.random.Generator.dirichlet.

    Examples:
        >>> run(gc.random.dirichlet([1.0, 2.0, 3.0], seed=1))
        Array([0.0386, 0.3781, 0.5834], dtype=float32)
        >>> run(gc.sum(gc.random.dirichlet([1.0, 2.0, 3.0])))
        Array(1., dtype=float32)
    """
    (a,) = promote_inexact(alpha)
    sizes = (*shape_for("RandomGamma", shape, a.shape[:-1]), *a.shape[-1:])
    logs = draw(RANDOM_GAMMA, (), (a,), seed, name, shape=sizes, log=True)[0]
    return softmax(logs, -1)


def student_t(
    df: TensorLike, shape: ShapeLike | None = None, *, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Numbers from Student's t distribution with `df` degrees of freedom; see `gamma`.

    Source: numpy.random.Generator.standard_t.

    Examples:
        >>> run(gc.random.student_t(3.0, shape=(3,), seed=1))
        Array([ 2.1255, -0.0755,  6.9895], dtype=float32)
    """
    (degrees,) = promote_inexact(df)
    sizes = shape_for("RandomGamma", shape, degrees.shape)
    key = random_key(seed)
    half = 0.5 * degrees
    spread = emit_one(RANDOM_GAMMA, (fold_in(key, 0), half), shape=sizes)
    normals = emit_one(RANDOM_NORMAL, (fold_in(key, 1),), name, shape=sizes, dtype=degrees.dtype)
    return normals * rsqrt(spread / half)


def multivariate_normal(
    mean: TensorLike,
    cov: TensorLike,
    shape: ShapeLike | None = None,
    *,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Vectors from the multivariate normal distribution, with gradients.

    Args:
        mean: [..., n].
        cov: [..., n, n], positive definite; otherwise the result is NaN.
        shape: the batch shape, to which the axes before these broadcast; by default their common
            shape.
        seed: see `random_key`.
        name: of the node that draws.

    Returns:
        [*shape, n].

    Raises:
        ShapeError: the sizes do not fit together.

    Source: numpy.random.Generator.multivariate_normal with method="cholesky".

    Examples:
        >>> run(gc.random.multivariate_normal([0.0, 1.0], gc.eye(2), shape=(3,), seed=1))
        Array([[-1.2575,  0.5984],
               [-1.1214,  1.8784],
               [-0.8618,  1.3465]], dtype=float32)
    """
    mean, cov = promote_inexact(mean, cov)
    factor = cholesky(cov)
    stacked = shape_for("RandomNormal", shape, mean.shape[:-1], cov.shape[:-2])
    if not (
        broadcasts_to(mean.shape[:-1], stacked, mean)
        and broadcasts_to(cov.shape[:-2], stacked, mean)
        and same_shape(mean.shape[-1:], cov.shape[-1:], mean)
    ):
        refuse(
            f"multivariate_normal: mean must be [..., n] and cov [..., n, n], the axes before "
            f"within the shape {stacked}",
            mean=mean,
            cov=cov,
        )
    normals = normal((*stacked, cov.shape[-1]), dtype=cov.dtype, seed=seed, name=name)
    return add(mean, squeeze(matmul(factor, expand_dims(normals, -1)), -1))

"""Initial values, computed on the host with NumPy: `(rng, shape, dtype) -> array`.

Each class is a frozen record of its options, so that it can be compared, printed and stored. The
random initializers support floating dtypes. float64 is drawn directly; narrower dtypes are drawn in
float32 and rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphc.build.initial_draws import DType, Shape, require, truncated, uniform, working_dtype
from graphc.build.scaled_initializers import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
)
from graphc.errors import ShapeError
from graphc.ir.dtypes import Array

__all__ = [
    "INITIALIZERS",
    "Constant",
    "ForgetGateOnes",
    "Identity",
    "Normal",
    "Ones",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "Zeros",
]


@dataclass(frozen=True)
class Zeros:
    """All elements are 0. For every dtype.

    Examples:
        >>> run(gc.variable(gc.nn.initializers.Zeros(), shape=(2, 2)))
        Array([[0., 0.],
               [0., 0.]], dtype=float32)
    """

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return np.zeros(shape, dtype)


@dataclass(frozen=True)
class Ones:
    """All elements are 1. For every dtype.

    Examples:
        >>> run(gc.variable(gc.nn.initializers.Ones(), shape=3))
        Array([1., 1., 1.], dtype=float32)
    """

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return np.ones(shape, dtype)


@dataclass(frozen=True)
class Constant:
    """All elements are `value`. For every dtype.

    Args:
        value: a number.

    Examples:
        >>> run(gc.variable(gc.nn.initializers.Constant(0.5), shape=3))
        Array([0.5, 0.5, 0.5], dtype=float32)
    """

    value: complex

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return np.full(shape, self.value, dtype)


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high). For floating dtypes.

    Args:
        low, high: the bounds.

    Raises:
        AttributeValueError: `low` is above `high`.
        DTypeError: when the variable is initialized, if its dtype is not floating.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.Uniform(2.0, 3.0), shape=1000))
        >>> bool(((values >= 2) & (values < 3)).all())
        True
    """

    low: float = -0.05
    high: float = 0.05

    def __post_init__(self) -> None:
        require(self, self.low <= self.high, "low must not be above high")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return uniform(self, rng, shape, dtype, self.low, self.high)


@dataclass(frozen=True)
class Normal:
    """Normal with the given mean and standard deviation. For floating dtypes.

    Args:
        mean: the mean of the values.
        stddev: their standard deviation, 0 or more.

    Raises:
        AttributeValueError: `stddev` is negative.
        DTypeError: when the variable is initialized, if its dtype is not floating.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.Normal(10.0, 2.0), shape=10_000))
        >>> round(float(values.mean())), round(float(values.std()))
        (10, 2)
    """

    mean: float = 0.0
    stddev: float = 0.05

    def __post_init__(self) -> None:
        require(self, self.stddev >= 0, "stddev must not be negative")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        values = rng.standard_normal(shape, working_dtype(self, dtype))
        return (values * self.stddev + self.mean).astype(dtype)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normal, where values more than two standard deviations from the mean are drawn again.

    For floating dtypes.

    Args:
        mean: the mean of the normal distribution.
        stddev: the standard deviation of the normal distribution before truncation, 0 or more. The
            standard deviation of the values is 0.8796 times it.

    Raises:
        AttributeValueError: `stddev` is negative.
        DTypeError: when the variable is initialized, if its dtype is not floating.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.TruncatedNormal(stddev=0.1), shape=1000))
        >>> bool((abs(values) <= 0.2).all())
        True
    """

    mean: float = 0.0
    stddev: float = 0.05

    def __post_init__(self) -> None:
        require(self, self.stddev >= 0, "stddev must not be negative")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return truncated(self, rng, shape, dtype, self.mean, self.stddev)


@dataclass(frozen=True)
class Orthogonal:
    """A random matrix with orthonormal rows or columns, whichever are fewer, times gain.

    The last axis is the columns, and all other axes together are the rows. The matrix is drawn
    uniformly (Haar): it is the Q of a normal matrix's QR with the signs of R's diagonal. For
    floating dtypes.

    Args:
        gain: a factor.

    Raises:
        ShapeError: when the variable is initialized, if it has fewer than two axes.
        DTypeError: when the variable is initialized, if its dtype is not floating.

    Source: Mezzadri, "How to generate random matrices from the classical compact groups", 2007;
    Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep
    linear neural networks", 2013.

    Examples:
        >>> q = run(gc.variable(gc.nn.initializers.Orthogonal(), shape=(5, 3)))
        >>> bool(np.allclose(q.T @ q, np.eye(3), atol=1e-5))
        True
    """

    gain: float = 1.0

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        working_dtype(self, dtype)
        if len(shape) < 2:
            raise ShapeError(
                f"Orthogonal: the shape must have two axes or more, got {shape}",
                hint="use Normal or Uniform for vectors",
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        normal = rng.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        matrix = q if rows >= columns else q.T
        return (self.gain * matrix).reshape(shape).astype(dtype)


@dataclass(frozen=True)
class Identity:
    """The identity matrix times gain. If the matrix is not square, the other elements are zero.

    Args:
        gain: a factor.

    Raises:
        ShapeError: when the variable is initialized, if it is not a matrix.

    Examples:
        >>> run(gc.variable(gc.nn.initializers.Identity(2.0), shape=(2, 3)))
        Array([[2., 0., 0.],
               [0., 2., 0.]], dtype=float32)
    """

    gain: float = 1.0

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        if len(shape) != 2:
            raise ShapeError(
                f"Identity: the shape must be that of a matrix, got {shape}",
                hint="Orthogonal takes more axes",
            )
        return (self.gain * np.eye(*shape)).astype(dtype)


@dataclass(frozen=True)
class ForgetGateOnes:
    """Zeros for a bias of four gates, except ones for the second gate, the forget gate of an LSTM.

    With it, an LSTM remembers from the start. For every dtype.

    Raises:
        ShapeError: when the variable is initialized, if 4 does not divide its last size.

    Source: Jozefowicz, Zaremba and Sutskever, "An empirical exploration of recurrent network
    architectures", 2015.

    Examples:
        >>> run(gc.variable(gc.nn.initializers.ForgetGateOnes(), shape=8))
        Array([0., 0., 1., 1., 0., 0., 0., 0.], dtype=float32)
    """

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        if not shape or shape[-1] % 4:
            raise ShapeError(f"{self}: the last axis must be that of four gates, got {shape}")
        gates = np.repeat(np.array([0, 1, 0, 0], dtype), shape[-1] // 4)
        return np.broadcast_to(gates, shape).copy()


INITIALIZERS: Final[dict[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        Zeros, Ones, Constant, Uniform, Normal, TruncatedNormal, GlorotUniform, GlorotNormal,
        HeUniform, HeNormal, LecunNormal, LecunUniform, Orthogonal, Identity, ForgetGateOnes,
    )
}  # fmt: skip
"""Name -> class, for the forms that are written to files."""

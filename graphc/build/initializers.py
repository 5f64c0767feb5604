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

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.dtypes import is_floating
from graphc.ir.source import current_source

__all__ = [
    "INITIALIZERS",
    "Constant",
    "ForgetGateOnes",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "LecunNormal",
    "LecunUniform",
    "Normal",
    "Ones",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "Zeros",
    "fans",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
DType = np.dtype[Any]

# The standard deviation of a standard normal cut off at 2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
_TRUNCATED_STDDEV: Final = 0.8796256610342398


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
        _require(self, self.low <= self.high, "low must not be above high")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _uniform(self, rng, shape, dtype, self.low, self.high)


@dataclass(frozen=True)
class Normal:
    """Normal with the given mean and standard deviation. For floating dtypes.

    Args:
        mean: of the values.
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
        _require(self, self.stddev >= 0, "stddev must not be negative")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        values = rng.standard_normal(shape, _working(self, dtype))
        return (values * self.stddev + self.mean).astype(dtype)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normal, where values more than two standard deviations from the mean are drawn again.

    For floating dtypes.

    Args:
        mean: of the values.
        stddev: the standard deviation of the normal before truncation, 0 or more. That of the
            values is 0.8796 times it.

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
        _require(self, self.stddev >= 0, "stddev must not be negative")

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _truncated(self, rng, shape, dtype, self.mean, self.stddev)


@dataclass(frozen=True)
class GlorotUniform:
    """Uniform of variance 2 / (fan_in + fan_out) times gain². For floating dtypes.

    Keeps the variance of activations and of gradients equal from layer to layer.

    Args:
        gain: the gain of the following activation: 1 for tanh and linear layers.
        groups: the groups of a grouped convolution. `gc.nn.Conv2D` sets it.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.GlorotUniform(), shape=(100, 50)))
        >>> bool((abs(values) <= 0.2).all())  # sqrt(6 / (100 + 50))
        True
    """

    gain: float = 1.0
    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        fan_in, fan_out = fans(shape, self.groups)
        return _uniform_of_variance(
            self, rng, shape, dtype, 2 * self.gain**2 / max(1, fan_in + fan_out)
        )


@dataclass(frozen=True)
class GlorotNormal:
    """Truncated normal of variance 2 / (fan_in + fan_out) times gain². For floating dtypes.

    Args:
        gain, groups: see `GlorotUniform`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.GlorotNormal(), shape=(150, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / (150 + 50))
        0.1
    """

    gain: float = 1.0
    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        fan_in, fan_out = fans(shape, self.groups)
        return _normal_of_variance(
            self, rng, shape, dtype, 2 * self.gain**2 / max(1, fan_in + fan_out)
        )


@dataclass(frozen=True)
class HeUniform:
    """Uniform of variance 2 / fan_in, for layers followed by relu. For floating dtypes.

    Args:
        groups: the groups of a grouped convolution. `gc.nn.Conv2D` sets it.

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.HeUniform(), shape=(200, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / 200)
        0.1
    """

    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _uniform_of_variance(
            self, rng, shape, dtype, 2 / max(1, fans(shape, self.groups)[0])
        )


@dataclass(frozen=True)
class HeNormal:
    """Truncated normal of variance 2 / fan_in, for layers followed by relu. For floating dtypes.

    Args:
        groups: see `HeUniform`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.HeNormal(), shape=(200, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / 200)
        0.1
    """

    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _normal_of_variance(self, rng, shape, dtype, 2 / max(1, fans(shape, self.groups)[0]))


@dataclass(frozen=True)
class LecunNormal:
    """Truncated normal of variance 1 / fan_in: keeps the variance of a linear layer's input.

    For floating dtypes.

    Args:
        groups: the groups of a grouped convolution. `gc.nn.Conv2D` sets it.

    Source: LeCun, Bottou, Orr and Müller, "Efficient BackProp", 1998; with selu, Klambauer et al.,
    "Self-normalizing neural networks", 2017.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.LecunNormal(), shape=(100, 50)))
        >>> round(float(values.std()), 2)  # sqrt(1 / 100)
        0.1
    """

    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _normal_of_variance(self, rng, shape, dtype, 1 / max(1, fans(shape, self.groups)[0]))


@dataclass(frozen=True)
class LecunUniform:
    """Uniform of variance 1 / fan_in: keeps the variance of a linear layer's input.

    For floating dtypes.

    Args:
        groups: see `LecunNormal`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.LecunUniform(), shape=(100, 50)))
        >>> round(float(values.std()), 2)  # sqrt(1 / 100)
        0.1
    """

    groups: int = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return _uniform_of_variance(
            self, rng, shape, dtype, 1 / max(1, fans(shape, self.groups)[0])
        )


@dataclass(frozen=True)
class Orthogonal:
    """A random matrix with orthonormal rows or columns, whichever are fewer, times gain.

    All axes but the last together are the rows. The matrix is drawn uniformly (Haar): it is the Q
    of a normal matrix's QR with the signs of R's diagonal. For floating dtypes.

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
        _working(self, dtype)
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
            raise ShapeError(f"Identity: the shape must be that of a matrix, got {shape}")
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


def fans(shape: Shape, groups: int = 1) -> tuple[int, int]:
    """The number of inputs of one output of a kernel, and the number of outputs of one input.

    The last two axes of `shape` are input and output features, and the axes before them are the
    window: [in, out] of a dense layer, HWIO of a convolution, whose input axis has the features of
    one group.

    Args:
        shape: of the kernel. For a vector, both numbers are its size; for a scalar, they are 1.
        groups: the groups of a grouped convolution.

    Returns:
        (fan_in, fan_out).

    Examples:
        >>> gc.nn.initializers.fans((784, 10)), gc.nn.initializers.fans((3, 3, 16, 32))
        ((784, 10), (144, 288))
    """
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1] // groups


def _require(initializer: object, condition: bool, what: str) -> None:
    if not condition:
        raise AttributeValueError(f"{initializer}: {what}", source=current_source())


def _working(initializer: object, dtype: DType) -> Any:
    """The dtype to draw in."""
    if not is_floating(dtype):
        raise DTypeError(
            f"{type(initializer).__name__} creates floating values, not {dtype.name}",
            hint="pass an array, or a function (rng, shape, dtype) -> array",
        )
    return np.float64 if dtype == np.float64 else np.float32


def _uniform(
    initializer: object,
    rng: np.random.Generator,
    shape: Shape,
    dtype: DType,
    low: float,
    high: float,
) -> Array:
    values = rng.random(shape, _working(initializer, dtype))
    return (values * (high - low) + low).astype(dtype)


def _truncated(
    initializer: object,
    rng: np.random.Generator,
    shape: Shape,
    dtype: DType,
    mean: float,
    stddev: float,
) -> Array:
    working = _working(initializer, dtype)
    values = np.asarray(rng.standard_normal(shape, working)).reshape(-1)
    far = np.flatnonzero(np.abs(values) > 2)
    while far.size:  # each round rejects about one in twenty-two values
        values[far] = rng.standard_normal(far.size, working)
        far = far[np.abs(values[far]) > 2]
    return (values.reshape(shape) * stddev + mean).astype(dtype)


def _uniform_of_variance(
    initializer: object, rng: np.random.Generator, shape: Shape, dtype: DType, variance: float
) -> Array:
    limit = math.sqrt(3 * variance)
    return _uniform(initializer, rng, shape, dtype, -limit, limit)


def _normal_of_variance(
    initializer: object, rng: np.random.Generator, shape: Shape, dtype: DType, variance: float
) -> Array:
    stddev = math.sqrt(variance) / _TRUNCATED_STDDEV
    return _truncated(initializer, rng, shape, dtype, 0.0, stddev)

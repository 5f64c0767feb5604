"""Initializers whose variance depends on the number of inputs or outputs of a kernel."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from graphc.build.initial_draws import DType, Shape, truncated, uniform
from graphc.ir.dtypes import Array

__all__ = [
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "LecunNormal",
    "LecunUniform",
    "fans",
]


# The standard deviation of a standard normal cut off at 2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
TRUNCATED_STDDEV: Final = 0.8796256610342398


class Scaled(ABC):
    """A dataclass of an initializer whose variance depends on the fans of the kernel, and so on its
    groups."""

    groups: int
    _scale: ClassVar[int] = 1

    def __call__(self, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
        return self._drawn(rng, shape, dtype, self._variance(*fans(shape, self.groups)))

    def _variance(self, fan_in: int, fan_out: int) -> float:
        """The variance of the values."""
        return self._scale / max(1, fan_in)

    @abstractmethod
    def _drawn(
        self, rng: np.random.Generator, shape: Shape, dtype: DType, variance: float
    ) -> Array:
        """Values of a distribution with this variance."""


class _Uniform(Scaled):
    def _drawn(
        self, rng: np.random.Generator, shape: Shape, dtype: DType, variance: float
    ) -> Array:
        limit = math.sqrt(3 * variance)
        return uniform(self, rng, shape, dtype, -limit, limit)


class _Normal(Scaled):
    def _drawn(
        self, rng: np.random.Generator, shape: Shape, dtype: DType, variance: float
    ) -> Array:
        stddev = math.sqrt(variance) / TRUNCATED_STDDEV
        return truncated(self, rng, shape, dtype, 0.0, stddev)


@dataclass(frozen=True)
class _Glorot(Scaled):
    gain: float = 1.0
    groups: int = 1

    def _variance(self, fan_in: int, fan_out: int) -> float:
        return 2 * self.gain**2 / max(1, fan_in + fan_out)


@dataclass(frozen=True)
class _He(Scaled):
    groups: int = 1
    _scale: ClassVar[int] = 2


@dataclass(frozen=True)
class _Lecun(Scaled):
    groups: int = 1


@dataclass(frozen=True)
class GlorotUniform(_Glorot, _Uniform):
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


@dataclass(frozen=True)
class GlorotNormal(_Glorot, _Normal):
    """Truncated normal of variance 2 / (fan_in + fan_out) times gain². For floating dtypes.

    Args:
        gain, groups: see `GlorotUniform`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.GlorotNormal(), shape=(150, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / (150 + 50))
        0.1
    """


@dataclass(frozen=True)
class HeUniform(_He, _Uniform):
    """Uniform of variance 2 / fan_in, for layers followed by relu. For floating dtypes.

    Args:
        groups: the groups of a grouped convolution. `gc.nn.Conv2D` sets it.

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.HeUniform(), shape=(200, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / 200)
        0.1
    """


@dataclass(frozen=True)
class HeNormal(_He, _Normal):
    """Truncated normal of variance 2 / fan_in, for layers followed by relu. For floating dtypes.

    Args:
        groups: see `HeUniform`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.HeNormal(), shape=(200, 50)))
        >>> round(float(values.std()), 2)  # sqrt(2 / 200)
        0.1
    """


@dataclass(frozen=True)
class LecunNormal(_Lecun, _Normal):
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


@dataclass(frozen=True)
class LecunUniform(_Lecun, _Uniform):
    """Uniform of variance 1 / fan_in: keeps the variance of a linear layer's input.

    For floating dtypes.

    Args:
        groups: see `LecunNormal`.

    Examples:
        >>> values = run(gc.variable(gc.nn.initializers.LecunUniform(), shape=(100, 50)))
        >>> round(float(values.std()), 2)  # sqrt(1 / 100)
        0.1
    """


def fans(shape: Shape, groups: int = 1) -> tuple[int, int]:
    """The number of inputs of one output of a kernel, and the number of outputs of one input.

    The last two axes of `shape` are input and output features, and the axes before them are the
    window. Kernels are [in, out] for a dense layer, and HWIO for a convolution, whose input axis
    has the features of one group.

    Args:
        shape: the shape of the kernel. For a vector, both numbers are its size; for a scalar, 1.
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

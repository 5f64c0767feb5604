"""`gc.fft`: discrete Fourier transforms, under NumPy's names.

Arguments that the functions share:

- x: any numbers; real ones count as complex where the transform is of complex numbers.
- n, or s for several axes: how many elements to transform: `x` is cut off or filled up with zeros
  to that. For `irfft` and `hfft`, how many come out along the (last) axis, 2 * (size - 1) by
  default.
- axis, axes: which; for None the last `len(s)` ones, or all.
- norm: which transforms divide by the number of elements: "backward" (or None) the inverse ones,
  "forward" the others, "ortho" both by its root.
- name: of the node.

They give complex128 or float64 of 64-bit numbers, else complex64 or float32, and raise
`AttributeValueError` for an axis or norm that is not there, and `ShapeError` for a size `n` given
for an axis of another, named size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.core.axes import normalize_axes
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert
from graphc.ops.elementwise.complex_parts import conj
from graphc.ops.scipy_api.fourier import as_complex, transform

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return __all__


Axes = Sequence[int] | None
Sizes = Sequence[Dim] | None

# The norm of a transform in the opposite direction.
_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def fft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The discrete Fourier transform along an axis. Source: numpy.fft.fft."""
    return transform("FFT", x, None if n is None else (n,), (axis,), norm, name)


def ifft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `fft`. Source: numpy.fft.ifft."""
    return transform("IFFT", x, None if n is None else (n,), (axis,), norm, name)


def rfft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The first n // 2 + 1 elements of the `fft` of real numbers. Source: numpy.fft.rfft."""
    return transform("RFFT", x, None if n is None else (n,), (axis,), norm, name)


def irfft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `rfft`: real numbers. Source: numpy.fft.irfft."""
    return transform("IRFFT", x, None if n is None else (n,), (axis,), norm, name)


def hfft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The `fft` of numbers that mirror themselves conjugated, of which `x` is the first half.

    Real numbers. Source: numpy.fft.hfft.
    """
    return irfft(conj(as_complex(x)), n, axis, _SWAPPED.get(norm, norm), name=name)


def ihfft(
    x: Any,
    n: Dim | None = None,
    axis: int = -1,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `hfft`, of real numbers. Source: numpy.fft.ihfft."""
    return conj(rfft(x, n, axis, _SWAPPED.get(norm, norm)), name=name)


def fft2(
    x: Any,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`fftn` over the last two axes. Source: numpy.fft.fft2."""
    return fftn(x, s, axes, norm, name=name)


def fftn(
    x: Any,
    s: Sizes = None,
    axes: Axes = None,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The transform over several axes. Source: numpy.fft.fftn."""
    return transform("FFT", x, s, axes, norm, name)


def ifft2(
    x: Any,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`ifftn` over the last two axes. Source: numpy.fft.ifft2."""
    return ifftn(x, s, axes, norm, name=name)


def ifftn(
    x: Any,
    s: Sizes = None,
    axes: Axes = None,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse transform over several axes. Source: numpy.fft.ifftn."""
    return transform("IFFT", x, s, axes, norm, name)


def rfft2(
    x: Any,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`rfftn` over the last two axes. Source: numpy.fft.rfft2."""
    return rfftn(x, s, axes, norm, name=name)


def rfftn(
    x: Any,
    s: Sizes = None,
    axes: Axes = None,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The transform of real numbers over several axes: half of it, along the last of them.

    Source: numpy.fft.rfftn.
    """
    return transform("RFFT", x, s, axes, norm, name)


def irfft2(
    x: Any,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`irfftn` over the last two axes. Source: numpy.fft.irfft2."""
    return irfftn(x, s, axes, norm, name=name)


def irfftn(
    x: Any,
    s: Sizes = None,
    axes: Axes = None,
    norm: str | None = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `rfftn`, over several axes. Source: numpy.fft.irfftn."""
    return transform("IRFFT", x, s, axes, norm, name)


def fftshift(x: Any, axes: int | Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`x` with element 0 along each of `axes` (all by default) in the middle.

    Source: numpy.fft.fftshift.
    """
    return _turned(x, axes, name, back=False)


def ifftshift(
    x: Any, axes: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """The inverse of `fftshift`. Source: numpy.fft.ifftshift."""
    return _turned(x, axes, name, back=True)


def _turned(x: Any, axes: Any, name: str | None, *, back: bool) -> Tensor:
    tensor = convert(x)
    for axis in normalize_axes("fftshift", tensor, axes):
        size = tensor.shape[axis]
        cut = size // 2 if back else size - size // 2
        tensor = concatenate(split(tensor, (cut, -1), axis)[::-1], axis, name=name)
    return tensor


def fftfreq(n: int, d: float = 1.0, dtype: Any = "float32", *, name: str | None = None) -> Tensor:
    """The frequencies [n] of the elements of an `fft` of `n` samples, `d` apart.

    Raises:
        AttributeValueError: n is not a positive int.

    Source: numpy.fft.fftfreq.
    """
    return constant(np.fft.fftfreq(_count("fftfreq", n), d), dtype, name=name)


def rfftfreq(n: int, d: float = 1.0, dtype: Any = "float32", *, name: str | None = None) -> Tensor:
    """The frequencies [n // 2 + 1] of the elements of an `rfft` of `n` samples, `d` apart.

    Raises:
        AttributeValueError: n is not a positive int.

    Source: numpy.fft.rfftfreq.
    """
    return constant(np.fft.rfftfreq(_count("rfftfreq", n), d), dtype, name=name)


def _count(function: str, n: Any) -> int:
    if type(n) is not int or n < 1:
        refuse(f"{function}: n must be a positive int, got {n!r}", error=AttributeValueError)
    return n

"""`gc.fft`: discrete Fourier transforms, under NumPy's names.

Arguments of several functions:

- x: numbers of any dtype. A transform of complex numbers converts real ones.
- n, or s for several axes: the number of elements to transform. `x` is truncated or padded with
  zeros to this size. For `irfft` and `hfft`: the size of the result along the (last) axis; the
  default is 2 * (size - 1).
- axis, axes: the axes to transform. None means the last `len(s)` axes, or all if `s` is None.
- norm: which transforms are divided by the number of elements. "backward" (or None): the inverse
  transforms. "forward": the others. "ortho": all, by its square root.
- name: the name of the node.

64-bit operands give complex128 or float64, others complex64 or float32. An axis or norm that does
not exist raises `AttributeValueError`. A size `n` for an axis with a different, named size raises
`ShapeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphc.ir.dims import Dim
from graphc.ir.name_errors import no_function as _no_function
from graphc.ir.node import Tensor
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.core.axes import normalize_axes
from graphc.ops.core.checks import positive_int
from graphc.ops.core.emit import constant, convert
from graphc.ops.elementwise.complex_parts import conj
from graphc.ops.scipy_api.fourier import as_complex, transform
from graphc.typing import DTypeLike, TensorLike

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


if not TYPE_CHECKING:  # hidden from type checkers, which would then accept any name

    def __getattr__(name: str) -> NoReturn:
        raise _no_function("graphc.fft", name, __all__)


Axes = Sequence[int] | None
Size = Dim | None
Sizes = Sequence[Dim] | None
Norm = str | None

# The norm of a transform in the opposite direction.
_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def fft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The discrete Fourier transform along an axis. Source: numpy.fft.fft.

    Examples:
        >>> run(gc.fft.fft([1.0, 0.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return transform("FFT", x, None if n is None else (n,), (axis,), norm, name)


def ifft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `fft`. Source: numpy.fft.ifft.

    Examples:
        >>> run(gc.fft.ifft([4.0, 0.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return transform("IFFT", x, None if n is None else (n,), (axis,), norm, name)


def rfft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The first n // 2 + 1 elements of the `fft` of real numbers. Source: numpy.fft.rfft.

    Examples:
        >>> run(gc.fft.rfft([1.0, 1.0, 1.0, 1.0]))
        Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    return transform("RFFT", x, None if n is None else (n,), (axis,), norm, name)


def irfft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `rfft`; the result is real. Source: numpy.fft.irfft.

    Examples:
        >>> run(gc.fft.irfft([4.0, 0.0, 0.0]))
        Array([1., 1., 1., 1.], dtype=float32)
    """
    return transform("IRFFT", x, None if n is None else (n,), (axis,), norm, name)


def hfft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The `fft` of a Hermitian signal; `x` is its first half. The result is real.

    Source: numpy.fft.hfft.

    Examples:
        >>> run(gc.fft.hfft([1.0, 0.0]))
        Array([1., 1.], dtype=float32)
    """
    return irfft(conj(as_complex(x)), n, axis, _SWAPPED.get(norm, norm), name=name)


def ihfft(
    x: TensorLike,
    n: Size = None,
    axis: int = -1,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `hfft`; `x` is real. Source: numpy.fft.ihfft.

    Examples:
        >>> run(gc.fft.ihfft([1.0, 1.0]))
        Array([1.-0.j, 0.-0.j], dtype=complex64)
    """
    return conj(rfft(x, n, axis, _SWAPPED.get(norm, norm)), name=name)


def fft2(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`fftn` over the last two axes. Source: numpy.fft.fft2.

    Examples:
        >>> run(gc.fft.fft2(gc.ones((2, 2))))
        Array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return fftn(x, s, axes, norm, name=name)


def fftn(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = None,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The transform over several axes. Source: numpy.fft.fftn.

    Examples:
        >>> run(gc.fft.fftn(gc.ones((2, 2))))
        Array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return transform("FFT", x, s, axes, norm, name)


def ifft2(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`ifftn` over the last two axes. Source: numpy.fft.ifft2.

    Examples:
        >>> run(gc.fft.ifft2(gc.ones((2, 2))))
        Array([[1.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return ifftn(x, s, axes, norm, name=name)


def ifftn(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = None,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse transform over several axes. Source: numpy.fft.ifftn.

    Examples:
        >>> run(gc.fft.ifftn(gc.ones((2, 2))))
        Array([[1.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return transform("IFFT", x, s, axes, norm, name)


def rfft2(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`rfftn` over the last two axes. Source: numpy.fft.rfft2.

    Examples:
        >>> gc.fft.rfft2(gc.ones((4, 4))).shape
        (4, 3)
    """
    return rfftn(x, s, axes, norm, name=name)


def rfftn(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = None,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`fftn` of real numbers. Only the lower half along the last of `axes` is returned.

    Source: numpy.fft.rfftn.

    Examples:
        >>> gc.fft.rfftn(gc.ones((2, 4))).shape
        (2, 3)
    """
    return transform("RFFT", x, s, axes, norm, name)


def irfft2(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = (-2, -1),
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """`irfftn` over the last two axes. Source: numpy.fft.irfft2.

    Examples:
        >>> run(gc.fft.irfft2(gc.ones((2, 2))))
        Array([[1., 0.],
               [0., 0.]], dtype=float32)
    """
    return irfftn(x, s, axes, norm, name=name)


def irfftn(
    x: TensorLike,
    s: Sizes = None,
    axes: Axes = None,
    norm: Norm = "backward",
    *,
    name: str | None = None,
) -> Tensor:
    """The inverse of `rfftn`; the result is real. Source: numpy.fft.irfftn.

    Examples:
        >>> run(gc.fft.irfftn(gc.ones((2, 2))))
        Array([[1., 0.],
               [0., 0.]], dtype=float32)
    """
    return transform("IRFFT", x, s, axes, norm, name)


def fftshift(
    x: TensorLike, axes: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """Moves element 0 along each of `axes` (by default all) to the middle.

    Source: numpy.fft.fftshift.

    Examples:
        >>> run(gc.fft.fftshift([0, 1, -2, -1]))
        Array([-2, -1,  0,  1], dtype=int32)
    """
    return _turned(x, axes, name, back=False)


def ifftshift(
    x: TensorLike, axes: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """The inverse of `fftshift`. Source: numpy.fft.ifftshift.

    Examples:
        >>> run(gc.fft.ifftshift([-2, -1, 0, 1]))
        Array([ 0,  1, -2, -1], dtype=int32)
    """
    return _turned(x, axes, name, back=True)


def _turned(x: Any, axes: Any, name: str | None, *, back: bool) -> Tensor:
    tensor = convert(x)
    for axis in normalize_axes("fftshift", tensor, axes):
        size = tensor.shape[axis]
        cut = size // 2 if back else size - size // 2
        tensor = concatenate(split(tensor, (cut, -1), axis)[::-1], axis, name=name)
    return tensor


def fftfreq(
    n: int, d: float = 1.0, dtype: DTypeLike = "float32", *, name: str | None = None
) -> Tensor:
    """The frequencies [n] of an `fft` of `n` samples with distance `d`.

    Raises:
        AttributeValueError: n is not a positive int.

    Source: numpy.fft.fftfreq.

    Examples:
        >>> run(gc.fft.fftfreq(4))
        Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    return constant(np.fft.fftfreq(positive_int("fftfreq", "n", n), d), dtype, name=name)


def rfftfreq(
    n: int, d: float = 1.0, dtype: DTypeLike = "float32", *, name: str | None = None
) -> Tensor:
    """The frequencies [n // 2 + 1] of an `rfft` of `n` samples with distance `d`.

    Raises:
        AttributeValueError: n is not a positive int.

    Source: numpy.fft.rfftfreq.

    Examples:
        >>> run(gc.fft.rfftfreq(4))
        Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return constant(np.fft.rfftfreq(positive_int("rfftfreq", "n", n), d), dtype, name=name)

"""How far a value may be from its exact result, if only rounding separates them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphc.ir.dtypes import Array, DType, float_info, is_complex, is_inexact, real_of

_FACTOR = 8.0  # how many times the effect of random rounding is still rounding


class Deviation(NamedTuple):
    """The distance of a value from its exact result.

    Attributes:
        error: of the worst element: the one with the largest `ratio`.
        allowed: what rounding explains there.
        ratio: `error / allowed`. Above 1 it is a fault.
        at: the index of the worst element.
        relative: the largest error, as a fraction of the largest element.
    """

    error: float
    allowed: float
    ratio: float
    at: tuple[int, ...]
    relative: float


def unit_of(dtype: DType) -> float:
    """The rounding unit of a dtype; 0 for integers and bools."""
    if not is_inexact(dtype):
        return 0.0
    return float(float_info(real_of(dtype)).eps)


def difference(a: Array, b: Array) -> float:
    """The largest difference of two values, as a fraction of the largest finite element."""
    x, y = _wide(a), _wide(b)
    return _relative(_errors(x, y), y)


def deviation(value: Array, exact: Array, noisy: Sequence[Array], terms: float) -> Deviation:
    """The distance of `value` from `exact`.

    Args:
        exact: the result in float64.
        noisy: the same, each with other random rounding errors.
        terms: the operations for each element. Long sums round more often.
    """
    if value.shape != exact.shape:
        return Deviation(np.inf, 0.0, np.inf, (), np.inf)
    if not value.size:
        return Deviation(0.0, 0.0, 0.0, (), 0.0)
    if not is_inexact(value.dtype):
        return _discrete(value, exact, noisy)
    a, b = _wide(value), _wide(exact)
    errors = _errors(a, b)
    info = float_info(real_of(value.dtype))
    beyond = np.abs(b) >= 0.999 * float(info.max)  # may be infinite
    errors = np.where(np.isinf(a) & beyond, 0.0, errors)
    shifts = np.zeros(b.shape)
    for other in noisy:
        shifts = np.maximum(shifts, _errors(_wide(other), b))
    finite = shifts[np.isfinite(shifts)]
    usual = float(finite.mean()) if finite.size else 0.0
    growth = _FACTOR * max(1.0, np.sqrt(terms) / 2)
    size = np.where(np.isfinite(b), np.abs(b), 0.0)
    allowed = growth * (shifts + usual + float(info.eps) * size) + 4 * float(info.tiny)
    with np.errstate(invalid="ignore"):
        ratios = np.where(errors == 0, 0.0, np.where(np.isinf(allowed), 0.0, errors / allowed))
    worst = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    index = tuple(map(int, worst))
    return Deviation(
        float(errors[index]),
        float(allowed[index]),
        float(ratios[index]),
        index,
        _relative(errors, b),
    )


def _discrete(value: Array, exact: Array, noisy: Sequence[Array]) -> Deviation:
    """For integers and bools: elements that rounding can change are rounding."""
    wrong = value != exact
    if not wrong.any():
        return Deviation(0.0, 0.0, 0.0, (), 0.0)
    fragile = np.zeros(exact.shape, bool)
    for other in noisy:
        fragile |= other != exact
    count, excused = int(wrong.sum()), 2 * int(fragile.sum())
    clear = wrong & ~fragile
    index = tuple(map(int, np.argwhere(clear if clear.any() else wrong)[0]))
    error = float(abs(float(value[index]) - float(exact[index])))
    ratio = count / excused if excused else np.inf
    return Deviation(error, float(excused), float(ratio), index, count / value.size)


def _wide(value: Array) -> Array:
    return value.astype(np.complex128 if is_complex(value.dtype) else np.float64)


def _errors(a: Array, b: Array) -> Array:
    """|a - b|; infinite where only one of them is NaN or infinite."""
    if a.shape != b.shape:
        return np.full((), np.inf)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(a - b)
    found: Array = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    return found


def _relative(errors: Array, exact: Array) -> float:
    sizes = np.abs(exact[np.isfinite(exact)])
    largest, error = float(sizes.max(initial=0.0)), float(errors.max(initial=0.0))
    return error / largest if largest else error

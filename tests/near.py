"""The only comparison of floating-point results in this suite.

Two correct programs that compute the same sum in another order differ by rounding. This difference
is relative to the *terms*, not to the result: a logit near 0 is the difference of large terms, and
has their error. Another processor orders sums differently (wider vectors, other block sizes, fused
multiply-add). So a bound relative to each single element may hold on one machine by luck and fail
on the next. Therefore the bound here is relative to the largest finite value of the array, which is
the best cheap estimate of the size of the terms.

How the relative bounds are chosen, for n operations one after the other with unit roundoff u
(float64: 1.1e-16, float32: 6e-8): errors grow like sqrt(n) * u for random signs and n * u at worst.

==================  ======================================================================
float64, 1e-12      one operator, or a few; up to some thousand terms
float64, 1e-9       training steps: 10 to 100 steps of some thousand operations each
float32, 1e-5       one layer or a small network, forward
float32, 1e-4       gradients and a few training steps
==================  ======================================================================

A bug of the kind that tests look for (a wrong axis, a lost term, a scale) changes results by 1e-3
of the largest value or more, far above all of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_near(
    got: Any, want: Any, rtol: float, atol: float = 0.0, *, each: bool = False, err_msg: str = ""
) -> None:
    """Fails unless `got` is `want` up to `atol` plus `rtol` times the largest finite |want|.

    The shapes must be equal, or one of them that of a scalar. NaN and infinities must be at the
    same places.

    Args:
        each: whether `rtol` is relative to each element and not to the largest: for elementwise
            operators, whose elements have no terms in common.
    """
    got, want = np.asarray(got), np.asarray(want)
    if not each:
        atol, rtol = atol + rtol * size(want), 0.0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=err_msg)


def size(array: np.ndarray[Any, Any]) -> float:
    """The largest finite absolute value; 0 for an empty array."""
    wide = array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
    sizes = np.abs(wide)[np.isfinite(wide)]
    return float(sizes.max()) if sizes.size else 0.0

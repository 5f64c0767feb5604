"""Winograd's minimal filtering: computes tiles of a convolution with fewer products than taps.

F(m, r) computes m neighbouring results of a window of r taps with m + r - 1 products instead of
m * r: `A.T @ ((G @ w) * (B.T @ x))`. For several axes, the transforms are applied to
each.

Source: Winograd, Arithmetic complexity of computations, 1980; Lavin & Gray, Fast algorithms for
convolutional neural networks, 2016. The matrices are those of Cook and Toom; their points: Barabasz
et al., Error analysis and improving the accuracy of Winograd convolution, 2020.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]

# The points where the polynomials are evaluated, in addition to infinity; a filtering uses the
# first of them. Rounding errors grow with their powers, so they are powers of two near one, of both
# signs. With 1/2 and -2 before 2 and -1/2, the errors of F(4, 3) are half of those with 2 and -2.
_POINTS: Final = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "2", "-1/2")))
MOST_PLACES: Final = len(_POINTS) + 1


class Filtering(NamedTuple):
    """The matrices of F(m, r), float64, with a = m + r - 1.

    Attributes:
        results: [m, a], the transpose of A.
        kernel: [a, r], G.
        tile: [a, a], the transpose of B.
    """

    results: Matrix
    kernel: Matrix
    tile: Matrix


@cache
def filtering(m: int, r: int) -> Filtering:
    """The matrices for m results of a window of r taps; m + r - 1 is at most `MOST_PLACES`."""
    points = _POINTS[: m + r - 2]
    scales = [prod(p - q for q in points if q != p) for p in points]
    kernel = [[p**k / scale for k in range(r)] for p, scale in zip(points, scales, strict=True)]
    kernel.append([Fraction(k == r - 1) for k in range(r)])
    results = [[p**k for p in points] + [Fraction(k == m - 1)] for k in range(m)]
    tile = [[*_polynomial([q for q in points if q != p]), Fraction(0)] for p in points]
    tile.append(_polynomial(points))
    return Filtering(*[np.array(rows, np.float64) for rows in (results, kernel, tile)])


def _polynomial(roots: Any) -> list[Fraction]:
    """The coefficients of the product of all x - root, the constant coefficient first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [*[root * c for c in found], Fraction(0)]
        found = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return found


def placed_tiles(m: int, r: int, size: int, low: int, results: int) -> Matrix:
    """The transform of every tile along an axis, as one matrix: [a, tiles, size].

    Args:
        size: elements of the axis.
        low: the number of zeros before them.
        results: the number of results of the convolution; the last tile may compute more.
    """
    tile = filtering(m, r).tile
    tiles = -(-results // m)
    placed = np.zeros((len(tile), tiles, size))
    for index in range(tiles):
        first = index * m - low
        begin, end = max(0, first), min(size, first + len(tile))
        if begin < end:
            placed[:, index, begin:end] = tile[:, begin - first : end - first]
    return placed

"""Initializers: moments compared with theory, for 40,000 draws each, with fixed seeds."""

import dataclasses
import math

import numpy as np
import pytest

from graphc.build.initializers import (
    INITIALIZERS,
    Constant,
    Identity,
    Normal,
    Ones,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    Zeros,
)
from graphc.build.scaled_initializers import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    fans,
)
from graphc.build.variable_definition import initial_rng
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.dtypes import as_dtype
from tests.near import assert_near

SHAPE = (100, 400)
CUT = 0.8796256610342398  # the standard deviation of a standard normal truncated at 2


def draw(initializer, shape=SHAPE, dtype="float32", seed: int = 7) -> np.ndarray:
    return initializer(initial_rng(seed, "w"), shape, as_dtype(dtype))


@pytest.mark.parametrize(
    ("initializer", "mean", "stddev", "limit"),
    [
        (Uniform(-1.0, 3.0), 1.0, 4 / math.sqrt(12), 3.0),
        (Normal(0.5, 2.0), 0.5, 2.0, None),
        (TruncatedNormal(0.0, 2.0), 0.0, 2.0 * CUT, 4.0),
        (GlorotUniform(), 0.0, math.sqrt(2 / 500), math.sqrt(6 / 500)),
        (GlorotUniform(gain=2.0), 0.0, 2 * math.sqrt(2 / 500), 2 * math.sqrt(6 / 500)),
        (GlorotNormal(), 0.0, math.sqrt(2 / 500), 2 * math.sqrt(2 / 500) / CUT),
        (HeUniform(), 0.0, math.sqrt(2 / 100), math.sqrt(6 / 100)),
        (HeNormal(), 0.0, math.sqrt(2 / 100), 2 * math.sqrt(2 / 100) / CUT),
        (LecunNormal(), 0.0, math.sqrt(1 / 100), 2 * math.sqrt(1 / 100) / CUT),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_moments(initializer, mean: float, stddev: float, limit: float | None, dtype: str) -> None:
    values = draw(initializer, dtype=dtype)
    assert values.dtype == as_dtype(dtype)
    wide = values.astype(np.float64)
    # Five standard errors of a mean and of a standard deviation of n draws.
    error = 5 * stddev / math.sqrt(wide.size)
    assert abs(wide.mean() - mean) < error
    assert abs(wide.std() - stddev) < error
    if limit is not None:
        rounding = 1.01 if dtype == "bfloat16" else 1 + 1e-6
        assert np.abs(wide).max() <= limit * rounding
        assert np.abs(wide).max() > 0.98 * limit  # and comes close to it


def test_truncated_draws_again_instead_of_clipping() -> None:
    values = np.abs(draw(TruncatedNormal(0.0, 1.0), (200_000,)))
    # The number of values between 1.9 and 2 fits the density: they do not accumulate at the limit.
    expected = (math.erf(2 / math.sqrt(2)) - math.erf(1.9 / math.sqrt(2))) / math.erf(math.sqrt(2))
    assert abs((values > 1.9).mean() - expected) < 5 * math.sqrt(expected / values.size)


@pytest.mark.parametrize(
    ("shape", "groups", "expected"),
    [
        ((), 1, (1, 1)),
        ((7,), 1, (7, 7)),
        ((3, 5), 1, (3, 5)),
        ((3, 3, 4, 8), 1, (36, 72)),
        ((3, 3, 2, 8), 2, (18, 36)),  # 4 input features in two groups
        ((3, 3, 1, 8), 8, (9, 9)),  # depthwise
    ],
)
def test_fans(shape: tuple[int, ...], groups: int, expected: tuple[int, int]) -> None:
    assert fans(shape, groups) == expected


def test_scaled_initializers_use_the_fans_of_the_group() -> None:
    values = draw(GlorotUniform(groups=4), (3, 3, 16, 64))
    assert np.abs(values).max() == pytest.approx(math.sqrt(6 / (9 * 16 + 9 * 16)), rel=0.01)


def test_exact_ones() -> None:
    assert draw(Zeros(), (2,), "int8").tolist() == [0, 0]
    assert draw(Ones(), (2,), "bool").tolist() == [True, True]
    assert draw(Constant(2.5), (2,), "float64").tolist() == [2.5, 2.5]
    assert draw(Constant(1j), (1,), "complex64").tolist() == [1j]
    assert draw(Identity(3.0), (2, 3)).tolist() == [[3, 0, 0], [0, 3, 0]]


@pytest.mark.parametrize("shape", [(6, 6), (8, 3), (3, 8), (2, 2, 3, 4), (2, 3, 20)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = draw(Orthogonal(gain=2.0), shape, "float64").reshape(-1, shape[-1])
    rows, columns = matrix.shape
    square = matrix @ matrix.T if rows < columns else matrix.T @ matrix
    assert_near(square, 4 * np.eye(min(rows, columns)), rtol=1e-7, atol=1e-12)


def test_orthogonal_is_uniform_over_signs() -> None:
    # The diagonal of Q in a plain QR is biased; a uniformly drawn one is not.
    diagonal = [np.diag(draw(Orthogonal(), (3, 3), "float64", seed=s)).mean() for s in range(400)]
    assert abs(np.mean(diagonal)) < 5 * math.sqrt(1 / 3 / 400 / 3) * 1.5


@pytest.mark.parametrize("name", INITIALIZERS)
def test_the_table_and_the_records(name: str) -> None:
    cls = INITIALIZERS[name]
    made = cls(1.0) if cls is Constant else cls()
    assert name == cls.__name__
    assert made == type(made)(**dataclasses.asdict(made))  # the fields determine the initializer
    assert hash(made) == hash(dataclasses.replace(made))
    again = [draw(made, (3, 4)) for _ in range(2)]
    assert np.array_equal(*again)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.gain = 2.0
    assert cls.__doc__


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: Normal(stddev=-1.0), AttributeValueError, r"(?s)stddev must not be negative.*at"),
        (lambda: TruncatedNormal(stddev=-1.0), AttributeValueError, r"must not be negative"),
        (lambda: Uniform(1.0, 0.0), AttributeValueError, r"low must not be above high"),
        (lambda: draw(HeNormal(), dtype="int32"), DTypeError, r"floating values, not int32"),
        (lambda: draw(Uniform(), dtype="complex64"), DTypeError, r"floating .* not complex64"),
        (lambda: draw(Orthogonal(), (3,)), ShapeError, r"two axes or more, got \(3,\)"),
        (lambda: draw(Identity(), (3,)), ShapeError, r"that of a matrix, got \(3,\)"),
    ],
)
def test_bad_options(call, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_empty_shapes() -> None:
    assert draw(GlorotUniform(), (0, 0)).shape == (0, 0)
    assert draw(TruncatedNormal(), ()).shape == ()

"""Equal sizes: representatives, and contradictions."""

import time

import pytest

import graphc as gc
from graphc.errors import ShapeError, TextError
from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.dim_limits import (
    at_least_zero,
    divided,
    is_limited,
    limits_named,
    substitute_limited,
)
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import differ_if_positive, floor_division, substitute, symbol

N, M = symbol("n"), symbol("m")


def test_an_equality_that_cannot_hold_leaves_nothing_behind() -> None:
    sizes = DimConstraints()
    assert sizes.unify(2 * N, M + 1)
    assert sizes.unify(M, 5)
    before = sizes.equalities()
    assert not sizes.unify(N, 4), "2*n == 6"
    assert sizes.equalities() == before
    assert sizes.unify(N, 3)
    assert sizes.find(N * M) == 15


def test_sizes_with_a_known_difference_are_never_equal() -> None:
    n, m = symbol("n"), symbol("m")
    constraints = DimConstraints()
    assert not constraints.unify(n, n + 1) and not constraints.unify(2 * n + m, m + 2 * n - 3)
    assert constraints.unify(m, n + 1)
    assert not constraints.unify(m, n)
    assert constraints.unify(n, 2 * n)  # both may be 0


@pytest.mark.parametrize(
    ("other", "differ"),
    [
        (lambda n, m: n, False),
        (lambda n, m: n + 1, True),
        (lambda n, m: 2 * n, True),
        (lambda n, m: n + m, True),
        (lambda n, m: n * n, False),  # 1
        (lambda n, m: 2 * n + floor_division(n - 9, 2), False),  # 3
        (lambda n, m: 3 * n - m, False),
        (lambda n, m: n // 2, False),  # not certain
        (lambda n, m: n + n // 2, False),  # 1
        (lambda n, m: 4, False),
    ],
)
def test_sizes_that_differ_if_they_are_positive(other, differ: bool) -> None:
    n, m = symbol("n"), symbol("m")
    assert differ_if_positive(n, other(n, m)) == differ
    assert differ_if_positive(other(n, m), n) == differ


def test_the_first_name_represents_the_class() -> None:
    sizes = DimConstraints()
    assert sizes.unify(N, M)
    assert sizes.find(M + 1) == N + 1
    assert sizes.equal(N, M) and not sizes.equal(N, M + 1)


def test_an_operator_that_is_refused_leaves_no_equality_behind() -> None:
    g = gc.Graph()
    with g:
        a = gc.placeholder(("n", 3), name="a")
        b = gc.placeholder(("m", 4), name="b")
        with pytest.raises(ShapeError, match="do not broadcast together: 3 against 4"):
            a + b
    assert not g.constraints.equal(N, M)


FACTOR = "(a + b + c + d + e + f + g)"
TOO_LONG = {
    "product of sums": "*".join([FACTOR] * 6),
    "products that cancel": "*".join(["(a - b)"] * 300),
    "sum": " + ".join(f"a{i}" for i in range(1001)),
    "power": "*".join(["n"] * 1001),
    "divisions of long sums": " + ".join([f"floordiv({FACTOR}, {i})" for i in range(2, 90)]),
    "nested": f"{FACTOR}*{FACTOR}*floordiv({FACTOR}*{FACTOR}, 2)",
}


@pytest.mark.parametrize("text", TOO_LONG.values(), ids=TOO_LONG)
def test_a_dim_that_would_explode_is_refused_at_once(text: str) -> None:
    """The first one used to take seconds, in `gc.placeholder` and in the parser."""
    started = time.process_time()
    with pytest.raises(ShapeError, match="more than 1000 names and terms"):
        parse_dim(text)
    with pytest.raises(ShapeError, match="more than 1000 names and terms"), gc.Graph():
        gc.placeholder((text, 2))
    assert time.process_time() - started < 2.0


def test_the_text_of_a_dim_is_bounded() -> None:
    with pytest.raises(TextError, match="a dim has 30001 characters; the limit is 10000"):
        parse_dim("n + " * 7500 + "n")
    with pytest.raises(TextError, match="more than 50 open parentheses"):
        parse_dim("(" * 51 + "n" + ")" * 51)
    with pytest.raises(ShapeError, match="is not a name for a size"):
        parse_dim("²")
    with pytest.raises(TextError, match="more than 50 signs"):
        parse_dim("-" * 51 + "n")
    assert parse_dim("n" + " " * 9999) == N
    with pytest.raises(TextError, match="a dim has 10001 characters; the limit is 10000"):
        parse_dim("n" + " " * 10_000)
    assert parse_dim("-" * 50 + "n") == symbol("n")
    assert parse_dim("(" * 50 + "n" + ")" * 50) == symbol("n")


def test_the_longest_dims_keep_their_text() -> None:
    for text in (" + ".join(f"a{i}" for i in range(500)), "*".join(["n"] * 999)):
        dim = parse_dim(text)
        assert dim.weight == 1000 and parse_dim(str(dim)) == dim


def test_a_sign_holds_for_all_that_follows_in_parentheses() -> None:
    assert parse_dim("m - (n + 1)") == parse_dim("m + -(n + 1)") == M - N - 1
    assert parse_dim("-(-(n))") == N
    assert parse_dim("m - 2*-floordiv(n, 2)") == M + 2 * (N // 2)


def test_a_size_divides_a_number() -> None:
    """As in the results of `at_least_zero`; the names may be replaced by others."""
    dim = 4 - floor_division(7, N + 1)
    assert substitute(dim, {"n": 2 * M}) == 4 - floor_division(7, 2 * M + 1)
    assert substitute(dim, {"n": 2}) == 2
    assert parse_dim(str(dim)) == dim


@pytest.mark.parametrize(
    "text", ["n - 4", "4 - n", "m - n", "3*n - 2*m - 1", "n*m - 6", "-1*n", "n + 1", "n - 1",
             "floordiv(n, 2) - 2", "2 - floordiv(n + 1, 3)", "m*floordiv(n, 2) - n"]
)  # fmt: skip
def test_sizes_that_do_not_fall_below_zero(text: str) -> None:
    dim = parse_dim(text)
    limited = at_least_zero(dim)
    for n in range(1, 9):
        for m in range(1, 9):
            wanted = max(substitute(dim, {"n": n, "m": m}), 0)
            assert substitute(limited, {"n": n, "m": m}) == wanted
    assert (limited == dim) == (text in ("n + 1", "n - 1"))


LIMITED = [at_least_zero(parse_dim(t)) for t in ("n - 4", "4 - n", "m - n", "3*n + m - 11")]


@pytest.mark.parametrize(
    "dim",
    [
        *LIMITED,
        sum(LIMITED),
        3 * LIMITED[0] + 2,
        M * LIMITED[0] + LIMITED[1],
        (N + M) * LIMITED[2],
        LIMITED[0] * LIMITED[3],
        LIMITED[0] * LIMITED[1] * LIMITED[2],
        10 - LIMITED[0],
        (LIMITED[0] + LIMITED[1]) // 3,
        (LIMITED[0] + 1) // 2,
        (LIMITED[1] + 2) // 3 + LIMITED[2] + M,
        (at_least_zero(parse_dim("4*n - m - 7")) + 1) // 2,
        floor_division(LIMITED[2] + N, 3) * M,
    ],
    ids=str,
)
def test_limited_sizes_are_found_again(dim: object) -> None:
    """For an arithmetic with a maximum."""
    named, limited = limits_named(dim)
    assert is_limited(dim) and not is_limited(named) and limited
    for n in range(1, 9):
        for m in range(1, 9):
            sizes = {"n": n, "m": m}
            found = substitute_limited(dim, sizes, lambda size: max(size, 0))
            assert found == substitute(dim, sizes)


def test_names_of_limited_sizes_are_no_users() -> None:
    (name,) = limits_named(LIMITED[0])[1]
    with pytest.raises(ShapeError):
        symbol(name)


def test_what_is_no_limited_size_stays() -> None:
    sign = floor_division(2, floor_division(N + 1, M + 1) + 2)  # 1 if n < m, otherwise 0
    zero = N + floor_division(2, floor_division(2 * N + 2, N + 1) + 1)  # as if of the size 0
    others = (N - 1, sign * N, sign + 1, (N - M) * sign * sign, floor_division(2, N + 2), zero)
    for dim in others:
        assert limits_named(dim) == (dim, {})


@pytest.mark.parametrize("text", ["n - 4", "4 - n", "m - n", "-1*n", "n - 1", "-1*n - m"])
@pytest.mark.parametrize("by", [1, 3, -2])
def test_division_towards_zero(text: str, by: int) -> None:
    dim = parse_dim(text)
    ratio = divided(dim, by)
    assert ratio is not None
    for n in range(1, 9):
        for m in range(1, 9):
            sizes = {"n": n, "m": m}
            assert substitute(ratio, sizes) == int(substitute(dim, sizes) / by)


def test_division_whose_sign_is_not_known() -> None:
    assert divided(N, N - M) is None
    assert divided(N, 0) is None
    assert divided(parse_dim("floordiv(n - 3, 2)"), 3) is None
    assert (divided(-7, 2), divided(7, -2), divided(N - 1, 2)) == (-3, -3, (N - 1) // 2)


def test_divisions_of_negative_sizes_stay() -> None:
    dim = parse_dim("floordiv(n - 3, 2)")
    assert at_least_zero(dim) == dim
    assert (at_least_zero(-3), at_least_zero(3)) == (0, 3)

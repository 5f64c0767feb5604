"""`==` of tensors compares elements: it makes a node and never silently returns a Python bool.

`no_comparison_inside` in conftest.py checks in every test that graphc itself never compares tensors
with `==`, which would add nodes to users' graphs.
"""

from __future__ import annotations

from array import array
from weakref import WeakKeyDictionary, WeakSet

import jax
import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError, GraphFinalizedError, ShapeError
from graphc.ir.dtypes import FLOAT32
from graphc.ir.node import Tensor, by_identity, is_among, position_of, same_items
from graphc.ir.types import TensorType
from tests.near import assert_near

VALUES = np.array([0, 1, 5], np.int32)


def test_equality_is_a_node() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((3,), "int32", name="x")
        v = gc.variable(np.arange(3, dtype=np.int32), name="v")
        pairs = [
            (x == v, np.arange(3) == VALUES),
            (v == x, np.arange(3) == VALUES),
            (x != v, np.arange(3) != VALUES),
            (x == 1, VALUES == 1),
            (x != 1, VALUES != 1),
            (x == np.int64(1), VALUES == 1),
            (np.float64(1) == x, VALUES == 1),
            (x == np.array([0, 0, 5], np.int32), [True, False, True]),
            (np.array([0, 0, 5], np.int32) == x, [True, False, True]),
            (jax.numpy.array([0, 0, 5]) == x, [True, False, True]),
            (x == [0, 0, 5], [True, False, True]),
            (v != (0, 0, 5), [False, True, True]),
        ]
    assert all(isinstance(t, Tensor) and t.dtype == np.bool_ for t, _ in pairs)
    found = gc.Session(g).run([t for t, _ in pairs], {x: VALUES})
    for value, (_, wanted) in zip(found, pairs, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_accuracy_is_what_it_says() -> None:
    """`argmax(a) == y` used to be False, which made the accuracy 0."""
    with gc.Graph() as g:
        logits = gc.placeholder((None, 3), name="logits")
        labels = gc.placeholder((None,), "int32", name="labels")
        accuracy = gc.reduce_mean(gc.cast(gc.argmax(logits, -1) == labels, "float32"))
    feeds = {logits: np.eye(3, dtype="f"), labels: np.array([0, 1, 0], np.int32)}
    assert gc.Session(g).run(accuracy, feeds) == np.float32(2 / 3)


# NumPy scalars that are not numbers; the first ones used to raise a KeyError.
NOT_NUMBERS = (np.str_("a"), np.bytes_(b"a"), np.datetime64("2020"), np.timedelta64(1, "D"))


class Convertible:
    def __array__(self, dtype=None, copy=None):
        return np.array([0, 0, 5], np.int32)


def test_whatever_equal_takes_is_compared() -> None:
    """These comparisons used to be False."""
    given = [range(3), array("i", [0, 1, 2]), memoryview(np.arange(3)), bytearray(3), Convertible()]
    with gc.Graph() as g:
        x = gc.placeholder((3,), "int32", name="x")
        pairs = [(x == other, x != other, gc.equal(x, other)) for other in given]
        pairs += [(other == x, other != x, gc.equal(other, x)) for other in given]
    for same, differ, wanted in gc.Session(g).run(pairs, {x: VALUES}):
        np.testing.assert_array_equal(same, wanted)
        np.testing.assert_array_equal(differ, ~wanted)


def test_what_has_no_elements_equals_no_tensor() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((3,), name="x")
        before = len(g)
        for other in (None, "x", object(), gc.Graph, np.float32, ..., *NOT_NUMBERS):
            assert (x == other) is False and (other == x) is False
            assert (x != other) is True and (other != x) is True
        assert x not in list(np.array(["a", "b"]))
    assert len(g) == before
    with g, pytest.raises(gc.errors.DTypeError, match="not numeric"):
        gc.equal(x, np.str_("a"))


def test_hashing_stays_by_identity() -> None:
    with gc.Graph() as g:
        tensors = [gc.placeholder((2,), name=f"x{i}") for i in range(200)]
        variables = [gc.variable(np.zeros(2, "f"), name=f"v{i}") for i in range(200)]
        things = [*tensors, *variables]
        before = len(g)
        table = {thing: i for i, thing in enumerate(things)}
        assert [table[thing] for thing in things] == list(range(400))
        assert set(things) == frozenset(things) == table.keys()
        assert things[7] in set(things) and things[7] not in set(things[8:])
        assert {(thing, "key"): 1 for thing in things}[(things[3], "key")] == 1
        assert hash(things[0]) == object.__hash__(things[0])
    assert len(g) == before


def test_weak_containers_find_tensors() -> None:
    """Weak containers compare a tensor with itself by `==`, and need a bool."""
    with gc.Graph() as g:
        x, y = gc.placeholder((2,), name="x"), gc.placeholder((2,), name="y")
        v = gc.variable(np.zeros(2, "f"), name="v")
        before = len(g)
        table = WeakKeyDictionary({x: 1, v: 2})
        assert table[x] == 1 and table[v] == 2 and y not in table
        assert x in WeakSet([x, v]) and y not in WeakSet([x, v])
        del table[x]
        assert x not in table and len(g) == before
        assert isinstance(x == x, Tensor)  # False where x is NaN


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, y: x in [y, x],
        lambda x, y: [y, x].index(x),
        lambda x, y: (x, 1) == (y, 1),
        lambda x, y: bool(x == y),
        lambda x, y: 1 if x != y else 2,
    ],
)
def test_a_truth_value_is_refused(ask) -> None:
    with gc.Graph():
        x, y = (gc.placeholder((2,), name=name) for name in "xy")
        with pytest.raises(GraphError, match=r"(?s)truth value.*`a is b`, and a set for `a in b`"):
            ask(x, y)


def test_shapes_must_broadcast_and_the_graph_be_open() -> None:
    with gc.Graph() as g:
        x, y = gc.placeholder((2,), name="x"), gc.placeholder((3,), name="y")
        with pytest.raises(ShapeError, match=r"(?s)do not broadcast.*test_comparing_tensors.py"):
            x == y  # noqa: B015
    gc.Session(g).run(x, {x: np.zeros(2, "f")})
    with pytest.raises(GraphFinalizedError, match="has run"):
        x == x  # noqa: B015


def test_identity_helpers() -> None:
    scalar = TensorType(FLOAT32, ())
    a, b = Tensor(scalar), Tensor(scalar)
    assert is_among(b, [a, b]) and not is_among(b, [a])
    assert position_of(b, (a, b)) == 1
    assert same_items([a, b], (a, b)) and not same_items([a], [b]) and not same_items([a], [])

    @by_identity
    class Pair(tuple):
        pass

    assert Pair((a, 1)) == Pair((a, 1)) and Pair((a, 1)) != Pair((b, 1)) != (b, 1)
    assert len({Pair((a, 1)), Pair((a, 1)), Pair((b, 1))}) == 2


# -- dtypes of values in operations with a tensor --------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "make", "wanted"),
    [
        ("float32", lambda x: x / np.sqrt(64), "float32"),
        ("float32", lambda x: np.float64(2) * x, "float32"),
        ("float32", lambda x: x + np.int64(3), "float32"),
        ("float32", lambda x: x ** np.float64(2), "float32"),
        ("float32", lambda x: gc.where(x > 0, x, np.float64(0)), "float32"),
        ("float32", lambda x: x * np.complex128(1j), "complex64"),
        ("bfloat16", lambda x: x * np.float32(3), "bfloat16"),
        ("bfloat16", lambda x: x + ml_dtypes.bfloat16(3), "bfloat16"),
        ("int8", lambda x: x * np.int64(3), "int8"),
        ("int8", lambda x: x + np.bool_(True), "int8"),
        ("int8", lambda x: x * np.float64(3), "float32"),
        ("float32", lambda x: x * [1.0, 2.0], "float32"),
        ("float64", lambda x: x * np.array([1.0, 2.0]), "float64"),
        ("float32", lambda x: x * np.array([1.0, 2.0], "f"), "float32"),
        ("float32", lambda x: x + np.arange(2), "float32"),
    ],
)
def test_numpy_scalars_count_as_python_numbers(dtype, make, wanted: str) -> None:
    """No warning is raised: warnings are errors here."""
    with gc.Graph():
        assert make(gc.placeholder((2,), dtype, name="x")).dtype.name == wanted


def test_numpy_scalars_must_fit() -> None:
    with gc.Graph():
        x = gc.placeholder((2,), "int8", name="x")
        for make in (lambda n: x * n, lambda n: gc.constant(n, "int8")):
            with pytest.raises(gc.errors.DTypeError, match="300 is out of range for int8"):
                make(np.int64(300))
        for number in (np.int64(2**40), np.float64(1e300)):
            with pytest.raises(gc.errors.DTypeError, match=r"out of range|not fit float32"):
                gc.constant(number)
        v = gc.variable(np.zeros(2, "f"), name="v")
        assert v.assign(v * np.float64(3)).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: gc.constant(np.sqrt(64)), "float32"),
        (lambda: gc.constant(np.prod((2, 3))), "int32"),
        (lambda: gc.constant(np.complex128(1j)), "complex64"),
        (lambda: gc.full((4,), np.sqrt(2.0)), "float32"),
        (lambda: gc.sqrt(np.float64(64)), "float32"),
        (lambda: gc.linspace(np.float64(0), np.float64(1), 4), "float32"),
        (lambda: gc.where(gc.ones((2,), "bool"), np.sqrt(64), 0.0), "float32"),
        (lambda: gc.where(gc.ones((2,), "bool"), np.sqrt(64), np.float64(0)), "float32"),
        (lambda: gc.add(np.float64(1), np.int64(2)), "float32"),
        (lambda: gc.variable(np.float64(1), name="v"), "float64"),  # variables keep the dtype
        (lambda: gc.variable(np.float64(1), name="v", dtype="float32"), "float32"),
        (lambda: gc.add(np.float64(1), np.float16(2)), "float16"),
        (lambda: gc.constant(np.float32(1)), "float32"),
        (lambda: gc.constant(np.float16(1)), "float16"),
        (lambda: gc.constant(np.int8(1)), "int8"),
        (lambda: gc.constant(np.uint64(2**63)), "uint64"),
        (lambda: gc.constant(ml_dtypes.bfloat16(1)), "bfloat16"),
        (lambda: gc.constant(np.float64(0.1), "float64"), "float64"),
        (lambda: gc.constant(np.int64(2**40), "int64"), "int64"),
        (lambda: gc.variable(np.float64(1), name="v", dtype="float64"), "float64"),
        (lambda: gc.constant(np.array(0.1)), "float64"),
    ],
)
def test_numpy_scalars_alone(make, wanted: str) -> None:
    """Even without a tensor, scalars of NumPy's default dtypes (float64, complex128, int64) count
    as Python numbers, so that they widen no tensor later. Scalars of other dtypes keep theirs."""
    with gc.Graph():
        assert make().dtype.name == wanted


def test_a_bool_on_the_left() -> None:
    """These comparisons used to raise a TypeError."""
    mask = np.array([True, False])
    with gc.Graph() as g:
        x = gc.placeholder((2,), "bool", name="x")
        found = [np.bool_(True) & x, mask & x, True & x, mask | x, np.bool_(False) | x]
        found += [mask ^ x, x ^ mask, np.bool_(True) ^ x]
    values = gc.Session(g).run(found, {x: np.array([True, True])})
    wanted = [[1, 1], [1, 0], [1, 1], [1, 1], [1, 1], [0, 1], [0, 1], [0, 0]]
    np.testing.assert_array_equal(values, np.array(wanted, bool))


def test_constants_of_bool_are_kept_or_refused() -> None:
    """`gc.constant([2, 0.5, 0], "bool")` used to be True, True, False."""
    with gc.Graph() as g:
        y = [gc.constant(v, "bool") for v in ([1, 0], [1.0, 0.0], np.array([1, 0]), [True, False])]
        for value in ([2, 0], 2, -1, 0.5, [1, np.nan], np.array([2, 0]), 1j, np.int64(2)):
            with pytest.raises(gc.errors.DTypeError, match=r"bool|imaginary"):
                gc.constant(value, "bool")
    np.testing.assert_array_equal(gc.Session(g).run(y), [[True, False]] * 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * np.array([1.0, 2.0]),
        lambda x: np.array([1.0, 2.0]) - x,
        lambda x: x / np.array(8.0),  # a 0-d array is an array, as in JAX
        lambda x: gc.concatenate([x, np.ones(1)]),
        lambda x: gc.einsum("i,i->", x, np.ones(2)),
        lambda x: gc.arctan2(x, np.ones(2)),
    ],
)
def test_an_array_that_widens_a_tensor_warns(make) -> None:
    with gc.Graph():
        x = gc.placeholder((2,), name="x")
        text = (
            r"(?s)array of float64 turns a tensor of float32 into float64.*test_comparing_tensors"
        )
        with pytest.warns(gc.errors.PromotionWarning, match=text) as caught:
            y = make(x)
    assert y.dtype == np.float64 and len(caught) == 1
    assert caught[0].filename == __file__


def test_a_variable_that_widens_a_tensor_warns() -> None:
    with gc.Graph():
        x = gc.placeholder((2,), name="x")
        b = gc.variable(np.zeros(2), name="b")
        with pytest.warns(
            gc.errors.PromotionWarning, match="the variable 'b' of float64"
        ) as caught:
            assert (x + b).dtype == np.float64
        assert caught[0].filename == __file__
        both = gc.variable(np.zeros(2), name="both") * b  # no 32-bit tensor: no warning
        assert both.dtype == np.float64


def test_an_array_with_a_dtype_of_another_library_warns() -> None:
    class Foreign(Convertible):
        dtype = object()  # like PyTorch's dtypes, NumPy cannot read it

        def __array__(self, dtype=None, copy=None):
            return np.ones(2)

    with gc.Graph():
        x = gc.placeholder((2,), name="x")
        with pytest.warns(gc.errors.PromotionWarning, match="array of float64"):
            assert (x * Foreign()).dtype == np.float64


def test_a_line_warns_once() -> None:
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with gc.Graph():
            x = gc.placeholder((2,), name="x")
            for _ in range(3):
                x * np.array([1.0, 2.0])
            x * np.array([1.0, 2.0])
    assert [w.category for w in caught] == [gc.errors.PromotionWarning] * 2


def test_functions_of_jax_keep_their_own_rules() -> None:
    """In a JAX function, NumPy scalars follow JAX's rules, with and without 64 bits."""

    def function(x):
        return x * np.float64(1.1) + np.array(2.5) * np.arange(3)

    for dtype in ("float32", "float64"):
        value = np.linspace(0, 1, 3).astype(dtype)
        with gc.Graph() as g:
            x = gc.placeholder((3,), dtype, name="x")
            y = gc.from_jax(function)(x)
        with jax.enable_x64(dtype == "float64"):
            wanted = jax.jit(function)(value)
        found = gc.Session(g).run(y, {x: value})
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


# -- attention masks -------------------------------------------------------------------------


def test_a_mask_of_two_axes_is_refused() -> None:
    seen = np.tri(4, dtype=bool)
    with gc.Graph() as g:
        x = gc.placeholder((4, 4, 8), name="x")
        heads = gc.reshape(x, (4, 4, 2, 4))
        for attend in (
            lambda mask: gc.nn.attention(heads, heads, heads, mask=mask),
            lambda mask: gc.nn.MultiHeadAttention(8, 2)(x, mask=mask),
            lambda mask: gc.nn.TransformerBlock(8, 2)(x, mask=mask),
        ):
            text = r"(?s)\[batch, source\] or \[time, source\].*mask\[:, None, None, :\].*mask\["
            with pytest.raises(ShapeError, match=text):
                attend(seen)
            attend(seen[:, None, None, :])
            attend(seen[None, None])
            attend(seen[0])
        with pytest.raises(ShapeError, match="a bias of two axes"):
            gc.nn.attention(heads, heads, heads, bias=np.zeros((4, 4), "f"))
        shape = (4, 4, 2, 4)
        mask = gc.placeholder((4, 1, 4, 4), "bool", name="mask")
        y = gc.from_jax(jax.nn.dot_product_attention)(heads, heads, heads, mask=mask)
    value = np.random.default_rng(0).standard_normal((4, 4, 8)).astype("f")
    given = np.broadcast_to(seen, (4, 1, 4, 4))
    found = gc.Session(g).run(y, {x: value, mask: given})
    q = value.reshape(shape)
    wanted = jax.nn.dot_product_attention(q, q, q, mask=given)
    assert_near(found, wanted, rtol=1e-5, atol=1e-6)

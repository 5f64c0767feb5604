"""Checked numerics: the error names the first node that produced a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import AttributeValueError, NumericsError
from graphc.ir.dtypes import as_dtype
from graphc.ops.structure.numerics import INFINITE, NON_FINITE
from graphc.ops.structure.numerics import NAN as NAN_LEVEL
from graphc.passes.precision.check_numerics import CheckNumerics
from graphc.runtime.targets.numerics import complaint
from tests.compiling import optimised
from tests.near import assert_near
from tests.passes.check import check_pair, program

CHECK = gc.CompileOptions(check_numerics=True, cache=None)
NAN, INF = float("nan"), float("inf")
GOOD = np.ones((4, 3), "f")


def run(build: Callable[[Any], Any], feed: Any, options: gc.CompileOptions = CHECK) -> Any:
    """The result of the graph that `build` makes, for one feed, in a checked run."""
    feed = np.asarray(feed)
    with gc.Graph() as g:
        x = gc.placeholder(feed.shape, feed.dtype.name, name="x")
        y = build(x)
    return gc.Session(g, options=options).run(y, {x: feed})


def scanned(x: Any, **options: Any) -> Any:
    """sqrt(1 - x[i]), in a loop."""
    return gc.scan(lambda c, e: (c, gc.sqrt(1 - e, name="root")), 0.0, x, **options)[1]


def nested(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        return gc.scan(lambda d, e: (d + gc.log(e, name="bad"), None), c, row)[0], None

    return gc.scan(outer, 0.0, x)[0]


def while_(x: Any) -> Any:
    def turn(state: Any) -> Any:
        return state[0] + 1, gc.log(state[1], name="bad")

    return gc.while_loop(lambda state: state[0] < 4, turn, (0, x))[1]


def chosen(x: Any) -> Any:
    return gc.cond(gc.sum(x) > 0, lambda v: v + 1, lambda v: gc.log(v, name="bad") + 1, x)


def switched(x: Any) -> Any:
    def loop(v: Any) -> Any:
        return gc.scan(lambda c, e: (c, gc.log(e, name="bad")), 0.0, v)[1]

    branches = [gc.exp, loop, gc.cos]
    return gc.switch(gc.cast(gc.sum(x), "int32") - 1, branches, x)


def called(x: Any) -> Any:
    f = gc.function(lambda v: gc.log(v, name="bad") * 2, name="twice")
    return f(x + 1) + f(x)


def gradient(x: Any) -> Any:
    return gc.gradients(gc.sum(gc.sqrt(x, name="root")), [x])[0]


# build, feed and error text of each case
MADE: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "an infinity": (lambda x: gc.log(x, name="bad"), [0.0, 1.0], "Log 'bad' made an infinity"),
    "a NaN": (lambda x: gc.log(x, name="bad"), [-1.0, 1.0], "Log 'bad' made a NaN"),
    "a NaN of infinities": (
        lambda x: gc.subtract(x, x, name="bad"), [INF, 1.0], "Subtract 'bad' made a NaN",
    ),
    "the first of several": (
        lambda x: gc.sqrt(gc.log(x, name="first") * 0) + gc.log(x * 2, name="second"),
        [0.0], "'first'",
    ),
    "a cast": (lambda x: gc.cast(x, "float16", name="bad"), [1e6], "Cast 'bad' made an infinity"),
    "of integers": (
        lambda x: gc.cast(x, "float16", name="bad"), np.array([2**30], "i4"), "Cast 'bad'",
    ),
    "complex": (
        lambda x: gc.divide(x, x * 0, name="bad"), np.array([1j], "c8"), "Divide 'bad'",
    ),
    "float64": (lambda x: gc.exp(x, name="bad"), np.array([1e4]), "Exp 'bad'"),
    "float16": (lambda x: gc.exp(x, name="bad"), np.array([20], "f2"), "Exp 'bad'"),
    "behind moves": (
        lambda x: gc.log(gc.reshape(gc.transpose(x), (2,)), name="bad"), [[0.0, 1.0]], "Log 'bad'",
    ),
    "scan": (scanned, [0.0, 0.5, 3.0, 4.0], r"Sqrt 'root'.*\n  in iteration 2, .*of Scan"),
    "scan in reverse": (
        lambda x: scanned(x, reverse=True), [0.0, 3.0, 0.5, 0.5], r"in iteration 2, .*of Scan",
    ),
    "nested scans": (
        nested, [[1.0, 1, 1], [1, 0, 0], [0, 1, 1]],
        r"Log 'bad'.*\n  in iteration 1, .*of Scan.*\n  in iteration 1, .*of Scan",
    ),
    "while": (while_, [2.0], r"Log 'bad' made a NaN.*\n  in iteration 2, .*of While"),
    "branch": (chosen, [-1.0], r"Log 'bad'.*\n  in Switch 'cond' at test_numerics"),
    "second branch, with a loop": (
        switched, [1.0, 1.0, 0.0], r"Log 'bad'.*\n  in Switch.*\n  in iteration 2, .*of Scan",
    ),
    "function, second caller": (called, [0.0], r"Log 'bad'.*\n  in Call 'twice_1'"),
    "gradient": (gradient, [0.0, 1.0], "made an infinity"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "feed", "text"), MADE.values(), ids=MADE)
def test_the_first_node_is_named(build: Any, feed: Any, text: str) -> None:
    feed = np.asarray(feed, getattr(feed, "dtype", "f"))
    with pytest.raises(NumericsError, match=text) as caught:
        run(build, feed)
    assert "at test_numerics.py" in str(caught.value)


def test_the_line_is_the_users() -> None:
    with pytest.raises(NumericsError) as caught:
        run(lambda x: gc.log(x) + 1, [0.0])  # this line
    assert "# this line" in str(caught.value)


FINE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a feed with NaN": (lambda x: gc.exp(x) + 1, [NAN, 1.0]),
    "a feed with an infinity": (lambda x: gc.exp(x), [INF, -INF]),
    "a mask": (lambda x: gc.nn.softmax(gc.where(x > 0, x, -INF)), [0.0, 1.0]),
    "an infinite constant": (lambda x: gc.minimum(x, gc.constant(INF)), [0.0]),
    "a start at infinity": (
        lambda x: gc.scan(lambda c, e: (gc.maximum(c, e), None), -INF, x)[0], [0.0, 1.0],
    ),
    "a branch that is not taken": (chosen, [1.0]),
    "integers": (lambda x: x * 2, np.array([1, 2], "i4")),
    "no elements": (lambda x: gc.exp(x), np.zeros((0,), "f")),
    "a loop without floats": (
        lambda x: gc.scan(lambda c, e: (c + e, None), 0, x)[0], np.array([1, 2], "i4"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "feed"), FINE.values(), ids=FINE)
def test_cases_that_raise_no_error(build: Any, feed: Any) -> None:
    feed = np.asarray(feed, getattr(feed, "dtype", "f"))
    plain = run(build, feed, gc.CompileOptions(cache=None))
    np.testing.assert_array_equal(run(build, feed), plain)


def _training() -> tuple[gc.Graph, Any, Any, Any]:
    with gc.Graph(seed=0) as g:
        x = gc.placeholder((None, 3), name="x")
        h = gc.nn.Dense(4, name="hidden", kernel_initializer=gc.nn.initializers.Ones())(x)
        loss = gc.reduce_mean(gc.square(gc.log(h, name="bad")), name="loss")
        train = gc.minimize(loss, optax.adam(0.01), name="train")
    return g, x, train, loss


BAD = GOOD * np.array([[1.0], [1.0], [0.0], [1.0]], "f")


def test_the_session_goes_on_as_before() -> None:
    g, x, train, loss = _training()
    checked = gc.Session(g, options=CHECK)
    plain = gc.Session(g, options=gc.CompileOptions(cache=None))
    for session in (checked, plain):
        session.run([train, loss], {x: GOOD})
    before = checked.values()
    with pytest.raises(NumericsError, match="Log 'bad' made"):
        checked.run([train, loss], {x: BAD})
    for name, value in checked.values().items():
        np.testing.assert_array_equal(value, before[name])
    for _ in range(3):
        a, b = (s.run([train, loss], {x: GOOD})[1] for s in (checked, plain))
        assert_near(a, b, rtol=1e-6)


def test_many_steps_fail_together() -> None:
    g, x, train, loss = _training()
    session = gc.Session(g, options=CHECK)
    session.run_steps([train, loss], {x: np.stack([GOOD] * 3)}, 3)
    before = session.values()
    with pytest.raises(NumericsError, match=r"Log 'bad'.*\n  in step 2 of this run_steps"):
        session.run_steps([train, loss], {x: np.stack([GOOD, GOOD, BAD])}, 3)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, before[name])
    _, losses = session.run_steps([train, loss], {x: np.stack([GOOD] * 3)}, 3)
    assert np.isfinite(losses).all()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [None, 2])
def test_on_replicas(steps: int | None) -> None:
    g, x, train, loss = _training()
    session = gc.Session(g, options=CHECK, strategy=gc.devices.DataParallel(2))
    before = session.values()
    with pytest.raises(NumericsError, match=r"Log 'bad'(.|\n)*on replica 1 of 2"):
        if steps is None:
            session.run([train, loss], {x: BAD})
        else:
            session.run_steps([train, loss], {x: np.stack([GOOD, BAD])}, 2)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, before[name])
    one = gc.Session(g, options=CHECK).run([train, loss], {x: GOOD})[1]
    assert_near(session.run([train, loss], {x: GOOD})[1], one, rtol=1e-5)


def test_ahead_of_time_and_from_the_cache() -> None:
    g, x, train, loss = _training()
    options = gc.CompileOptions(check_numerics=True)
    for cached in (False, True):
        step = gc.compile(g, [train, loss], {x: (4, 3)}, options=options)
        assert step.cached is cached
        state = step.init()
        with pytest.raises(NumericsError, match="Log 'bad' made an infinity"):
            step(state, {x: BAD})
        (_, value), _ = step(state, {x: GOOD})  # the state was not consumed
        assert np.isfinite(value)


def test_the_cache_tells_no_old_names_and_lines() -> None:
    options = gc.CompileOptions(check_numerics=True)
    told = []
    for name in ("old", "new", "new"):
        g = gc.Graph()
        with g:
            x = gc.placeholder((3,), name="x")
            y = gc.multiply(gc.log(x, name=name), 2.0, name="y")
        step = gc.compile(g, y, {x: (3,)}, options=options)
        with pytest.raises(NumericsError, match=f"Log '{name}' made an infinity"):
            step(step.init(), {x: np.zeros(3, "f")})
        told.append(step.cached)
    assert told == [False, False, True]


@pytest.mark.slow
def test_repeated_layers_that_became_a_loop() -> None:
    with gc.Graph() as g:
        h = x = gc.placeholder((4, 64), name="x")
        for i in range(12):
            zeros = gc.nn.initializers.Zeros()
            layer = gc.nn.Dense(64, name=f"layer{i}", kernel_initializer=zeros)
            h = gc.sqrt(gc.tanh(layer(h)) + h - 1)
        loss = gc.reduce_sum(h)
        train = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(g, options=CHECK)
    start = 1.0
    for _ in range(5):
        start = start**2 + 1  # sqrt(h - 1): five iterations give 1, the sixth 0, the seventh NaN
    with pytest.raises(NumericsError, match=r"Sqrt.*made a NaN") as caught:
        session.run([train, loss], {x: np.full((4, 64), start, "f")})
    assert "in iteration 6, counted from 0, of Scan" in str(caught.value)
    assert "gc.sqrt(gc.tanh(layer(h)) + h - 1)" in str(caught.value)
    assert "Sqrt 'Sqrt_6' made a NaN" in str(caught.value)


# The same layers, written on separate lines.
ROOTS: list[Callable[[Any], Any]] = [
    lambda h: gc.sqrt(h, name="root0"),
    lambda h: gc.sqrt(h, name="root1"),
    lambda h: gc.sqrt(h, name="root2"),
    lambda h: gc.sqrt(h, name="root3"),
    lambda h: gc.sqrt(h, name="root4"),
    lambda h: gc.sqrt(h, name="root5"),
    lambda h: gc.sqrt(h, name="root6"),
    lambda h: gc.sqrt(h, name="root7"),
]


def alike(bad: int, value: float) -> tuple[gc.Graph, list[Any]]:
    """Layers that differ in one parameter: `value` in the layer `bad`, 1 in the others."""
    with gc.Graph(seed=0) as g:
        h = gc.placeholder((256, 64), name="x")
        for i, root in enumerate(ROOTS):
            shift = gc.variable(np.float32(value if i == bad else 1), name=f"shift{i}")
            layer = gc.nn.Dense(64, name=f"layer{i}", bias_initializer=gc.nn.initializers.Ones())
            h = layer(gc.tanh(root((1 + gc.square(gc.sin(h))) * shift)))
        loss = gc.reduce_mean(h, name="loss")
        return g, [gc.minimize(loss, optax.adam(0.1), name="train"), loss]


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize(
    ("value", "text"),
    [(-1.0, "Sqrt 'root{}' made a NaN"), (0.0, "Divide '.*root{}/.*' made an infinity")],
)
@pytest.mark.parametrize("bad", [1, 6])
def test_the_iterations_of_repeated_layers_have_lines(bad: int, value: float, text: str) -> None:
    """The error names lines in the forward and in the backward pass."""
    g, fetches = alike(bad, value)
    session = gc.Session(g, options=CHECK)
    with pytest.raises(NumericsError, match=text.format(bad)) as caught:
        session.run(fetches, {"x": np.ones((256, 64), "f")})
    assert f'lambda h: gc.sqrt(h, name="root{bad}")' in str(caught.value)
    assert "in iteration " in str(caught.value)


def test_the_iterations_of_a_loop_that_was_cut_in_two_have_lines() -> None:
    """A memory limit makes loops of 3 and 2 iterations, and a step, from one loop of 6."""
    layers = [{"node": f"Sqrt 'root{i}'", "line": f"net.py:{i}", "code": ""} for i in range(6)]
    layer = {"node": "Sqrt 'root*'", "line": "net.py:0", "code": "", "types": ["f32[2]"]}

    def scan(name: str, length: int, inside: Any) -> dict[str, Any]:
        said = {"node": f"Scan '{name}'", "line": "net.py:9", "code": "", "types": []}
        return {"0": {**said, "op": "Scan", "length": length, "inside": inside}}

    places = scan(
        "steps", 7, scan("segments", 3, scan("net", 2, {"1": {**layer, "turns": layers}}))
    )
    error = complaint(np.array([NAN_LEVEL, 0, 0, 4, 0, 2, 0, 1, 1], np.int32), places)
    assert str(error).startswith("Sqrt 'root5' made a NaN")
    assert "at net.py:5" in str(error)
    places = scan("net", 5, {"1": {**layer, "turns": layers}})  # the entry does not list iterations
    error = complaint(np.array([NAN_LEVEL, 0, 0, 4, 1], np.int32), places)
    assert str(error).startswith("Sqrt 'root*' made a NaN")


def test_what_a_host_function_gives() -> None:
    def bad(x: Any) -> Any:
        return x * np.float32(NAN)

    with pytest.raises(NumericsError, match="PyCallback 'host' made a NaN"):
        run(lambda x: gc.py_callback(bad, x, x, name="host") + 1, GOOD)


def test_the_option_is_a_bool() -> None:
    with pytest.raises(AttributeValueError, match="check_numerics"):
        gc.CompileOptions(check_numerics=1)  # type: ignore[arg-type]


def test_the_pass() -> None:
    check_pair(
        CheckNumerics(),
        """
        x: f32[2], n: i32[]
          %0 = Log(x) : f32[2]
          %1 = Reshape(%0) {shape=[1, 2]} : f32[1, 2]
          %2 = Exp(%1) : f32[1, 2]
          return out = %2
        =>
          %0 = NonFinite(x) : i32[]
          %1 = Log(x) : f32[2]
          %2 = NonFinite(%1) : i32[]
          %3 = Reshape(%1) {shape=[1, 2]} : f32[1, 2]
          %4 = Exp(%3) : f32[1, 2]
          %5 = NonFinite(%4) : i32[]
          %6 = FirstFault(%0, %2, %5) {ROWS, ranges=[], bodies=[], width=3} : i32[3]
          return out = %4, __numerics__ = %6
    """.replace("ROWS", "rows=[[0, 1, 0, 1], [2, 1, 1, 2]]"),
    )


def test_a_loop_carries_its_fault() -> None:
    before = program("""
        program p(x: f32[5]) {
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1, %2 = Scan(%0, x) {consts=0, carries=1, length=5} : f32[], f32[5]
              with body(a0: f32[], a1: f32[]) {
            %0 = Log(a1) : f32[]
            return r0 = %0, r1 = a0
          }
          return out = %2
        }""")
    after = CheckNumerics().run(before).program
    scan = next(node for node in after.nodes if node.op.name == "Scan")
    assert scan.attrs["carries"] == 3
    assert [str(t.type) for t in scan.outputs] == ["f32[]", "i32[4]", "i32[]", "f32[5]"]
    assert after.outputs[-1].tensor.type.shape == (5,)


DTYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e5m2",
    "float8_e4m3fn",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_levels_of_every_dtype(dtype: str) -> None:
    numbers = as_dtype(dtype)
    infinity = NAN_LEVEL if dtype == "float8_e4m3fn" else INFINITE  # this dtype has no infinity
    values = {0.0: 0, -3.0: 0, INF: infinity, -INF: infinity, NAN: NAN_LEVEL, -NAN: NAN_LEVEL}
    for value, level in values.items():
        x = np.array([[1.0, value], [-2.0, 0.5]], "f4").astype(numbers)
        for each in (x, x * 1j) if dtype.startswith("complex") and np.isfinite(value) else (x,):
            assert int(levels_of(each)) == level, f"{each}"
    assert int(levels_of(np.array([NAN, INF], "f4").astype(numbers))) == NAN_LEVEL
    assert int(levels_of(np.zeros((0, 3), numbers))) == 0


def levels_of(x: Any) -> Any:
    with jax.enable_x64(True):
        return NON_FINITE.lower(None, jnp.asarray(x))


@optimised()
def test_a_nan_among_many_numbers_is_found() -> None:
    """XLA's maximum on CPU loses a NaN in large arrays."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((100_000,), "float32", name="x")
        root = gc.sqrt(x, name="root")
        total = gc.reduce_sum(gc.where(gc.isnan(root), 0.0, root), name="total")
    feed = np.ones(100_000, np.float32)
    feed[10_000:13_000] = -1
    session = gc.Session(graph, options=gc.CompileOptions(check_numerics=True, cache=None))
    with pytest.raises(NumericsError, match="'root' made a NaN"):
        session.run(total, {"x": feed})

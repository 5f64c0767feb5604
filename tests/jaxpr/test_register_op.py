"""`register_op`: types, gradients, layouts, texts, the cache, and errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    GradientError,
    LoweringError,
    ShapeError,
    TextError,
)
from graphc.ir.catalogue import Catalogue
from graphc.ir.fingerprint import fingerprint
from graphc.ir.parse import parse_program
from graphc.ir.serial import dump_program, load_program
from graphc.ir.text import print_program
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core import layout_rules
from tests.near import assert_near


def swish(x: Any, *, beta: float = 1.0) -> Any:
    return x * jax.nn.sigmoid(beta * x)


def test_values_types_and_gradients_of_named_sizes() -> None:
    op = gc.register_op("Swish", swish)
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        y = op(x, beta=2.0, name="activation")
        slope = gc.gradients(y, x)
        curve = gc.gradients(gc.reduce_sum(slope * slope), x)
    assert y.type == x.type and y.name == "activation:0"
    value = np.random.default_rng(0).normal(size=(4, 3))
    got = gc.Session(graph).run([y, slope, curve], {x: value})
    with jax.enable_x64(True):
        first = jax.grad(lambda a: swish(a, beta=2.0).sum())
        wanted = [swish(value, beta=2.0), first(value)]
        wanted.append(jax.grad(lambda a: (first(a) ** 2).sum())(value))
    for a, b in zip(got, wanted, strict=True):
        assert_near(a, b, rtol=1e-12)


def test_several_results_some_of_them_integers() -> None:
    op = gc.register_op("SortedWithPlaces", lambda x: (jnp.sort(x), jnp.argsort(x)))
    with gc.Graph() as graph:
        x = gc.placeholder((5,), name="x")
        y, places = op(x)
        slope = gc.gradients(gc.reduce_sum(y * np.arange(5, dtype="f4")), x)
    assert places.dtype == np.int32
    value = np.array([3.0, 1.0, 2.0, 5.0, 4.0], np.float32)
    got = gc.Session(graph).run([y, places, slope], {x: value})
    np.testing.assert_array_equal(got[0], np.sort(value))
    np.testing.assert_array_equal(got[1], np.argsort(value))
    np.testing.assert_array_equal(got[2], np.argsort(np.argsort(value)))


def test_rules_of_ones_own() -> None:
    def shapes(x: Any, *, times: int) -> Any:
        return gc.TensorSpec((times, *x.shape), x.dtype)

    def gradient(node: Any, dy: Any) -> Any:
        return [gc.reduce_sum(dy, 0) * 10.0]

    op = gc.register_op(
        "Repeated", lambda x, *, times: jnp.stack([x] * times), infer=shapes, gradient=gradient
    )
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        y = op(x, times=3)
        slope = gc.gradients(gc.reduce_sum(y), x)
    assert y.shape == (3, *x.shape)
    got = gc.Session(graph).run([y, slope], {x: np.ones(2, np.float32)})
    np.testing.assert_array_equal(got[1], [30.0, 30.0])


def test_custom_derivatives_are_followed() -> None:
    @jax.custom_jvp
    def odd(x: Any) -> Any:
        return x**3

    odd.defjvp(lambda primals, tangents: (odd(*primals), 7.0 * tangents[0]))
    op = gc.register_op("Odd", odd)
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        slope = gc.gradients(op(x), x)
    assert gc.Session(graph).run(slope, {x: 2.0}) == 7.0


def test_under_a_strategy() -> None:
    gathered = gc.register_op("Gathered", lambda x: x - x.mean(0))
    cut = gc.register_op("Cut", jnp.sin, layout=layout_rules.elementwise)
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        results = [gathered(x), cut(x)]
    value = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(2))
    got = session.run(results, {x: value})
    assert_near(got[0], value - value.mean(0), rtol=1e-5, atol=1e-6)
    assert_near(got[1], np.sin(value), rtol=1e-5)
    (note,) = session.executables[0].notes
    assert "Gathered" in note and "without a layout rule" in note


def program_of(op: Any) -> gc.Program:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 3), name="x")
        y = op(x, beta=0.5)
        slope = gc.gradients(y, x)
    step = gc.compile(graph, [y, slope], {x: (2, 3)})
    return step.stages.compilation.prepared.functional


def test_texts_and_files_need_the_registration() -> None:
    program = program_of(gc.register_op("Swish", swish))
    text, dumped = print_program(program), dump_program(program)
    assert "Swish(x) {options={beta=0.5}}" in text
    assert fingerprint(parse_program(text, CATALOGUE)) == fingerprint(program)
    assert fingerprint(load_program(*dumped, CATALOGUE)) == fingerprint(program)
    bare = Catalogue(op for op in CATALOGUE.values() if op.name != "Swish")
    with pytest.raises(TextError, match=r"no operator 'Swish'") as caught:
        parse_program(text, bare)
    assert "gc.register_op('Swish', ...)" in str(caught.value)


def test_fingerprints_follow_what_the_function_calculates() -> None:
    scale = [1.0]

    def function(x: Any, *, beta: float) -> Any:
        return x * beta * scale[0] + jnp.asarray(table)

    found = []
    table = np.arange(3, dtype=np.float32)
    for i in range(2):
        found.append(fingerprint(program_of(gc.register_op(f"Own{i}", function))))
    assert found[0] != found[1]  # the name differs

    def of(fn: Any) -> str:
        CATALOGUE._ops.pop("Own", None)
        return fingerprint(program_of(gc.register_op("Own", fn)))

    same = of(function)
    assert of(function) == same
    scale[0] = 2.0
    assert of(function) != same
    scale[0], table = 1.0, np.arange(3, dtype=np.float32) + 1
    assert of(function) != same

    def with_slope(slope: float) -> Any:
        @jax.custom_jvp
        def inner(x: Any) -> Any:
            return jnp.sin(x)

        inner.defjvp(lambda p, t: (inner(*p), slope * t[0]))
        return lambda x, *, beta: inner(x)

    assert of(with_slope(1.0)) == of(with_slope(1.0)) != of(with_slope(2.0))


def test_a_compiled_step_is_found_again(tmp_path: Any) -> None:
    options = gc.CompileOptions(cache=str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)

    def result(fn: Any) -> Any:
        CATALOGUE._ops.pop("Kept", None)
        with gc.Graph() as graph:
            x = gc.placeholder((2,), name="x")
            y = gc.register_op("Kept", fn)(x)
        step = gc.compile(graph, y, {x: (2,)}, options=options)
        return float(step(step.init(), {x: np.ones(2)})[0][0]), "load" in step.seconds

    assert result(lambda x: x * 2) == (2.0, False)
    assert result(lambda x: x * 2) == (2.0, True)
    assert result(lambda x: x * 3) == (3.0, False)


def test_an_artifact_runs_without_the_registration(tmp_path: Any) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        y = gc.register_op("Swish", swish)(x, beta=2.0)
    signatures = {"run": gc.Signature({"x": x}, {"y": y})}
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures)
    del CATALOGUE._ops["Swish"]
    model = gc.load(tmp_path / "m.gcx")
    value = np.arange(3, dtype=np.float32)
    got = model.signatures["run"](x=value)["y"]
    assert_near(got, swish(value, beta=2.0), rtol=1e-6)


def test_back_to_jax() -> None:
    op = gc.register_op("Swish", swish)
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        y = op(x)
    function, state = gc.to_jax(graph, y)
    value = jnp.arange(3.0)
    assert_near(function(state, {"x": value})[0], swish(value), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "fn", "text"),
    [
        ("swish", jnp.sin, "'swish' is not a name for an operator"),
        (3, jnp.sin, "3 is not a name"),
        ("Tanh", jnp.sin, "an operator named 'Tanh' already exists"),
        ("Swish", 3, "3 is not a function"),
    ],
)
def test_what_cannot_be_registered(name: Any, fn: Any, text: str) -> None:
    with pytest.raises(AttributeValueError, match=text) as caught:
        gc.register_op(name, fn)
    assert "test_register_op.py" in str(caught.value.source)


def test_errors_of_a_call() -> None:
    op = gc.register_op("Swish", swish)
    unknown = gc.register_op("Unknown", lambda x: x, infer=lambda x: gc.TensorSpec((None,)))
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        with pytest.raises(AttributeValueError, match="option beta is a function"):
            op(x, beta=swish)
        with pytest.raises(ShapeError, match="the shape rule must give sizes"):
            unknown(x)
        with pytest.raises(TypeError, match="unexpected keyword") as caught:
            op(x, gamma=2.0)
        assert "test_register_op.py" in caught.value.__notes__[-1]


def kept_in(folder: Any) -> gc.CompileOptions:
    folder.mkdir(mode=0o700, exist_ok=True)
    return gc.CompileOptions(cache=str(folder))


@pytest.mark.parametrize("late", ["value", "slope"])
def test_what_a_function_closes_over_may_change(tmp_path: Any, late: str) -> None:
    """The cache key uses the lowered function, not the one traced when the node was made."""
    scale = [2.0]
    op = gc.register_op("Scaled", lambda x: x * scale[0])

    def result(build: float, lower: float) -> tuple[float, bool]:
        scale[0] = build
        with gc.Graph() as graph:
            x = gc.placeholder((2,), name="x")
            y = op(x)
            wanted = y if late == "value" else gc.gradients(y, x)
        scale[0] = lower
        step = gc.compile(graph, wanted, {x: (2,)}, options=kept_in(tmp_path / "cache"))
        return float(step(step.init(), {x: np.ones(2)})[0][0]), "load" in step.seconds

    assert result(2.0, 3.0) == (3.0, False)
    assert result(2.0, 2.0) == (2.0, False)
    assert result(2.0, 2.0) == (2.0, True)


def key_of(op: Any, strategy: Any = None, pulled: bool = False) -> str | None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 2), name="x")
        y = op(x)
        wanted = gc.gradients(y, x) if pulled else y
    step = gc.compile(graph, wanted, {x: (4, 2)}, strategy=strategy)
    return step.stages.compilation.key


@pytest.mark.parametrize("pulled", [False, True])
def test_no_executable_is_kept_that_a_layout_rule_cut(pulled: bool) -> None:
    cut = gc.register_op("Cut", jnp.sin, layout=layout_rules.elementwise)
    gathered = gc.register_op("Gathered", jnp.sin)
    strategy = gc.devices.DataParallel(2)
    assert key_of(cut, strategy, pulled) is None
    assert key_of(gathered, strategy, pulled) is not None
    assert key_of(cut, None, pulled) is not None


@pytest.mark.parametrize(
    ("give", "text"),
    [
        (lambda dy: gc.cast(dy, "float64"), r"gave f64\[3\] as the adjoint of operand 0"),
        (lambda dy: gc.reduce_sum(dy), r"gave f32\[\] .* which is f32\[3\]"),
        (lambda dy: dy[:2], r"gave f32\[2\]"),
    ],
)
def test_adjoints_of_another_type(give: Any, text: str) -> None:
    op = gc.register_op("Sloped", jnp.sin, gradient=lambda node, dy: [give(dy)])
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        y = op(x)
        with pytest.raises(GradientError, match=text) as caught:
            gc.gradients(y, x)
    assert "test_register_op.py" in str(caught.value.source)


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (lambda x: x[:2], r"float32\[2\]"),
        (lambda x: x.astype("int32"), r"int32\[3\]"),
        (lambda x: (x, x), r"float32\[3\], float32\[3\]"),
    ],
)
def test_results_of_another_type_than_declared(fn: Any, found: str) -> None:
    op = gc.register_op("Declared", fn, infer=lambda x: gc.TensorSpec(x.shape, x.dtype))
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        y = op(x)
    with pytest.raises(LoweringError, match=rf"says f32\[3\], and the function gives {found}"):
        gc.Session(graph).run(y, {x: np.zeros(3, np.float32)})


def test_declared_types_of_pieces() -> None:
    op = gc.register_op(
        "Declared",
        jnp.sin,
        infer=lambda x: gc.TensorSpec(x.shape, x.dtype),
        layout=layout_rules.elementwise,
    )
    with gc.Graph() as graph:
        x = gc.placeholder((None,), name="x")
        wanted = [op(x), gc.gradients(op(x), x)]
    value = np.arange(4, dtype=np.float32)
    got = gc.Session(graph, strategy=gc.devices.DataParallel(2)).run(wanted, {x: value})
    assert_near(got, [np.sin(value), np.cos(value)], rtol=1e-5)


def test_functions_that_cannot_be_identified_are_not_cached() -> None:
    def opaque(x: Any) -> Any:
        return x * int(x.shape[0])  # JAX's named sizes are not ints

    def shapes(x: Any) -> Any:
        return gc.TensorSpec(x.shape, x.dtype)

    @jax.custom_vjp
    def forward_only(x: Any) -> Any:
        return x * 2

    def refuse(*_: Any) -> Any:
        raise NotImplementedError

    forward_only.defvjp(lambda x: (x * 2, None), refuse)
    op = gc.register_op("Opaque", opaque, infer=shapes)
    with gc.Graph() as graph:
        x = gc.placeholder((None, 2), name="x")
        wanted = [op(x), gc.gradients(op(x), x)]
    np.testing.assert_array_equal(
        gc.Session(graph).run(wanted, {x: np.ones((3, 2), np.float32)}), np.full((2, 3, 2), 3.0)
    )
    assert key_of(op) is None and key_of(op, pulled=True) is None
    assert key_of(gc.register_op("ForwardOnly", forward_only)) is None
    own = gc.register_op("OwnSlope", forward_only, gradient=lambda node, dy: [dy * 2.0])
    assert key_of(own) is not None
    echoed = gc.register_op("Echoed", lambda x: jax.pure_callback(abs, x, x), infer=shapes)
    assert key_of(echoed) is None


def test_callbacks_are_refused() -> None:
    def echoed(x: Any) -> Any:
        return jax.jit(lambda x: jax.pure_callback(np.sin, x, x))(x)

    def printed(x: Any) -> Any:
        jax.debug.callback(print, x)
        return x

    for name, fn in {"Echoed": echoed, "Printed": printed}.items():
        op = gc.register_op(name, fn)
        with gc.Graph():
            x = gc.placeholder((3,), name="x")
            with pytest.raises(AttributeValueError, match="calls back to Python: ") as caught:
                op(x)
        assert "gc.py_callback" in caught.value.hint


@pytest.mark.parametrize(
    "fn", [lambda x: [x], lambda x: {"y": x}, lambda x: (x, (x, x)), lambda x: None, lambda x: ()]
)
def test_nests_are_refused(fn: Any) -> None:
    op = gc.register_op("Nested", fn)
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        with pytest.raises(AttributeValueError, match="Nested: the function returned") as caught:
            op(x)
    assert "a flat tuple of arrays" in caught.value.hint

"""What programs written for `jax.jit` rely on: JAX's own tests with `gc.jit` found these."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from collections.abc import Callable
from gc import collect
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.experimental import checkify
from numpy.testing import assert_array_equal as assert_equal

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    GraphcError,
    GraphError,
    JaxImportError,
    NumericsError,
)
from tests.near import assert_near

# -- results -------------------------------------------------------------------------------------


def test_equal_primitives_with_enumerations_among_their_parameters() -> None:
    """The passes find that they are equal: their parameters are nests of tuples and mappings."""

    def function(x: Any, w: Any) -> Any:
        ys = [lax.conv_general_dilated(x, w, (), "VALID", precision="highest") for _ in range(2)]
        return ys[0] * ys[1] + lax.conv_general_dilated(x, w, (), "VALID")

    x, w = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones((5, 3), np.float32)
    jitted = gc.jit(function)
    assert_equal(jitted(x, w), function(x, w))
    assert jitted.notes == []
    program = str(jitted.executable.hlo())
    assert program.count(" dot(") == 2 or program.count(" convolution(") == 2


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "float32"])
def test_division_by_zero_and_of_the_smallest_number(dtype: str) -> None:
    """JAX's indices have divisions whose results it then does not use."""
    low, high = (-np.inf, np.inf) if dtype == "float32" else (np.iinfo(dtype).min, 100)
    x = np.array([7, 0, 5, low, low, high], dtype)
    y = np.array([0, 0, 3, -1 if low else 1, 0, 2], dtype)

    def divided(x: Any, y: Any) -> Any:
        return lax.div(x, y), lax.rem(x, y), x // y, x % y, jnp.fmod(x, y)

    jitted = gc.jit(divided)
    for got, want in zip(jitted(x, y), jax.jit(divided)(x, y), strict=True):
        assert_equal(got, want)
    assert not jitted.notes


def start(x: Any) -> Any:
    """Parameters and a copy of them for a slow average, and something of both."""
    weights = x * 2
    return {"params": weights, "slow": weights}, weights, x, x


def test_each_place_of_a_result_has_its_own_array() -> None:
    """Else the donation of one would delete the others."""
    x = jnp.arange(3.0)
    jitted = gc.jit(start)
    for _ in range(2):  # the second call takes the fast path
        results = jax.tree.leaves(jitted(x))
        assert len({id(r) for r in results}) == 5
        assert len({r.unsafe_buffer_pointer() for r in [x, *results]}) == 6
        gc.jit(lambda p: p + 1, donate_argnums=0)(results[0])
        assert [r.is_deleted() for r in results] == [True, False, False, False, False]
        assert_equal(results[1], [0.0, 2.0, 4.0])
    assert not jitted.notes


def test_a_result_that_replaces_an_argument_is_not_copied_for_another_place() -> None:
    state = {"base": jnp.ones(2000), "w": jnp.zeros(2)}
    base = state["base"].unsafe_buffer_pointer()

    def step(state: Any) -> Any:
        return state["base"], {"base": state["base"], "w": state["w"] + 1}

    other, state = gc.jit(step, donate_argnums=0)(state)
    assert state["base"].unsafe_buffer_pointer() == base != other.unsafe_buffer_pointer()


def test_a_result_that_is_a_token() -> None:
    jitted = gc.jit(lambda x: (x + 1, lax.create_token(x)))
    value, token = jitted(1.0)
    assert float(value) == 2.0 and type(token) is type(lax.create_token())
    assert jitted.notes == ["it returns a value that is not an array, such as a token"]


# -- inside other functions of JAX ---------------------------------------------------------------


def test_a_call_with_numbers_while_jax_traces_is_traced() -> None:
    """Here no argument is a tracer."""
    jitted = gc.jit(lambda x: jnp.log(x) / 0.0)
    error, _ = checkify.checkify(jitted, errors=checkify.float_checks)(jnp.ones(3))
    assert "division by zero" in str(error.get())
    init = gc.jit(lambda key: jax.random.normal(key, (1 << 40,)))  # no machine holds it
    assert jax.eval_shape(lambda: init(jax.random.key(0))).shape == (1 << 40,)
    assert jitted.notes == init.notes == ["it was called inside jax.grad, jax.vmap or jax.jit"]


def test_a_function_of_a_named_axis_without_arguments() -> None:
    size = gc.jit(lambda: lax.axis_size("rows"))
    for rows in (2, 3):
        found = jax.vmap(size, axis_name="rows", axis_size=rows, out_axes=None)()
        assert found == rows


def test_references_are_left_to_jax() -> None:
    @gc.jit
    def add(total: Any, x: Any) -> Any:
        total[...] += x
        return total[...] * 2

    total = jax.new_ref(jnp.zeros(3))
    for count in (1, 2, 3):
        assert_equal(add(total, jnp.ones(3)), np.full(3, 2.0 * count))
    assert_equal(total[...], np.full(3, 3.0))
    assert add.notes == ["values that are not arrays, such as a jax.Ref, are among the arguments"]


# -- static arguments ----------------------------------------------------------------------------


def kinds(x: Any, y: Any) -> Any:
    """1 for a traced argument, 0 for a static one."""
    return jnp.array([isinstance(each, jax.core.Tracer) for each in (x, y)], int)


# -- the arguments of jax.jit ------------------------------------------------------------------


def test_shardings_and_other_options_of_jax_leave_all_calls_to_it() -> None:
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    rows = jax.NamedSharding(mesh, jax.P("x"))
    x = np.arange(4.0, dtype=np.float32)
    spread = gc.jit(lambda x: x + 1, in_shardings=rows, out_shardings=rows)
    assert_equal(spread(x), x + 1)
    assert spread(x).sharding == rows and spread.notes == ["in_shardings was passed to jit"]
    whole = gc.jit(out_shardings=jax.NamedSharding(mesh, jax.P()))(lambda x: x + 1)
    assert len(whole(x).devices()) == 2 and whole.notes == ["out_shardings was passed to jit"]
    with pytest.raises(GraphError, match=r"runs by jax.jit: in_shardings was passed to jit"):
        spread.compile(x)
    options = gc.jit(lambda x: x + 1, compiler_options={"xla_embed_ir_in_executable": True})
    assert_equal(options(x), x + 1)
    assert options.notes == ["compiler_options was passed to jit"]


def test_options_of_jax_without_a_meaning_here() -> None:
    x = np.ones(3, np.float32)

    def function(x: Any, y: Any) -> Any:
        return x + 1

    inlined = gc.jit(function, keep_unused=True, inline=True, in_shardings=None)
    assert_equal(inlined(x, x), x + 1)
    assert inlined.notes == [] and inlined.executable is not None
    by_jax = jax.jit(function, keep_unused=True, inline=True)
    assert str(jax.make_jaxpr(inlined)(x, x)) == str(jax.make_jaxpr(by_jax)(x, x))
    assert len(inlined.lower(x, x).compile().input_shardings[0]) == 2


def test_arguments_that_jax_does_not_have() -> None:
    with pytest.raises(TypeError, match=r"jit\(\) got an unexpected keyword argument 'donate'"):
        gc.jit(lambda x: x, donate=0)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'donate'"):
        gc.jit(donate=0)  # also without the function
    with pytest.raises(AttributeValueError, match=r"out_shardings is JAX's, and strategy= is gra"):
        gc.jit(lambda x: x, out_shardings=jax.P(), strategy=gc.devices.DataParallel(2))


@pytest.mark.parametrize("jit", [gc.jit, jax.jit])
def test_positions_and_names_of_static_arguments_mean_what_they_say(jit: Any) -> None:
    """If both are given, neither is completed by the other."""
    by_position = jit(kinds, static_argnums=1, static_argnames=())
    assert by_position(1, 2).tolist() == [1, 0] and by_position(1, y=2).tolist() == [1, 1]
    by_name = jit(kinds, static_argnums=(), static_argnames="y")
    assert by_name(1, 2).tolist() == [1, 1] and by_name(1, y=2).tolist() == [1, 0]
    mixed = jit(kinds, static_argnums=1, static_argnames="x")
    assert mixed(1, 2).tolist() == [1, 0] and mixed(x=1, y=2).tolist() == [0, 1]
    either = jit(kinds, static_argnums=1)
    assert either(1, 2).tolist() == either(1, y=2).tolist() == [1, 0]


def test_a_position_from_the_end_of_any_number_of_arguments() -> None:
    with pytest.raises(AttributeValueError, match="static_argnums has -1, but the function takes"):
        gc.jit(lambda x, *others: x, static_argnums=-1)


# -- functions that need a value -----------------------------------------------------------------


def branch(p: Any, x: Any) -> Any:
    if x > p["limit"]:  # this line
        return x
    return -x


def line_of(function: Callable[..., Any], text: str) -> int:

    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def test_the_error_names_the_line_and_the_arguments() -> None:
    with pytest.raises(JaxImportError) as caught:
        gc.jit(branch)({"limit": 1.0, "other": 2.0}, 3.0)
    text = str(caught.value)
    assert """needs the value of its arguments "p['limit']", 'x' in Python""" in text
    assert f"at test_as_jax.py:{line_of(branch, 'this line')} " in text
    with pytest.raises(JaxImportError, match=r"It arose in the jnp.arange argument 'stop'"):
        gc.jit(lambda n: jnp.arange(n))(3)


def test_other_functions_with_values_have_their_own_names() -> None:
    @jax.jit
    def flat(*values: Any) -> Any:
        return values[0] if values[2] > 0 else values[1]

    with pytest.raises(JaxImportError, match=r"its argument 'values\[2\]' in Python"):
        gc.jit(lambda x: flat(x, x, x))(1.0)
    with pytest.raises(JaxImportError, match="its argument 'p_a' in Python"):
        gc.jit(lambda p, p_a: 1 if p_a > 0 else p["a"])({"a": 1.0}, 2.0)
    with pytest.raises(
        JaxImportError, match=r"""its arguments 'rest\[0\]', "more\['in'\]" in Python"""
    ):
        gc.jit(lambda p, *rest, **more: 1 if rest[0] > more["in"] else 2)(1.0, 2.0, **{"in": 3.0})
    with pytest.raises(
        TypeError, match=r"tracing the function \S+ at \S*test_as_jax\.py:"
    ) as caught:
        gc.jit(lambda x, n: x.reshape(n, -1))(jnp.ones(4), 2)
    assert "value of the argument n." in str(caught.value)
    with pytest.raises(JaxImportError, match="needs the value of an array") as of_vmap:
        gc.jit(jax.vmap(lambda x: float(x)))(jnp.ones(3))
    assert not any("Tracer with" in line or "https" in line for line in of_vmap.value.details)


def test_the_error_in_a_body_names_what_the_body_depends_on() -> None:
    def total(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, carry: carry + float(i), x)

    with pytest.raises(JaxImportError, match="needs the value of its argument 'i' in Python"):
        gc.jit(total)(1.0)


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "bool": lambda n: n if n else -n,
    "number": lambda n: float(n),
    "integer": lambda n: range(n),
    "array": lambda n: np.sin(n),
}


@pytest.mark.parametrize("function", MISTAKES.values(), ids=MISTAKES)
def test_code_that_catches_the_error_of_jax_catches_this_one(
    function: Callable[[Any], Any],
) -> None:
    with pytest.raises(TypeError, match="traced array") as of_jax:
        jax.jit(function)(3)
    with pytest.raises(of_jax.type, match="needs the value of its argument 'n'") as ours:
        gc.jit(function)(3)
    assert isinstance(ours.value, JaxImportError)
    again = pickle.loads(pickle.dumps(ours.value))
    assert type(again) is ours.type and str(again) == str(ours.value)


def use_twice(jit: Any) -> None:
    function, x = jit(lambda x: x + 1, donate_argnums=0), jnp.ones(3)
    function(x)
    function(x)


def use_deleted(jit: Any) -> None:
    x = jnp.ones(3)
    x.delete()
    jit(lambda x: x + 1)(x)


def donate_and_pass(jit: Any) -> None:
    x = jnp.ones(3)
    jit(lambda x, y: x + y, donate_argnums=0)(x, x)


def fail(jit: Any, large: bool = False) -> None:
    """A callback that raises, in a program that takes the direct path, or with the check of room
    for a large result."""

    def raises(x: Any) -> Any:
        raise ValueError("mine")

    def function(x: Any) -> Any:
        y = jax.pure_callback(raises, jax.ShapeDtypeStruct((), "float32"), x[0])
        return jnp.ones((1 << 24,)) * y if large else y

    jax.block_until_ready(jit(function)(np.ones(3, np.float32)))


def overflow(jit: Any) -> None:
    jit(lambda x: x)(2**40)


def guard(jit: Any) -> None:
    with jax.transfer_guard("disallow"):
        jit(lambda x: x + 1)(np.ones(3))


class Converted:
    def __jax_array__(self) -> Any:
        return jnp.ones(2)


NO_ARRAYS = [
    *(np.arange(3, dtype=">f4"), np.array(["2020"], "datetime64[D]"), np.zeros(2, [("a", "f4")])),
    *(np.longdouble(2), np.array([None]), np.ma.array([1, 2]), Converted(), "text", len),
]


@pytest.mark.parametrize("value", NO_ARRAYS, ids=lambda value: type(value).__name__)
def test_values_that_are_no_arrays_raise_errors_of_jaxs_classes(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as of_jax:
        jax.jit(lambda x: x)([value])
    with pytest.raises(of_jax.type, match="jit: argument 'x/0'") as ours:
        gc.jit(lambda x: x)([value])
    assert isinstance(ours.value, GraphcError)


def test_a_copy_of_a_jitted_function_is_the_function() -> None:
    jitted = gc.jit(lambda x: x + 1)
    assert copy.copy(jitted) is jitted
    again = copy.deepcopy({"apply": jitted})["apply"]
    assert again is jitted and float(again(1.0)) == 2.0


@pytest.mark.parametrize(
    "misuse",
    [
        *(use_twice, use_deleted, donate_and_pass, fail, overflow, guard),
        lambda jit: fail(jit, large=True),
    ],
)
def test_failures_of_a_call_are_of_jaxs_classes(misuse: Any) -> None:
    with pytest.raises((ValueError, RuntimeError, OverflowError)) as of_jax:
        misuse(jax.jit)
    with pytest.raises(of_jax.type) as ours:
        misuse(gc.jit)
    assert isinstance(ours.value, GraphcError)
    again = pickle.loads(pickle.dumps(ours.value))
    assert type(again) is ours.type and str(again) == str(ours.value)


def test_failures_that_say_more_keep_their_classes() -> None:
    checked = gc.jit(jnp.log, options=gc.CompileOptions(check_numerics=True))
    with pytest.raises(NumericsError):
        checked(-jnp.ones(3))


# -- pytrees -------------------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Named:
    """An array with a name for each axis, which its constructor checks."""

    def __init__(self, names: tuple[str, ...], data: Any) -> None:
        assert len(names) == data.ndim
        self.names, self.data = names, data

    def tree_flatten(self) -> tuple[list[Any], tuple[str, ...]]:
        return [self.data], self.names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], leaves: list[Any]) -> Any:
        return cls(names, *leaves)


@jax.tree_util.register_pytree_node_class
class Strict(Named):
    """One that takes nothing but arrays."""

    def __init__(self, names: tuple[str, ...], data: Any) -> None:
        assert isinstance(data, jax.Array)
        super().__init__(names, data)


def learn(layers: list[Any], x: Any) -> Any:
    def loss(layers: list[Any]) -> Any:
        y = x
        for each in layers:
            y = jnp.tanh(y @ each.data)
        return jnp.sum((y - 1) ** 2)

    total, slopes = jax.value_and_grad(loss)(layers)
    return jax.tree.map(lambda w, slope: w - 0.001 * slope, layers, slopes), total


@pytest.mark.parametrize("kind", [Named, Strict])
def test_classes_that_check_their_leaves(kind: Any, tmp_path: Path) -> None:
    def init() -> list[Any]:
        return [kind(("in", "out"), jnp.eye(4) * n / 4) for n in range(1, 13)]

    x = jnp.ones((64, 4))
    want = learn(learn(init(), x)[0], x)
    key = f"learn of {kind.__name__}"
    step, again = (gc.jit(learn, donate_argnums=0, cache_key=key) for _ in range(2))
    for jitted in (step, again):  # the second one does not trace
        layers, total = jitted(jitted(init(), x)[0], x)
        assert isinstance(layers, gc.PackedTree) == (kind is Named)
        assert_near(total, want[1], rtol=1e-5)
        assert_near(layers[-1].data, want[0][-1].data, rtol=1e-5)
        assert not jitted.notes
    path = tmp_path / "learn.gcx"
    step.save(path, platforms=["cpu"])
    layers, total = gc.load_function(path)(learn(init(), x)[0], x)
    assert_near(total, want[1], rtol=1e-5)
    assert [type(each) for each in layers] == [kind] * 12 and layers[0].names == ("in", "out")


# -- one function jitted again -------------------------------------------------------------------


def total(x: Any) -> Any:
    return x.sum()


def test_a_function_jitted_again_is_not_traced_again() -> None:
    """`jit(step)(x)` in a loop."""
    traces = []

    def double(x: Any) -> Any:
        traces.append(x)
        return x * 2

    for n in range(3):
        assert float(gc.jit(double)(float(n))) == 2.0 * n
    assert len(traces) == 1
    gc.jit(double, static_argnums=0)(3.0)
    gc.jit(double, donate_argnums=0)(3.0)
    gc.jit(double, options=gc.CompileOptions(pipeline="O1"))(3.0)
    gc.jit(double, options=gc.CompileOptions(pipeline="O1"))(4.0)
    gc.jit(double, strategy=gc.devices.DataParallel(2))(jnp.ones(4))
    gc.jit(double, strategy=gc.devices.DataParallel(2))(jnp.ones(4))
    assert len(traces) == 3  # JAX keeps traces, whatever is donated, and for all options
    gc.jit(double).clear_cache()
    gc.jit(double)(1.0)
    assert len(traces) == 4


@pytest.mark.parametrize("left", ["no result", "effects", "a tracer"])
def test_a_function_that_is_left_to_jax_is_called_once(left: str) -> None:
    """Functions have side effects while they are traced: they count, collect, print."""
    traces = []

    def collect(x: Any) -> Any:
        traces.append(x)
        if left == "effects":
            jax.debug.callback(lambda: None)
        return None if left == "no result" else x + other

    def called(y: Any) -> Any:
        nonlocal other
        other = y
        jitted = gc.jit(collect)
        result = jitted(2.0), jitted(3.0)
        assert jitted.notes
        return result[0] if left != "no result" else y

    other: Any = 1.0
    if left == "a tracer":
        assert jax.grad(called)(1.0) == 1.0
    else:
        called(1.0)
    assert len(traces) == 1


def test_the_last_call_is_that_of_each_jitted_function() -> None:
    first, second = (gc.jit(total) for _ in range(2))
    first(jnp.ones(3)), second(jnp.ones(5))
    assert [f.executable.feeds[0].shape for f in (first, second)] == [(3,), (5,)]
    with pytest.raises(GraphError, match="it was not called yet"):
        gc.jit(total).memory()


def test_reasons_are_known_to_a_function_jitted_again() -> None:
    def shout(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    gc.jit(shout)(1.0)
    again = gc.jit(shout)
    assert not again.notes
    again(1.0)
    assert len(again.notes) == 1 and "side effects" in again.notes[0]


def test_programs_are_freed_with_the_function() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = jnp.ones(2000)
            self.predict = gc.jit(self.of)

        def of(self, x: Any) -> Any:
            return (self.w * x).sum()

    model = Model()
    assert float(model.predict(2.0)) == 4000.0 == float(gc.jit(model.of)(2.0))
    gone = weakref.ref(model.w)
    del model
    collect()
    assert gone() is None

    def held(w: Any) -> Callable[[], Any]:
        return lambda: w + 1

    w = jnp.ones(2000)
    gone, function = weakref.ref(w), held(w)
    del w
    assert float(gc.jit(function)()[0]) == 2.0
    del function
    collect()
    assert gone() is None


def test_functions_that_no_table_can_hold() -> None:
    class Slots:
        __slots__ = ()

        def __call__(self, x: Any) -> Any:
            return x + 1

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Any) -> Any:
            return x + 2

    class Incomparable:
        def __init__(self, add: float) -> None:
            self.add = add

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: Any) -> Any:
            raise ValueError("the truth value of an array is ambiguous")

        def __call__(self, x: Any) -> Any:
            return x + self.add

    assert float(gc.jit(Slots())(1.0)) == 2.0 and float(gc.jit(Unhashable())(1.0)) == 3.0
    first, second = Incomparable(3.0), Incomparable(4.0)
    assert float(gc.jit(first)(1.0)) == 4.0 and float(gc.jit(second)(1.0)) == 5.0


def test_errors_of_the_function_are_its_own() -> None:
    with pytest.raises(TypeError, match="contracting dimensions") as caught:
        gc.jit(lambda x: x @ jnp.ones((4, 4)))(jnp.ones(3))
    assert not any("tensors" in note for note in getattr(caught.value, "__notes__", []))

"""`gc.variable`: names, types, initial values, collections; scopes and devices around it."""

import subprocess
import sys

import numpy as np
import pytest

from graphc import Session, zeros
from graphc.build import (
    add_to_collection,
    collection,
    constant,
    control_dependencies,
    device,
    group,
    initial_value,
    name_scope,
    placeholder,
    trainable_variables,
    variable,
)
from graphc.build.initializers import Normal, Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    FetchError,
    GraphcError,
    GraphError,
    GraphFinalizedError,
    ShapeError,
)
from graphc.ir.graph import Graph


@pytest.mark.parametrize(
    ("init", "options", "text"),
    [
        (1.0, {}, "f32[]"),
        (3, {}, "i32[]"),
        (True, {}, "bool[]"),
        ([[1, 2, 3]], {}, "i32[1, 3]"),
        ([0.5, 2.0], {"dtype": "float64"}, "f64[2]"),
        (np.zeros((2, 3)), {}, "f64[2, 3]"),
        (np.zeros((2, 3), np.float16), {"dtype": "f32"}, "f32[2, 3]"),
        (1.0, {"shape": (4, 2)}, "f32[4, 2]"),
        (Zeros(), {"shape": 5}, "f32[5]"),
        (Zeros(), {"shape": (), "dtype": "int64"}, "i64[]"),
        (lambda rng, shape, dtype: np.ones(shape, dtype), {"shape": [2]}, "f32[2]"),
    ],
)
def test_type_and_initial_value(init: object, options: dict, text: str) -> None:
    with Graph() as graph:
        v = variable(init, name="v", **options)
    assert str(v.type) == text
    assert graph.variable("v") is v
    value = initial_value(v, seed=0)
    assert (value.shape, value.dtype) == (v.shape, v.dtype)
    assert value.flags.writeable


def test_an_array_is_copied() -> None:
    array = np.ones(3, np.float32)
    with Graph():
        v = variable(array)
    array[:] = 7
    initial_value(v, 0)[:] = 8
    assert initial_value(v, 0).tolist() == [1, 1, 1]


def test_an_array_that_nobody_can_write_to_is_shared() -> None:
    """The memory of `bytes` cannot change, so that weights of imported models exist once."""
    constant = np.frombuffer(np.arange(6.0, dtype=np.float32).tobytes(), np.float32).reshape(2, 3)
    with Graph():
        shared = variable(constant)
    assert isinstance(shared.initial, np.ndarray) and np.shares_memory(shared.initial, constant)


def test_a_read_only_array_is_copied() -> None:
    """Other arrays may share its memory, and it can be made writable again."""
    owner, base = np.zeros(6, np.float32), np.zeros(6, np.float32)
    writable, view = owner[:], base[:]
    owner.flags.writeable = view.flags.writeable = False
    with Graph():
        first, second = variable(owner), variable(view)
    writable[0] = base[0] = 5
    assert initial_value(first, 0)[0] == initial_value(second, 0)[0] == 0


def test_names_scopes_and_devices() -> None:
    with Graph() as graph:
        a = variable(0.0, name="w")
        b = variable(0.0, name="w")
        with name_scope("enc"), device("/gpu:1"):
            c = variable(0.0, name="w")
        with name_scope("enc"):
            d = variable(0.0, name="sub/w")
            e = variable(0.0)
    assert [v.name for v in (a, b, c, d, e)] == ["w", "w_1", "enc/w", "enc/sub/w", "enc/variable"]
    assert list(graph.variables) == [v.name for v in (a, b, c, d, e)]
    assert (a.device, c.device) == ("", "/device:GPU:1")
    assert str(a.source).startswith("test_variables.py:")


def test_a_name_is_one_of_the_whole_graph_nodes_too() -> None:
    with Graph():
        placeholder((), name="x")
        assert variable(0.0, name="x").name == "x_1"


def test_trainable_and_collections() -> None:
    with Graph() as graph:
        w = variable(0.0, name="w", collections=["losses", "mine"])
        variable(0.0, name="frozen", trainable=False)
        variable(0, name="step")  # integers are never trainable
        variable(False, name="flag")
        with name_scope("enc"):
            k = variable(1j, name="k", collections=["mine"])
        variable(0.0, name="encoder")
        assert [v.name for v in trainable_variables()] == ["w", "enc/k", "encoder"]
        assert trainable_variables("enc") == trainable_variables("enc/") == [k]
        assert collection("mine") == graph.collection("mine") == [w, k]
        assert collection("mine", scope="enc") == [k]
        assert collection("losses") == [w]
        assert collection("nothing") == []
        loss = constant(1.0)
        add_to_collection("losses", loss)
        assert graph.collection("losses") == [w, loss]


def test_a_tensor_as_the_initial_value() -> None:
    with Graph():
        w = variable(Normal(), shape=(3,), name="w")
        doubled = variable(w.read() + w.read(), name="doubled")
        shadow = variable(w, name="shadow", dtype="float64")
    assert str(doubled.type) == "f32[3]"
    assert doubled.initial.name == "Add:0"
    assert str(shadow.type) == "f64[3]"
    with pytest.raises(GraphError, match=r"'doubled': its initial value is a tensor, Add:0"):
        initial_value(doubled, 0)


def test_in_a_body_it_belongs_to_the_whole_graph() -> None:
    with Graph() as graph, name_scope("loop"), Graph(parent=graph):
        w = variable(Zeros(), shape=(2,), name="w")
    assert w.graph is graph
    assert graph.variable("loop/w") is w
    assert len(graph) == 0


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: variable(Zeros()), ShapeError, r"(?s)'variable': an initializer needs a shape"),
        (lambda: variable(Zeros, shape=(2,)), AttributeValueError, r"(?s)a class.*Zeros\(...\)"),
        (
            lambda: variable(Zeros(), shape=(None, 2), name="w"),
            ShapeError,
            r"variable 'w': every size must be known, got \(None, 2\)",
        ),
        (lambda: variable(Zeros(), shape=("n",)), ShapeError, r"must be known, got \(n\)"),
        (lambda: variable(Zeros(), shape=(-1,)), ShapeError, r"-1 is not a size"),
        (
            lambda: variable(np.ones((2, 3)), shape=(3, 2)),
            ShapeError,
            r"initial value has the shape \(2, 3\), not \(3, 2\)",
        ),
        (lambda: variable("text"), AttributeValueError, "unknown initializer 'text'"),
        (lambda: variable(2**40), DTypeError, r"(?s)is out of range for int32.*wider"),
        (lambda: variable([1, 2**40]), DTypeError, r"out of range for int32"),
        (lambda: variable([1, -1], dtype="uint8"), DTypeError, r"out of range for uint8"),
        (lambda: variable(0).assign(1.5), DTypeError, r"'variable' is i32\[\], the value f32\[\]"),
        (lambda: variable(0) - 2**40, DTypeError, r"out of range for int32"),
        (lambda: variable(0.0, name="a:0"), AttributeValueError, r"'a:0' is not a name"),
        (lambda: variable(0.0, name="/a"), AttributeValueError, r"'/a' is not a name"),
        (lambda: variable(0.0, name="a\0b"), AttributeValueError, r"'a\\x00b' is not a name"),
        (lambda: variable(0.0, name="\ud800"), AttributeValueError, r"'\\ud800' is not a name"),
        (
            lambda: variable(placeholder((2,), name="x") + 1.0),
            GraphError,
            r"(?s)its initial value depends on Placeholder 'x'.*assign it",
        ),
        (
            lambda: variable(variable(1.0, name="v").assign(2.0)),
            GraphError,
            r"depends on Assign",
        ),
        (lambda: variable(placeholder((None,))), ShapeError, r"every size .* must be known"),
        (lambda: trainable_variables(3), AttributeValueError, r"3 is not a name scope"),
    ],
)
def test_bad_input_names_the_users_line(call, error: type[GraphcError], match: str) -> None:
    with Graph(), pytest.raises(error, match=match) as info:
        call()
    assert "test_variables.py:" in str(info.value)


def test_no_graph_another_graph_and_a_finalized_one() -> None:
    with pytest.raises(GraphError, match="no graph is being built"):
        variable(0.0)
    with Graph() as graph:
        t = constant(1.0)
    with Graph(), pytest.raises(GraphError, match="belongs to another graph"):
        variable(t)
    graph.finalize()
    with graph, pytest.raises(GraphFinalizedError, match=r"(?s)variable 'w'.*graph.extend"):
        variable(0.0, name="w")
    assert not graph.variables
    with graph.extend():
        assert variable(0.0, name="w").name == "w"


# -- initial values ---------------------------------------------------------------------------


def test_initial_values_depend_on_seed_and_name_only() -> None:
    def values(names: list[str], seed: int = 0) -> dict[str, np.ndarray]:
        with Graph(seed=seed) as graph:
            for name in names:
                variable(GlorotUniform(), shape=(4, 5), name=name)
        return {n: initial_value(v, graph.seed) for n, v in graph.variables.items()}

    alone, among = values(["b"]), values(["a", "b", "c"])
    assert np.array_equal(alone["b"], among["b"])
    assert not np.array_equal(among["a"], among["b"])
    assert not np.array_equal(alone["b"], values(["b"], seed=1)["b"])


@pytest.mark.slow
def test_initial_values_are_the_same_in_another_process() -> None:
    script = (
        "from graphc.build import variable, initial_value\n"
        "from graphc.build.initializers import Normal\n"
        "from graphc.ir.graph import Graph\n"
        "with Graph(): print(initial_value(variable(Normal(), shape=(3,), name='w'), 5).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    with Graph():
        here = initial_value(variable(Normal(), shape=(3,), name="w"), 5).tolist()
    assert out.stdout.strip() == str(here)


@pytest.mark.parametrize(
    ("function", "dtype", "error", "match"),
    [
        (lambda r, s, d: np.ones((2, 3)), "float32", ShapeError, r"returned the shape \(2, 3\)"),
        (lambda r, s, d: 1.0, "float32", ShapeError, r"returned the shape \(\), not \(3, 2\)"),
        (lambda r, s, d: np.ones(s), "int32", DTypeError, r"returned float64, not int32"),
        (lambda r, s, d: np.full(s, "a"), "float32", DTypeError, r"not float32"),
        (lambda r, s, d: Normal()(r, s, d), "int32", DTypeError, r"Normal creates floating values"),
    ],
)
def test_what_an_initializer_returns_is_checked(function, dtype, error, match: str) -> None:
    with Graph():
        v = variable(function, shape=(3, 2), dtype=dtype, name="w")
    with pytest.raises(error, match=match) as info:
        initial_value(v, 0)
    assert str(v.source) in str(info.value)


def test_an_initializer_may_return_another_width() -> None:
    with Graph():
        v = variable(lambda rng, shape, dtype: rng.random(shape), shape=(3,), dtype="bfloat16")
    assert initial_value(v, 0).dtype == v.dtype


def test_an_error_inside_an_initializer_tells_of_the_variable() -> None:
    def broken(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        raise ZeroDivisionError("no")

    with Graph():
        v = variable(broken, shape=(3,), name="w")
    with pytest.raises(ZeroDivisionError) as info:
        initial_value(v, 0)
    assert info.value.__notes__ == [
        f"while computing the initial value of variable 'w', defined at {v.source}"
    ]


# -- control dependencies ---------------------------------------------------------------------


def test_control_dependencies_nest_and_take_nests() -> None:
    with Graph():
        v = variable(0.0, name="v")
        a, b = v.assign(1.0), v.assign(2.0)
        both = group(a, b, name="both")
        with control_dependencies([a]), control_dependencies([[b, both]]):
            c = constant(1.0)
        d = constant(1.0)
    assert c.node.control_inputs == ("Assign", "Assign_1", "both")
    assert d.node.control_inputs == ()
    assert both.control_inputs == ("Assign", "Assign_1")
    with (
        pytest.raises(FetchError, match=r"(?s)3 is neither a tensor nor a node"),
        control_dependencies([3]),
    ):
        pass


def test_an_initial_value_has_no_part_in_the_order_of_a_run() -> None:
    with Graph() as graph:
        x = placeholder((), name="x")
        v = variable(1.0, name="v")
        with control_dependencies([v.assign(x)]):
            variable(v, name="copy")
            variable(v * 2 + constant(1.0), name="more")
            variable(zeros((2,)), name="zeros")
    values = Session(graph).values()
    assert (values["v"], values["copy"], values["more"]) == (1.0, 1.0, 3.0)
    assert np.array_equal(values["zeros"], [0, 0])

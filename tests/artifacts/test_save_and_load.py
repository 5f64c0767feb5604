"""`gc.save` and `gc.load`: values, sizes, states, platforms."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import (
    ArtifactError,
    AttributeValueError,
    FeedError,
    FetchError,
    StateError,
    UnknownNameError,
)
from tests.artifacts.models import batch, classifier, linear
from tests.near import assert_near

STEPS = [(8, 0), (8, 1), (5, 2), (1, 3), (8, 4)]  # (batch size, number): sizes change and return


def saved(tmp_path: Path, graph: gc.Graph, signatures: dict, **options) -> gc.artifacts.Model:
    gc.save(gc.Session(graph), tmp_path / "model.gcx", signatures=signatures, **options)
    return gc.load(tmp_path / "model.gcx")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[gc.Session, Path]:
    """A session after three steps, and its artifact."""
    graph, signatures = classifier()
    session = gc.Session(graph)
    for step in range(3):
        session.run("train", batch(8, step))
    path = tmp_path_factory.mktemp("trained") / "model.gcx"
    gc.save(session, path, signatures=signatures)
    return session, path


# -- values ---------------------------------------------------------------------------------


def test_predictions_are_the_sessions_for_any_batch(trained) -> None:
    session, path = trained
    predict = gc.load(path).signatures["predict"]
    for size in (1, 7, 64):
        x = batch(size)["x"]
        np.testing.assert_array_equal(predict(x=x)["logits"], session.run("logits", {"x": x}))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_training_goes_on_from_the_file(tmp_path: Path, dtype: str) -> None:
    """The results equal the session's up to rounding: there, small variables share buffers.

    The gradient of the bias before the batch norm is only rounding, from which adam makes whole
    steps. Variables are therefore compared only in double precision.
    """
    close = {"rtol": {"float64": 1e-12, "float32": 1e-3, "bfloat16": 2e-2}[dtype], "atol": 1e-9}
    graph, signatures = classifier(dtype=dtype)
    session = gc.Session(graph)
    for step in range(2):
        session.run("train", batch(8, step, dtype))
    gc.save(session, tmp_path / "model.gcx", signatures=signatures)
    model = gc.load(tmp_path / "model.gcx")
    state = model.state()
    for size, step in STEPS if dtype == "float32" else STEPS[:2]:
        feeds = batch(size, step, dtype)
        outputs, state = model.signatures["train"](state, **feeds)
        expected = session.run(["loss:0", "train"], feeds)[0]
        assert_near(*as_doubles(outputs["loss"], expected), **close)
    assert set(state) == set(session.values())
    assert any(name.startswith("hidden/kernel/train/") for name in state)  # adam's slots
    for name, value in session.values().items():
        assert state[name].dtype == value.dtype
        if dtype == "float64":
            assert_near(*as_doubles(state[name], value), **close, err_msg=name)


def as_doubles(*values: Any) -> list[np.ndarray]:
    return [np.asarray(value).astype(np.float64) for value in values]


def test_a_saved_session_is_as_it_was(tmp_path: Path) -> None:
    graph, signatures = classifier()
    session, other = gc.Session(graph), gc.Session(graph)
    gc.save(session, tmp_path / "model.gcx", signatures=signatures)
    for step in range(3):
        feeds = batch(8, step)
        assert (
            session.run(["loss:0", "train"], feeds)[0] == other.run(["loss:0", "train"], feeds)[0]
        )


def test_a_replicated_session_is_saved_for_one_device(tmp_path: Path) -> None:
    graph, signatures = classifier()
    session = gc.Session(graph, strategy=gc.devices.DataParallel(4))
    for step in range(2):
        session.run("train", batch(8, step))
    gc.save(session, tmp_path / "model.gcx", signatures=signatures)
    model = gc.load(tmp_path / "model.gcx")
    state = model.state()
    for name, value in session.values().items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    x = batch(8)["x"]
    here, there = session.run("logits", {"x": x}), model.signatures["predict"](x=x)["logits"]
    assert_near(there, here, rtol=1e-5, atol=1e-6)
    assert there.sharding.device_set == {jax.devices()[0]}


def test_every_dtype_of_weights_comes_back(tmp_path: Path) -> None:
    values = {
        "b": np.array([True, False]),
        "i64": np.array([2**40, -1]),
        "u8": np.array([[3]], np.uint8),
        "f64": np.array(np.pi),
        "bf16": np.array([1.5, np.inf, np.nan], ml_dtypes.bfloat16),
        "f8": np.array([0.5, 448], ml_dtypes.float8_e4m3fn),
        "i4": np.array([-8, 7], ml_dtypes.int4),
        "c128": np.array([1j]),
        "none": np.zeros((0, 3), np.float32),
    }
    graph = gc.Graph()
    with graph:
        variables = {n: gc.variable(v, name=n, trainable=False) for n, v in values.items()}
    model = saved(tmp_path, graph, {"all": gc.Signature({}, variables)})
    results = model.signatures["all"]()
    for name, value in values.items():
        assert results[name].dtype == value.dtype
        assert np.asarray(results[name]).tobytes() == value.tobytes()


def test_only_what_the_signatures_use_is_saved(trained, tmp_path: Path) -> None:
    graph, signatures = classifier()
    model = saved(tmp_path, graph, {"predict": signatures["predict"]})
    names = ["hidden/kernel", "hidden/bias", "out/kernel", "out/bias"]
    assert set(model.variables) == {
        *names,
        *(f"norm/{n}" for n in ("scale", "offset", "mean", "variance")),
    }
    assert len(gc.load(trained[1]).variables) > 2 * len(model.variables)


# -- sizes ----------------------------------------------------------------------------------


def test_two_open_sizes(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        w = gc.variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
        y = gc.reduce_sum(gc.matmul(x, w), axis=1)
        flat = gc.reshape(x, (x.shape[0] * x.shape[1], 3))
    model = saved(tmp_path, graph, {"f": gc.Signature({"x": x}, {"y": y, "flat": flat})})
    f = model.signatures["f"]
    assert str(f.inputs["x"]) == "f32[batch, time, 3]"
    assert str(f.outputs["flat"]) == "f32[batch*time, 3]"
    for shape in [(2, 5, 3), (4, 1, 3), (1, 1, 3)]:
        value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        results = f(x=value)
        expected = (value @ np.arange(6, dtype=np.float32).reshape(3, 2)).sum(axis=1)
        assert_near(results["y"], expected, rtol=1e-5)
        np.testing.assert_array_equal(results["flat"], value.reshape(-1, 3))
    with pytest.raises(FeedError, match="size 'time' is 0"):
        f(x=np.zeros((2, 0, 3), np.float32))


def test_sizes_can_be_fixed(tmp_path: Path) -> None:
    graph, signatures = linear()
    fixed = gc.Signature(
        signatures["predict"].inputs, signatures["predict"].outputs, sizes={"batch": 4}
    )
    predict = saved(tmp_path, graph, {"predict": fixed}).signatures["predict"]
    assert str(predict.inputs["x"]) == "f32[4, 2]"
    assert predict(x=np.ones((4, 2), np.float32))["y"].shape == (4, 1)
    with pytest.raises(FeedError, match="expected size 4 on axis 0, got 3"):
        predict(x=np.ones((3, 2), np.float32))


def test_a_size_that_goes_by_another_name_can_be_fixed(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        a = gc.placeholder(("rows",), name="a")
        b = gc.placeholder(("lines",), name="b")
        c = a + b  # from here on, both sizes must be equal
        d = c * 2.0
    for sizes in ({"rows": 3}, {"lines": 3}, {"rows": 3, "lines": 3}):
        f = saved(tmp_path, graph, {"f": gc.Signature({"a": a, "b": b}, {"d": d}, sizes=sizes)})
        assert str(f.signatures["f"].inputs["b"]) == "f32[3]"
    with pytest.raises(FeedError, match="lines is 3 in the graph, not 4"):
        sizes = {"rows": 3, "lines": 4}
        saved(tmp_path, graph, {"f": gc.Signature({"a": a, "b": b}, {"d": d}, sizes=sizes)})
    with pytest.raises(UnknownNameError, match="did you mean 'rows'"):
        saved(tmp_path, graph, {"f": gc.Signature({"a": a, "b": b}, {"d": d}, sizes={"row": 3})})


def test_loops_over_an_open_size(tmp_path: Path) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        states = gc.nn.GRU(4)(x)
        ahead = gc.map_fn(lambda rows: gc.cumsum(rows, 0), x)
        steps = gc.transpose(x, (1, 0, 2))
        total, back = gc.scan(
            lambda c, r: (c + gc.reduce_sum(r), (gc.reduce_max(r) + c, r)), 0.0, steps, reverse=True
        )
        earlier = gc.nn.GRU(4)(x[:, :-1])  # JAX cannot tell that this has any steps
        outputs = {"states": states, "ahead": ahead, "total": total, "back": back[0]}
        outputs["earlier"] = earlier
        loss = gc.reduce_mean(gc.square(states))
        train = gc.minimize(loss, optax.adam(0.1))
    predict = gc.Signature({"x": x}, outputs)
    training = gc.Signature({"x": x}, {"loss": loss}, updates=[train])
    model = saved(tmp_path, graph, {"predict": predict, "train": training})
    state, session = model.state(), gc.Session(graph)
    for shape in ((2, 5, 3), (1, 1, 3), (3, 9, 3)):
        value = np.random.default_rng(0).normal(size=shape).astype("float32")
        found = model.signatures["predict"](state, x=value)
        for name, want in session.run(outputs, {x: value}).items():
            assert found[name].shape == want.shape
            assert_near(found[name], want, rtol=1e-5, atol=1e-6)
        got, state = model.signatures["train"](state, x=value)
        assert_near(got["loss"], session.run([loss, train], {x: value})[0], rtol=1e-5)


def test_what_needs_sizes_fixed_says_so(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        a = gc.placeholder(("rows", 2), name="a")
        b = gc.placeholder(("half", 4), name="b")
        c = gc.reshape(a, (a.shape[0] * 2,)) + gc.reshape(b, (b.shape[0] * 4,))
    inputs, outputs = {"a": a, "b": b}, {"c": c}
    with pytest.raises(ArtifactError, match=r"needs .* which an open size cannot guarantee"):
        saved(tmp_path, graph, {"f": gc.Signature(inputs, outputs)})
    assert not list(tmp_path.iterdir())
    model = saved(
        tmp_path, graph, {"f": gc.Signature(inputs, outputs, sizes={"rows": 4, "half": 2})}
    )
    ones = {"a": np.ones((4, 2), np.float32), "b": np.ones((2, 4), np.float32)}
    np.testing.assert_array_equal(model.signatures["f"](**ones)["c"], np.full(8, 2.0))


# -- inputs, outputs, states ----------------------------------------------------------------


def test_inputs_are_checked(trained) -> None:
    predict = gc.load(trained[1]).signatures["predict"]
    x = batch(4)["x"]
    for inputs, text in [
        ({}, r"input 'x' is missing\n.*\n  hint: inputs: x: f32\[batch, 6\]"),
        ({"X": x}, r"no input 'X'"),
        ({"x": x, "y": x}, "no input 'y'"),
        ({"x": x[:, :5]}, "expected size 6 on axis 1, got 5"),
        ({"x": x[0]}, "expected rank 2, got rank 1"),
        ({"x": x.astype(np.int32)}, "must be float32, got int32"),
        ({"x": "text"}, "is not an array of float32"),
        ({"x": x[:0]}, "size 'batch' is 0; open sizes of an artifact start at 1"),
    ]:
        with pytest.raises(FeedError, match=text):
            predict(**inputs)
    np.testing.assert_array_equal(predict(x=x.tolist())["logits"], predict(x=x)["logits"])
    np.testing.assert_array_equal(  # cast within a kind
        predict(x=x.astype(np.float64))["logits"], predict(x=jax.numpy.asarray(x))["logits"]
    )


def test_names_that_are_not_there_suggest_the_nearest(trained) -> None:
    model = gc.load(trained[1])
    with pytest.raises(UnknownNameError, match="did you mean 'predict'"):
        model.signatures["predcit"]
    with pytest.raises(UnknownNameError, match="no variable 'out/kernal'"):
        model.state()["out/kernal"]
    assert "train" in model.signatures and set(model.signatures) == {"predict", "train"}
    assert "predict" in repr(model) and "f32[batch, 6]" in repr(model.signatures["predict"])


def test_a_state_is_consumed_once(trained) -> None:
    model = gc.load(trained[1])
    train, predict = model.signatures["train"], model.signatures["predict"]
    assert train.updates_state and not predict.updates_state
    feeds = batch(8)
    with pytest.raises(StateError, match="its first argument must be a state"):
        train(**feeds)
    with pytest.raises(StateError, match="must be a state, got ndarray"):
        predict(feeds["x"])
    state = model.state()
    with pytest.raises(FeedError):
        train(state, x=feeds["x"])
    _, after = train(state, **feeds)  # the failed call did not consume the state
    with pytest.raises(StateError, match="consumed by the entry point 'train'"):
        train(state, **feeds)
    with pytest.raises(StateError, match="consumed"):
        predict(state, x=feeds["x"])
    before, now = predict(x=feeds["x"])["logits"], predict(after, x=feeds["x"])["logits"]
    assert not np.array_equal(before, now)
    np.testing.assert_array_equal(before, predict(model.state(), x=feeds["x"])["logits"])


def test_a_state_of_another_model_is_refused(trained, tmp_path: Path) -> None:
    other = saved(tmp_path, *linear())
    with pytest.raises(StateError, match="this state has other variables"):
        gc.load(trained[1]).signatures["predict"](other.state(), x=batch(2)["x"])
    same = gc.load(trained[1])  # another load of the same file works too
    gc.load(trained[1]).signatures["predict"](same.state(), x=batch(2)["x"])


def test_a_fed_buffer_may_be_reused(trained) -> None:
    predict = gc.load(trained[1]).signatures["predict"]
    x = batch(64)["x"]
    expected = np.array(predict(x=x)["logits"])
    for _ in range(20):
        result = predict(x=x)["logits"]
        x[:] = 0
        np.testing.assert_array_equal(result, expected)
        x[:] = batch(64)["x"]


def test_signatures_without_variables_inputs_or_outputs(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        w = gc.variable(np.float32(1.0), name="w")
        signatures = {
            "pure": gc.Signature({"x": x}, {"y": x * 2.0}),
            "fixed": gc.Signature({}, {"c": gc.constant(3.0)}),
            "bump": gc.Signature({}, {}, updates=[w.assign_add(1.0)]),
            "same": gc.Signature({"x": x}, {"a": x, "b": x, "w": w}),
        }
    device = jax.devices()[1]
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures)
    model = gc.load(tmp_path / "m.gcx", device=device)
    found = model.signatures
    ones = np.ones(2, np.float32)
    assert found["pure"](x=ones)["y"].devices() == {device}
    assert found["fixed"]()["c"] == 3.0
    outputs, state = found["bump"](model.state())
    outputs, state = found["bump"](state)
    assert outputs == {} and state["w"] == 3.0
    same = found["same"](state, x=ones)
    assert same["w"] == 3.0 and same["a"].shape == same["b"].shape == (2,)
    found["bump"](state)  # donates the state's buffer
    assert same["w"] == 3.0


def test_a_random_stream_is_state(tmp_path: Path) -> None:
    graph = gc.Graph(seed=5)
    with graph:
        noise = gc.random.normal((3,))
    session = gc.Session(graph)
    session.run(noise)
    gc.save(session, tmp_path / "m.gcx", signatures={"draw": gc.Signature({}, {"noise": noise})})
    model = gc.load(tmp_path / "m.gcx")
    state = model.state()
    assert len(state) == 0  # hidden variables stay hidden
    for _ in range(3):
        outputs, state = model.signatures["draw"](state)
        np.testing.assert_array_equal(outputs["noise"], session.run(noise))


# -- platforms ------------------------------------------------------------------------------


def test_platforms_need_not_be_here(tmp_path: Path) -> None:
    graph, signatures = classifier()
    model = saved(tmp_path, graph, signatures, platforms=["cpu", "cuda", "tpu", "cpu"])
    assert model.platforms == ("cpu", "cuda", "tpu")
    model.signatures["predict"](x=batch(2)["x"])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the device must not be CUDA's")
def test_on_other_platforms_the_graph_is_lowered_anew(tmp_path: Path) -> None:
    predict = saved(tmp_path, *linear(), platforms=["cuda"]).signatures["predict"]
    assert predict(x=np.ones((2, 2), np.float32))["y"].tolist() == [[3.0], [3.0]]
    assert predict.way == "graph"
    assert predict.notes == ["stablehlo: saved for cuda; this device is cpu"]


# -- models that cannot be saved ------------------------------------------------------------


def test_mistakes_are_named(tmp_path: Path) -> None:
    graph, signatures = linear()
    session = gc.Session(graph)
    predict = signatures["predict"]
    (x,), (y,) = predict.inputs.values(), predict.outputs.values()
    other, _ = linear()
    path = tmp_path / "m.gcx"
    for arguments, error, text in [
        ({"signatures": {}}, AttributeValueError, "name at least one entry point"),
        ({"signatures": [predict]}, AttributeValueError, "name at least one entry point"),
        ({"signatures": {"a b": predict}}, AttributeValueError, "map names to gc.Signature"),
        ({"signatures": {"f": y}}, AttributeValueError, "map names to gc.Signature"),
        ({"signatures": {"f": predict}, "platforms": "cpu"}, AttributeValueError, "list of names"),
        ({"signatures": {"f": predict}, "platforms": []}, AttributeValueError, "list of names"),
        (
            {"signatures": {"f": predict}, "platforms": ["gpu"]},
            AttributeValueError,
            "'gpu' is not a platform",
        ),
        ({"signatures": {"f": gc.Signature({}, {"y": y})}}, FeedError, "needed and not fed"),
        ({"signatures": {"f": gc.Signature({"a": x, "b": x}, {"y": y})}}, FeedError, "same tensor"),
        ({"signatures": {"f": gc.Signature({"x": "z"}, {"y": y})}}, UnknownNameError, "'z'"),
        (
            {"signatures": {"f": gc.Signature({"x": x}, {"y": "MatMull"})}},
            UnknownNameError,
            "MatMul",
        ),
        (
            {"signatures": {"f": gc.Signature({"x": other.tensor("x")}, {"y": y})}},
            FeedError,
            "is not of graph",
        ),
    ]:
        with pytest.raises(error, match=text):
            gc.save(session, path, **arguments)
    with pytest.raises(AttributeValueError, match="must be a session, got Graph"):
        gc.save(graph, path, signatures=signatures)
    with pytest.raises(FetchError, match="'y' is a step without a value"):
        with graph.extend():
            step = gc.group(y, name="step")
        gc.save(session, path, signatures={"f": gc.Signature({"x": x}, {"y": step.name})})
    assert not list(tmp_path.iterdir())
    session.run(y, {"x": np.ones((1, 2), np.float32)})  # the session continues
    session.close()
    with pytest.raises(StateError, match="closed"):
        gc.save(session, path, signatures=signatures)
    assert not list(tmp_path.iterdir())


def test_signatures_teach() -> None:
    for arguments, text in [
        (({"x y": 1}, {"y": "y"}), "inputs must have names that Python can take .*, got 'x y'"),
        (({}, ["y"]), "outputs must map argument names to tensors"),
        (({}, {"y": 3}), "output 'y' must be a tensor or variable, got 3"),
        (({}, {}), "no outputs and no updates"),
        (({}, {}, "train"), r"updates must be a list, got 'train'\n.*\n  hint: updates=\[train\]"),
        (({}, {"y": "y"}, (), {"batch": "4"}), "sizes must map names to ints"),
    ]:
        with pytest.raises(AttributeValueError, match=text):
            gc.Signature(*arguments)


@pytest.mark.parametrize("where", ["", "no/such/folder/m.gcx"])
def test_places_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    with pytest.raises(ArtifactError, match="cannot write"):
        saved_at = tmp_path / where
        graph, signatures = linear()
        gc.save(gc.Session(graph), saved_at, signatures=signatures)
    assert not list(tmp_path.iterdir())


# -- another process, other readers ---------------------------------------------------------


def test_a_process_without_the_models_code(trained, tmp_path: Path) -> None:
    session, path = trained
    x = batch(5)["x"]
    np.save(tmp_path / "x.npy", x)
    script = """
import sys
import numpy as np
import graphc as gc
model = gc.load(sys.argv[1])
np.save(sys.argv[3], model.signatures["predict"](x=np.load(sys.argv[2]))["logits"])
layers = {"graphc.nn", "graphc.optim", "graphc.train", "graphc.jaxpr", "optax"}
assert not layers & set(sys.modules), layers & set(sys.modules)
"""
    arguments = [path, tmp_path / "x.npy", tmp_path / "logits.npy"]
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), session.run("logits", {"x": x}))


def test_the_same_content_gives_the_same_file(trained, tmp_path: Path) -> None:
    graph, signatures = linear()
    for name in ("a", "b"):
        gc.save(gc.Session(graph), tmp_path / name, signatures=signatures)
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert str(Path(__file__).parent).encode() not in content  # no folder of the machine
    assert b"/models.py" not in content and b"models.py:" in content
    assert b"MatMul" in content  # but the names of the nodes


def test_a_loaded_model_serves_threads(trained) -> None:
    predict = gc.load(trained[1]).signatures["predict"]
    expected = {size: np.asarray(predict(x=batch(size)["x"])["logits"]) for size in (2, 3)}
    wrong: list[int] = []

    def ask(size: int) -> None:
        for _ in range(20):
            if not np.array_equal(predict(x=batch(size)["x"])["logits"], expected[size]):
                wrong.append(size)

    threads = [threading.Thread(target=ask, args=(size,)) for size in (2, 3, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

"""`gc.jit` functions in files: they load without their code, with the same pytrees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import ArtifactError, AttributeValueError, FeedError, GraphError, SerialError
from graphc.jitted.arguments import kind_of_leaf
from graphc.jitted.saving import SavedFunction, _checked
from tests.jitted.test_packed import TX, X, assert_trees_near, init, step, train
from tests.near import assert_near


class Metrics(NamedTuple):
    loss: Any


def saved(jitted: Any, path: Path) -> Any:
    jitted.save(path, platforms=["cpu"])
    return gc.load_function(path)


def test_a_training_step(tmp_path: Path) -> None:
    jitted = gc.jit(step, donate_argnums=(0, 1))
    train(jitted, 1)
    loaded = saved(jitted, tmp_path / "step.gcx")
    got, want = train(loaded), train(jax.jit(step))
    assert_trees_near(got, want)
    assert repr(loaded) == "<SavedFunction step(params, opt_state, x)>"
    packed = train(jitted)
    assert_trees_near(loaded(packed[0], packed[1], X), jax.jit(step)(want[0], want[1], X))


def test_keys_weak_types_names_and_static_arguments(tmp_path: Path) -> None:
    def many(key: Any, x: Any, n: int, *, scale: Any, unused: Any) -> Any:
        new, own = jax.random.split(key)
        return {"key": new, "draw": [x * scale + jax.random.normal(own, x.shape) ** n], "two": (2,)}

    jitted = gc.jit(many, static_argnums=2)
    given = jax.random.key(1), X
    want = jitted(*given, 3, scale=2.0, unused=X)
    loaded = saved(jitted, tmp_path / "many.gcx")
    got = loaded(*given, scale=2.0, unused=X)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert kind_of_leaf(a.aval) == kind_of_leaf(b.aval)
    np.testing.assert_array_equal(jax.random.key_data(got["key"]), jax.random.key_data(want["key"]))
    assert_near(np.asarray(got["draw"][0]), np.asarray(want["draw"][0]), 1e-5)
    assert [*loaded.model.signatures["call"].inputs] == ["key", "x", "scale"]


def test_arrays_that_the_function_holds(tmp_path: Path) -> None:
    weights = jnp.asarray(np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64))

    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c @ weights), x)

    jitted = gc.jit(loop)
    x = np.ones((2, 64), np.float32)
    want = jitted(x)
    loaded = saved(jitted, tmp_path / "held.gcx")
    assert_near(np.asarray(loaded(x)), np.asarray(want), 1e-5)
    assert next(iter(loaded.model.variables.values())).shape == (64, 64)


def test_several_devices(tmp_path: Path) -> None:
    jitted = gc.jit(step, donate_argnums=(0, 1), strategy=gc.devices.DataParallel(2))
    train(jitted, 1)
    loaded = saved(jitted, tmp_path / "step.gcx")
    assert loaded.model.signatures["call"].devices == 2
    assert_trees_near(train(loaded), train(jax.jit(step)))


CHILD = """
import sys, numpy as np, jax
import graphc as gc
loaded = gc.load_function(sys.argv[1])
params = {"layers": [{"w": np.ones((2, 2), np.float32)}] * 2}
print(np.asarray(loaded(params, np.ones((1, 2), np.float32))).tolist())
"""


@pytest.mark.slow
def test_a_fresh_process(tmp_path: Path) -> None:
    def predict(params: Any, x: Any) -> Any:
        for layer in params["layers"]:
            x = x @ layer["w"]
        return x

    jitted = gc.jit(predict)
    jitted({"layers": [{"w": np.ones((2, 2), np.float32)}] * 2}, np.ones((1, 2), np.float32))
    jitted.save(tmp_path / "predict.gcx")
    child = subprocess.run(
        [sys.executable, "-c", CHILD, tmp_path / "predict.gcx"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(child.stdout) == [[4.0, 4.0]]


def test_mistakes(tmp_path: Path) -> None:
    jitted = gc.jit(lambda params, x: {"y": params["w"] * x})
    with pytest.raises(GraphError, match=r"has no compiled program: it was not called yet"):
        jitted.save(tmp_path / "f.gcx")
    jitted({"w": X}, X)
    loaded = saved(jitted, tmp_path / "f.gcx")
    with pytest.raises(AttributeValueError, match="argument 'params' has another structure"):
        loaded({"v": X}, X)
    with pytest.raises(AttributeValueError, match="the saved function takes params, x"):
        loaded({"w": X})
    with pytest.raises(AttributeValueError, match="the saved function takes params, x"):
        loaded({"w": X}, x=X)
    with pytest.raises(FeedError, match="'params_w' must be f32"):
        loaded({"w": X.T}, X)
    with pytest.raises(ArtifactError, match="cannot write"):
        jitted.save(tmp_path / "absent" / "f.gcx")
    custom = gc.jit(lambda x: Metrics(x))
    custom(X)
    with pytest.raises(ArtifactError, match="the result holds a Metrics, which no file can hold"):
        custom.save(tmp_path / "g.gcx")
    assert not (tmp_path / "g.gcx").exists()
    mesh = gc.jit(lambda x: x, strategy=gc.devices.Mesh({"data": 2}))
    mesh(X)
    with pytest.raises(AttributeValueError, match="a function under Mesh cannot be saved"):
        mesh.save(tmp_path / "h.gcx")


def test_a_file_of_gc_save_is_no_function(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2,), name="x")
        twice = gc.Signature({"x": x}, {"y": x * 2})
    path = tmp_path / "m.gcx"
    gc.save(gc.Session(graph), path, signatures={"twice": twice}, platforms=["cpu"])
    with pytest.raises(ArtifactError, match=r"holds twice, and no function of gc\.jit"):
        gc.load_function(path)


def test_a_function_that_gc_load_opened_is_no_function(tmp_path: Path) -> None:
    f = gc.jit(lambda x: x + 1)
    f(jnp.ones(2))
    f.save(tmp_path / "f.gcx", platforms=["cpu"])
    with pytest.raises(gc.errors.ArgumentError, match=r"gc\.load_function\(path\) gives"):
        gc.load(tmp_path / "f.gcx")(jnp.ones(2))


def test_an_optimizer_state_comes_back_in_its_classes(tmp_path: Path) -> None:
    jitted = gc.jit(step)
    params = init(2)
    jitted(params, TX.init(params), X)
    loaded = saved(jitted, tmp_path / "step.gcx")
    _, opt_state, _ = loaded(params, TX.init(params), X)
    assert type(opt_state[0]) is type(TX.init(params)[0])


def test_forged_descriptions_are_refused(tmp_path: Path) -> None:
    jitted = gc.jit(lambda s, key: ({"a": s["a"] + 1, "s": s}, key, 2.0))
    given = {"a": X, "t": (X, None)}, jax.random.key(0)
    jitted(*given)
    model = saved(jitted, tmp_path / "f.gcx").model
    call = json.loads(json.dumps({**model.manifest.call}))
    deep: Any = "*"
    for _ in range(3000):
        deep = [["builtins.list", None, [deep]]]
    kinds, names = call["kinds"], call["names"]
    changes: list[tuple[str, Any]] = [
        ("kinds", ["key", *kinds[1:]]),
        ("kinds", [{}, *kinds[1:]]),
        ("labels", [0, None]),
        ("names", [1, 2]),
        ("names", names[:1]),
        ("arguments", [call["arguments"][0], deep]),
        ("arguments", ["*", "*"]),
        ("arguments", [3, "*"]),
        ("inputs", [*call["inputs"], None]),
        ("inputs", None),
        ("result", deep),
        ("result", "*"),
        ("result", {"like": [0]}),
        ("result", {"like": [7, 7]}),
        ("result", {"dict": [["a", "*"], ["a", "*"]]}),
        ("result", {"dict": [[[], "*"]]}),
        ("result", {"__import__": ["os"]}),
        ("result", None),
    ]
    for name, value in changes:
        forged = {**call, name: value}
        with pytest.raises((ArtifactError, AttributeValueError, SerialError)):
            SavedFunction(model, _checked(forged, model))(*given)
    for name in call:
        rest = {key: value for key, value in call.items() if key != name}
        with pytest.raises(ArtifactError, match="does not fit its signature"):
            _checked(rest, model)


def test_keys_are_of_the_generator_that_they_were_saved_with(tmp_path: Path) -> None:
    jitted = gc.jit(jax.random.split)
    want = jitted(jax.random.key(3))
    with jax.default_prng_impl("rbg"):
        got = saved(jitted, tmp_path / "f.gcx")(jax.random.key(3, impl="threefry2x32"))
    np.testing.assert_array_equal(jax.random.key_data(got), jax.random.key_data(want))

"""Weights are read and checked when they are needed, and put on the device once."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, StateError
from tests.artifacts.models import batch, classifier
from tests.near import assert_near

LARGE = 1 << 22  # bytes of each large weight


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Two large weights that different signatures use, and a small one that both use."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((), name="x")
        scale = gc.variable(np.float32(2.0), name="scale")
        left = gc.variable(np.ones(LARGE // 4, np.float32), name="left")
        right = gc.variable(np.full(LARGE // 4, 3, np.float32), name="right")
        signatures = {
            "left": gc.Signature({"x": x}, {"y": x * scale * gc.reduce_max(left)}),
            "right": gc.Signature({"x": x}, {"y": x * scale * gc.reduce_max(right)}),
            "grow": gc.Signature({}, {"y": scale}, updates=[left.assign_add(gc.ones_like(left))]),
        }
    path = tmp_path_factory.mktemp("large") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


def call(model: gc.artifacts.Model, name: str) -> float:
    return float(model.signatures[name](x=np.float32(1.0))["y"])


def test_loading_reads_next_to_nothing(large: Path) -> None:
    """Counted in bytes read from the file, so that the result does not depend on the machine."""
    assert large.stat().st_size > 2 * LARGE
    model = gc.load(large)
    assert model.bytes_read < 20_000
    state = model.state()
    assert model.bytes_read < 20_000
    assert call(model, "left") == 2.0
    after_left = model.bytes_read
    assert LARGE < after_left < LARGE + 50_000
    call(model, "left")
    assert model.signatures["left"](state, x=np.float32(1.0))["y"] == 2.0
    assert model.bytes_read == after_left
    assert call(model, "right") == 6.0
    assert 2 * LARGE < model.bytes_read < 2 * LARGE + 50_000


def test_signatures_and_states_share_one_copy(large: Path) -> None:
    model = gc.load(large)
    states = [model.state() for _ in range(3)]
    pointers = {state["scale"].unsafe_buffer_pointer() for state in states}
    call(model, "left"), call(model, "right")
    pointers.add(model.state()["scale"].unsafe_buffer_pointer())
    assert len(pointers) == 1
    before = len(jax.live_arrays())
    for state in states:
        model.signatures["left"](state, x=np.float32(1.0))
    assert len(jax.live_arrays()) == before


def test_what_is_assigned_is_the_states_own(large: Path) -> None:
    model = gc.load(large)
    first, second = model.state(), model.state()
    kept = first["left"]
    _, first = model.signatures["grow"](first)
    _, first = model.signatures["grow"](first)
    assert float(first["left"][0]) == 3.0 and float(second["left"][0]) == 1.0
    assert not kept.is_deleted() and float(model.state()["left"][0]) == 1.0
    assert call(model, "left") == 2.0
    assert float(model.signatures["left"](first, x=np.float32(1.0))["y"]) == 6.0


def damaged(source: Path, target: Path, variable: str) -> Path:
    """A copy in which one byte of a weight was changed."""
    manifest, members = container.read(source)
    row = next(row for row in manifest["variables"] if row["name"] == variable)
    start = members._places["weights.safetensors"].start + row["offset"]
    data = bytearray(source.read_bytes())
    data[start + 5] ^= 1
    target.write_bytes(data)
    return target


def test_an_altered_weight_matters_when_it_is_used(large: Path, tmp_path: Path) -> None:
    model = gc.load(damaged(large, tmp_path / "model.gcx", "right"))
    assert call(model, "left") == 2.0
    state = model.state()
    for use in (
        lambda: call(model, "right"),
        lambda: state["right"],
        lambda: model.signatures["right"](state, x=np.float32(1.0)),
    ):
        with pytest.raises(ArtifactCorruptError, match="the value of 'right' was altered"):
            use()
    _, state = model.signatures["grow"](state)  # other signatures can still use the state
    assert float(state["left"][0]) == 2.0


def test_a_file_that_is_cut_off_after_loading(large: Path, tmp_path: Path) -> None:
    """Nothing is mapped into memory, where a missing page would crash the process."""
    path = tmp_path / "model.gcx"
    path.write_bytes(large.read_bytes())
    model = gc.load(path)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ArtifactCorruptError, match="has become shorter since it was opened"):
        call(model, "left")


def test_a_file_that_is_replaced_or_removed_after_loading(large: Path, tmp_path: Path) -> None:
    """An open file is read to its end, because gc.save replaces whole files."""
    path = tmp_path / "model.gcx"
    path.write_bytes(large.read_bytes())
    model = gc.load(path)
    path.unlink()
    assert call(model, "left") == 2.0 and call(model, "right") == 6.0


def test_files_are_closed_with_the_model(large: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("open files cannot be counted here")

    def opened() -> int:
        return sum(str(large) == str(link.resolve()) for link in folder.iterdir())

    model = gc.load(large)
    call(model, "left")
    assert opened() == 1
    del model
    assert opened() == 0


# -- states ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    graph, signatures = classifier()
    path = tmp_path_factory.mktemp("small") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


def test_a_state_with_another_value(small: Path) -> None:
    model = gc.load(small)
    state = model.state()
    bias = np.arange(3, dtype=np.float32)
    other = state.with_value("out/bias", bias)
    x = batch(2)["x"]
    predict: Any = model.signatures["predict"]
    difference = predict(other, x=x)["logits"] - predict(state, x=x)["logits"]
    assert_near(difference, np.tile(bias, (2, 1)), rtol=1e-5)
    with pytest.raises(gc.errors.UnknownNameError, match="did you mean 'out/bias'"):
        state.with_value("out/bia", bias)
    with pytest.raises(gc.errors.ShapeError, match=r"'out/bias' is f32\[3\]"):
        state.with_value("out/bias", bias[:2])
    with pytest.raises(gc.errors.DTypeError, match="the value is float64"):
        state.with_value("out/bias", bias.astype(np.float64))


def test_states_that_share_variables(small: Path) -> None:
    model = gc.load(small)
    train: Any = model.signatures["train"]
    _, state = train(model.state(), **batch(8))
    other = state.with_value("out/bias", np.zeros(3, np.float32))
    _, after = train(state, **batch(8, 1))
    with pytest.raises(StateError, match="shares variables with a consumed state"):
        train(other, **batch(8, 1))
    assert len(after) == len(model.variables) and "consumed" in repr(state)
    with pytest.raises(StateError, match="was consumed by the entry point 'train'"):
        state["out/bias"]

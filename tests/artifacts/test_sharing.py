"""What loaded artifacts share: equal weights, and the cache of executables."""

import gc as collector
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import graphc as gc
from graphc.artifacts import directory, lowering
from graphc.artifacts.loading import open_model
from graphc.artifacts.sharing import Content, SharedArrays, Sharing
from graphc.artifacts.steps import Steps
from graphc.errors import ArtifactCorruptError
from graphc.store.folder import ExecutableCache
from tests.artifacts.models import linear


def save(path: Path, body: np.ndarray, head: np.ndarray) -> Path:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 4), name="x")
        unused = gc.placeholder((), "int32", name="unused")
        b = gc.variable(body, name="body")
        h = gc.variable(head, name="head")
        y = gc.matmul(gc.matmul(x, b), h) + gc.cast(unused - unused, "float32")  # XLA removes it
        grow = b.assign_add(gc.ones_like(b))
    signatures = {
        "predict": gc.Signature({"x": x, "unused": unused}, {"y": y}),
        "train": gc.Signature({}, {}, updates=[grow]),
    }
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


BODY = np.arange(16, dtype=np.float32).reshape(4, 4)
HEADS = [np.full((4, 2), value, np.float32) for value in (1, 2)]
X = np.eye(4, dtype=np.float32)


def call(model: gc.artifacts.Model) -> np.ndarray:
    return np.asarray(model.signatures["predict"](x=X, unused=0)["y"])


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return tuple(save(tmp_path / f"{i}.gcx", BODY, head) for i, head in enumerate(HEADS))


def test_a_fine_tuned_head_costs_a_head(two: tuple[Path, Path]) -> None:
    shared = Sharing()
    first, second = (open_model(path, sharing=shared) for path in two)
    for model, head in zip((first, second), HEADS, strict=True):
        np.testing.assert_array_equal(call(model), BODY @ head)
    assert first.state()["body"] is second.state()["body"]
    assert first.state()["head"] is not second.state()["head"]
    assert shared.arrays.nbytes == BODY.nbytes + 2 * HEADS[0].nbytes


def test_an_array_is_freed_with_its_last_user(two: tuple[Path, Path]) -> None:
    shared = Sharing()
    first, second = (open_model(path, sharing=shared) for path in two)
    call(first), call(second)
    del first
    collector.collect()
    assert shared.arrays.nbytes == BODY.nbytes + HEADS[0].nbytes
    del second
    collector.collect()
    assert len(shared.arrays) == 0


def test_training_does_not_change_what_is_shared(two: tuple[Path, Path]) -> None:
    shared = Sharing()
    first, second = (open_model(path, sharing=shared) for path in two)
    call(second)
    _, state = first.signatures["train"](first.state())
    np.testing.assert_array_equal(state["body"], BODY + 1)
    np.testing.assert_array_equal(call(second), BODY @ HEADS[1])


def test_a_file_that_claims_the_content_of_another_gets_nothing(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    """The manifest is well-formed, but the bytes do not have the declared checksum."""
    shared = Sharing()
    secret = open_model(two[0], sharing=shared)
    call(secret)
    data = two[1].read_bytes()
    forged = tmp_path / "forged.gcx"
    forged.write_bytes(data.replace(BODY.tobytes(), (BODY * 0).tobytes()))
    thief = open_model(forged, sharing=shared)
    with pytest.raises(ArtifactCorruptError, match="'body' was altered"):
        call(thief)


def test_equal_bytes_of_another_dtype_or_shape_are_not_shared() -> None:
    contents = [
        Content("0" * 64, "f32", (2,)),
        Content("0" * 64, "i32", (2,)),
        Content("0" * 64, "f32", (2, 1)),
    ]
    arrays = SharedArrays()
    where = SingleDeviceSharding(jax.local_devices()[0])
    made = [jax.device_put(np.float32(i), where) for i in range(3)]
    found = [
        arrays.get(content, where, lambda: None, lambda array=array: array)
        for content, array in zip(contents, made, strict=True)
    ]
    assert all(a is b for a, b in zip(found, made, strict=True))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that XLA compiled for artifacts."""
    done: list[str] = []
    compile = lowering.compiled_program

    def counting(key, lower, devices):
        done.append("compiled")
        return compile(key, lower, devices)

    monkeypatch.setattr("graphc.artifacts.ways.compiled_program", counting)
    return done


def test_a_later_load_finds_the_executable(
    two: tuple[Path, Path], tmp_path: Path, compiled: list[str]
) -> None:
    """The weights are arguments, so a retrained model reuses the executables of the old one."""
    cache = ExecutableCache(tmp_path / "cache", 1 << 30)
    for path, head in zip(two, HEADS, strict=True):
        model = open_model(path, sharing=Sharing(cache=cache))
        np.testing.assert_array_equal(call(model), BODY @ head)
    assert len(compiled) == 1
    model.signatures["predict"](x=X[:2], unused=0)
    assert len(compiled) == 2
    (entry, _) = cache.entries()
    assert entry.metadata is not None and entry.metadata["program"] == "predict"


def test_another_program_does_not_find_it(
    two: tuple[Path, Path], tmp_path: Path, compiled: list[str]
) -> None:
    cache = ExecutableCache(tmp_path / "cache", 1 << 30)
    call(open_model(two[0], sharing=Sharing(cache=cache)))
    graph, signatures = linear()
    gc.save(gc.Session(graph), tmp_path / "l.gcx", signatures=signatures, platforms=["cpu"])
    model = open_model(tmp_path / "l.gcx", sharing=Sharing(cache=cache))
    y = model.signatures["predict"](x=np.ones((4, 2), np.float32))["y"]
    np.testing.assert_array_equal(y, np.full((4, 1), 3))
    assert len(compiled) == 2


def test_an_unusable_entry_is_replaced(
    two: tuple[Path, Path], tmp_path: Path, compiled: list[str]
) -> None:
    cache = ExecutableCache(tmp_path / "cache", 1 << 30)
    call(open_model(two[0], sharing=Sharing(cache=cache)))
    (entry,) = cache.entries()
    cache.put(entry.key, {**entry.metadata}, b"no executable")
    model = open_model(two[0], sharing=Sharing(cache=cache))
    np.testing.assert_array_equal(call(model), BODY @ HEADS[0])
    assert len(compiled) == 2


def test_gc_load_shares_and_stores_nothing(two: tuple[Path, Path], compiled: list[str]) -> None:
    first, second = map(gc.load, two)
    call(first), call(second)
    assert len(compiled) == 2
    assert first.state()["body"] is not second.state()["body"]


def test_programs_of_many_sizes_do_not_fill_the_memory(two: tuple[Path, Path]) -> None:
    model = open_model(two[0], sharing=Sharing(most_steps=3))
    steps = model.signatures["predict"]._chain._steps
    for size in (1, 2, 3, 4, 3, 2, 1):
        y = model.signatures["predict"](x=X[:size], unused=0)["y"]
        np.testing.assert_array_equal(y, (BODY @ HEADS[0])[:size])
        assert len(steps) <= 3


def test_programs_that_are_not_kept_are_freed(two: tuple[Path, Path]) -> None:
    """JAX must not keep them either."""
    model = open_model(two[0], sharing=Sharing(most_steps=1))
    client = jax.devices()[0].client
    model.signatures["predict"](x=X[:1], unused=0)
    collector.collect()
    before = len(client.live_executables())
    for size in (2, 3, 4):
        model.signatures["predict"](x=X[:size], unused=0)
    collector.collect()
    assert len(client.live_executables()) <= before


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_what_is_used_stays(limit: int) -> None:
    """A size that is used between all others is never removed if two sizes fit."""
    steps = Steps(limit)
    steps.put(((0,),), "often")
    for size in range(1, 50):
        if limit > 1:
            assert steps.get(((0,),)) == "often"
        steps.put(((size,),), size)
        assert steps.get(((size,),)) == size and len(steps) <= limit


def test_a_program_stays_if_all_are_used() -> None:
    steps = Steps(2)
    for size in (1, 2, 3):
        steps.put(((size,),), size)
        for used in steps:
            assert steps.get(used) == used[0][0]
    assert len(steps) == 2 and steps.get(((3,),)) == 3


def test_a_released_model_can_be_called_again(two: tuple[Path, Path], compiled: list[str]) -> None:
    shared = Sharing()
    model = open_model(two[0], sharing=shared)
    call(model)
    model.release()
    assert len(shared.arrays) == 0
    np.testing.assert_array_equal(call(model), BODY @ HEADS[0])
    assert len(compiled) == 2


def test_the_pace_is_asked_after_each_piece(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_CHUNK", 16)  # BODY has four pieces, HEADS two
    pieces: list[int] = []
    shared = Sharing(pace=lambda: pieces.append(1))
    first = open_model(two[0], sharing=shared)
    opened = len(pieces)
    assert opened > 0
    np.testing.assert_array_equal(first.state()["head"], HEADS[0])
    assert len(pieces) == opened + 2
    np.testing.assert_array_equal(first.state()["body"], BODY)
    assert len(pieces) == opened + 6
    second = open_model(two[1], sharing=shared)
    again = len(pieces)
    assert second.state()["body"] is first.state()["body"]  # only checked
    assert len(pieces) == again + 4

"""Examples and buckets that are saved with a signature."""

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, ArtifactError, FeedError, UnknownNameError
from tests.artifacts.forge import entry, forge, member


def graph_of(build=lambda x: x * 2) -> tuple[gc.Graph, Any, Any]:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", "time", 2), name="x")
        y = build(x)
    return graph, x, y


def saved(folder: Path, build=lambda x: x * 2, **more) -> Path:
    graph, x, y = graph_of(build)
    path = folder / "model.gcx"
    signature = gc.Signature({"x": x}, {"y": y}, **more)
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    return path


FIRST = np.arange(12, dtype=np.float32).reshape(2, 3, 2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    examples = [{"x": FIRST}, {"x": [[[1, 2]]]}]  # lists are converted as feeds are
    return saved(tmp_path_factory.mktemp("whole"), examples=examples, buckets={"time": [8, 4]})


def test_examples_are_read_back(whole: Path) -> None:
    point = gc.load(whole).signatures["predict"]
    first, second = point.examples
    np.testing.assert_array_equal(first["x"], FIRST)
    np.testing.assert_array_equal(second["x"], np.float32([[[1, 2]]]))
    assert second["x"].dtype == np.float32 and not first["x"].flags.writeable
    assert point.buckets == {"time": (4, 8)}
    np.testing.assert_array_equal(point(**first)["y"], FIRST * 2)


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint8", "int64", "bfloat16", "complex64"])
def test_examples_of_other_dtypes(tmp_path: Path, dtype: str) -> None:
    known: Any = {"int4": ml_dtypes.int4, "bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    with gc.Graph() as graph:
        x = gc.placeholder(("batch",), dtype, name="x")
        signature = gc.Signature({"x": x}, {"y": gc.identity(x)}, examples=[{"x": given(known)}])
    path = tmp_path / "model.gcx"
    gc.save(gc.Session(graph), path, signatures={"p": signature}, platforms=["cpu"])
    (example,) = gc.load(path).signatures["p"].examples
    assert example["x"].dtype == known
    np.testing.assert_array_equal(example["x"].astype(complex), [0, 1, 1])


def given(dtype: Any) -> np.ndarray:
    return np.array([0, 1, 1]).astype(dtype)


def test_a_file_without_examples(tmp_path: Path) -> None:
    point = gc.load(saved(tmp_path)).signatures["predict"]
    assert point.examples == [] and point.buckets == {}


def test_a_file_that_is_older_than_the_fields(whole: Path, tmp_path: Path) -> None:
    def older(manifest) -> None:
        del entry(manifest, "predict")["examples"], entry(manifest, "predict")["buckets"]

    forge(whole, tmp_path / "old.gcx", older)
    assert gc.load(tmp_path / "old.gcx").signatures["predict"].examples == []


@pytest.mark.parametrize(
    ("example", "text"),
    [
        ({"x": np.zeros((2, 3, 3))}, "examples[1]: feed 'x' must be f32[batch, time, 2]"),
        ({"x": np.zeros((0, 3, 2))}, "examples[1]: an open size is 0"),
        ({"x": ["a"]}, "examples[1]: feed 'x'"),
        ({}, "examples[1]: 'x' is missing"),
        ({"x": FIRST, "z": 1}, "examples[1]: 'z' is not an input"),
    ],
)
def test_an_example_that_does_not_fit(tmp_path: Path, example, text: str) -> None:
    with pytest.raises(FeedError, match=re.escape(f"signature 'predict': {text}")):
        saved(tmp_path, examples=[{"x": FIRST}, example])
    assert not list(tmp_path.iterdir())


def masked(x):
    return (gc.reduce_max(x, axis=2) > 0)[:, None, None, :]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: x - gc.reduce_mean(x, 1, keepdims=True, name="m"), "ReduceMean 'm' at {} adds"),
        (lambda x: gc.softmax(x, axis=1, name="s"), "Softmax 's' at {} needs all rows"),
        (lambda x: nn.TransformerBlock(2, 1)(x, mask=masked(x)), "at {} needs all rows"),
    ],
)
def test_buckets_of_a_size_that_cannot_be_padded(tmp_path: Path, build, words: str) -> None:
    """An attention mask does not help the proof, because it depends on values."""
    line = f"test_examples.py:{build.__code__.co_firstlineno}"
    with pytest.raises(ArtifactError) as info:
        saved(tmp_path, build, buckets={"time": [4]})
    assert words.format(line) in info.value.what
    assert line in str(info.value.source)
    saved(tmp_path, build, buckets={"batch": [4]})


def test_buckets_of_a_batch_whose_rows_depend_on_each_other(tmp_path: Path) -> None:
    def build(x):
        return gc.softmax(x, axis=0, name="s")

    with pytest.raises(ArtifactError, match="'batch', which cannot be padded: Softmax 's' at"):
        saved(tmp_path, build, buckets={"batch": [4]})
    assert gc.load(saved(tmp_path, build, buckets={"time": [4]})).signatures["predict"].buckets


def test_buckets_of_no_open_size(tmp_path: Path) -> None:
    for name, sizes in [("tim", {}), ("time", {"time": 3})]:
        with pytest.raises(UnknownNameError, match=f"buckets of '{name}'"):
            saved(tmp_path, buckets={name: [4]}, sizes=sizes)


LIES = {
    "no member": (lambda e: e["examples"].update(member="x"), "be members"),
    "more bytes": (lambda e: e["examples"]["shapes"][0][0].__setitem__(1, 99), "have 1592 bytes"),
    "another rank": (lambda e: e["examples"]["shapes"][0][0].append(1), "a shape of each input"),
    "another size": (lambda e: e["examples"]["shapes"][0][0].__setitem__(2, 9), "a shape of each"),
    "a shape too many": (lambda e: e["examples"]["shapes"][0].append([1]), "a shape of each"),
    "decreasing": (lambda e: e["buckets"].update(time=[8, 4]), "increasing sizes"),
    "a bucket of 0": (lambda e: e["buckets"].update(time=[0]), "increasing sizes"),
    "no buckets": (lambda e: e["buckets"].update(time=[]), "increasing sizes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies(whole: Path, tmp_path: Path, lie: str) -> None:
    change, text = LIES[lie]
    forge(whole, tmp_path / "lie.gcx", lambda m: change(entry(m, "predict")))
    with pytest.raises(ArtifactCorruptError, match=text):
        list(gc.load(tmp_path / "lie.gcx").signatures["predict"].examples)


def test_altered_examples(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "altered.gcx"
    data = member(whole, "examples/predict")
    content = whole.read_bytes()
    assert content.count(data) == 1 and "examples/predict" in container.read(whole)[1]
    path.write_bytes(content.replace(data, bytes(len(data))))
    with pytest.raises(ArtifactCorruptError, match="altered"):
        list(gc.load(path).signatures["predict"].examples)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"examples": {"x": 1}}, "examples must be a list of mappings"),
        ({"examples": [1]}, "examples must be a list of mappings"),
        ({"examples": [{}] * 1001}, "at most 1000 examples are allowed, got 1001"),
        ({"buckets": {"time": []}}, "buckets must map names to lists of positive ints"),
        ({"buckets": {"time": [0]}}, "buckets must map names"),
        ({"buckets": [4]}, "buckets must map names"),
    ],
)
def test_signatures_that_are_refused(more, text: str) -> None:
    _, x, y = graph_of()
    with pytest.raises(gc.errors.AttributeValueError, match=text):
        gc.Signature({"x": x}, {"y": y}, **more)


def test_sizes_without_names(tmp_path: Path) -> None:
    """The arguments name these sizes, and messages show `?`."""
    with gc.Graph() as graph, gc.name_scope("scope"):
        x = gc.placeholder((None, "time", 3), name="pixels")
        y = gc.identity(x)
    path = tmp_path / "model.gcx"
    signature = gc.Signature({"image": x}, {"y": y}, buckets={"scope.pixels_0": [2]})
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    point = gc.load(path).signatures["predict"]
    types = "(image: f32[?, time, 3]) -> y: f32[?, time, 3]"
    assert repr(point) == f"<EntryPoint predict{types}>"
    assert str(point.inputs["image"]) == "f32[image_0, time, 3]"
    assert point.buckets == {"image_0": (2,)}
    with pytest.raises(FeedError, match="the size of axis 0 of 'image' is 0"):
        point(image=np.zeros((0, 2, 3)))
    with pytest.raises(FeedError, match="'time' is 0"):
        point(image=np.zeros((2, 0, 3)))

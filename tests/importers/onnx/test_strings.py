"""Strings that are known only in a run, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphc as gc
from graphc.errors import ModelImportError
from graphc.importers.artifacts import save_model
from tests.near import assert_near

STRING, INT, FLOAT = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT
ML = "ai.onnx.ml"


def ml(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), domain=ML, **attrs)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **constants: Any):
    def ports(types: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in types.items()]

    arrays = [
        numpy_helper.from_array(np.asarray(value, object if kind is str else kind), name)
        for name, (value, kind) in constants.items()
    ]
    graph = helper.make_graph(nodes, "words", ports(inputs), ports(outputs), arrays)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(proto: Any, folder: Path, **feeds: Any) -> dict[str, Any]:
    """The outputs of an artifact of the model, which are those of onnxruntime."""
    save_model(gc.from_onnx(proto), folder / "m.gcx", ["cpu"], frozen=True)
    got = gc.load(folder / "m.gcx").signatures["predict"](**feeds)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    for name, wanted in zip(names, session.run(names, feeds), strict=True):
        if wanted.dtype == object:
            words = [word.decode() for word in got[name].reshape(-1).tolist()]
            assert words == wanted.reshape(-1).tolist()
            assert got[name].shape == wanted.shape
        else:
            assert_near(got[name], wanted, rtol=1e-6)
    return got


WORDS = np.array(["a", "größer", "?", ""], object)


def test_label_encoders(tmp_path: Path) -> None:
    """Strings to numbers and to strings, which are encoded again; and numbers to strings."""
    nodes = [
        ml("LabelEncoder", "x", "i", keys_strings=["a", "größer"], values_int64s=[7, 3]),
        ml("LabelEncoder", "x", "f", keys_strings=["", "a"], values_floats=[1.5, 2.5],
           default_float=-1.0),
        ml("LabelEncoder", "x", "s", keys_strings=["a", "b"], values_strings=["b", "c"],
           default_string="none"),
        ml("LabelEncoder", "s", "again", keys_strings=["b", "none"], values_int64s=[1, 2]),
        ml("LabelEncoder", "n", "t", keys_int64s=[3, 1], values_strings=["three", "one"]),
    ]  # fmt: skip
    outputs = {"i": INT, "f": FLOAT, "s": STRING, "again": INT, "t": STRING}
    proto = model(
        nodes,
        {"x": (STRING, ["n"]), "n": (INT, ["m"])},
        {name: (kind, ["k"]) for name, kind in outputs.items()},
    )
    found = check(proto, tmp_path, x=WORDS, n=np.array([1, 2, 3]))
    assert found["t"].tolist() == [b"one", b"_Unused", b"three"]
    assert np.asarray(found["again"]).tolist() == [1, 2, 2, 2]


def test_equal_keys(tmp_path: Path) -> None:
    """The first one counts, whether the keys are strings or numbers, and known or not. Of equal
    classes, the last one counts. Before version 4, NaN is no key."""
    keys: dict[str, Any] = {"keys_strings": ["a", "?", "a", ""], "values_int64s": [7, 3, 9, 1]}
    nan = float("nan")
    floats = {"keys_floats": [1.0, nan, 1.0, nan], "values_floats": [7.0, 8.0, 9.0, 5.0]}
    nodes = [
        ml("LabelEncoder", "x", "i", **keys),
        ml("LabelEncoder", "c", "k", **keys),
        ml("LabelEncoder", "x", "s", keys_strings=["a", "?", "a"], values_strings=["p", "q", "r"]),
        ml("LabelEncoder", "n", "j", keys_int64s=[1, 2, 1], values_int64s=[7, 8, 9]),
        ml("LabelEncoder", "n", "t", keys_int64s=[1, 2, 1], values_strings=["p", "q", "r"]),
        ml("LabelEncoder", "y", "f", **floats),
        ml("LabelEncoder", "d", "g", **floats),
        ml("OneHotEncoder", "n", "h", cats_int64s=[1, 2, 1, 3]),
        ml("OneHotEncoder", "x", "o", cats_strings=["a", "", "a"]),
    ]
    outputs = {"i": INT, "k": INT, "s": STRING, "j": INT, "t": STRING, "f": FLOAT, "g": FLOAT}
    ports = {name: (kind, None) for name, kind in {**outputs, "h": FLOAT, "o": FLOAT}.items()}
    y = np.float32([[1, nan], [nan, 3]])
    for version in (3, 4):
        proto = model(
            nodes,
            {"x": (STRING, ["n"]), "n": (INT, ["m"]), "y": (FLOAT, ["r", 2])},
            ports,
            c=(["", "a", "b"], str),
            d=(y, np.float32),
        )
        proto.opset_import[1].version = version
        found = check(proto, tmp_path, x=WORDS, n=np.array([1, 2, 3]), y=y)
        assert np.asarray(found["i"]).tolist() == [7, -1, 3, 1]
        assert np.asarray(found["f"]).tolist() == [[7, 8], [8, 0]] if version == 4 else True


def test_labels_of_classifiers(tmp_path: Path) -> None:
    """As scikit-learn's models are converted: a linear model, and labels by their numbers."""
    nodes = [
        ml("LinearClassifier", "x", "label scores", classlabels_strings=["cat", "dog", "hörse"],
           coefficients=[1.0, 0.0, 0.0, 1.0, -1.0, -1.0], intercepts=[0.0, 0.0, 0.0],
           multi_class=1, post_transform="NONE"),
        node("ArgMax", "scores", "best", axis=1, keepdims=0),
        ml("ArrayFeatureExtractor", "classes best", "picked"),
        node("Cast", "picked", "text", to=STRING),
        node("Reshape", "text shape", "same"),
    ]  # fmt: skip
    proto = model(
        nodes,
        {"x": (FLOAT, ["n", 2])},
        {"label": (STRING, ["n"]), "scores": (FLOAT, ["n", 3]), "same": (STRING, ["n"])},
        classes=(["cat", "dog", "hörse"], str),
        shape=([-1], np.int64),
    )
    x = np.float32([[1, 0], [0, 2], [-3, -1]])
    found = check(proto, tmp_path, x=x)
    assert found["label"].tolist() == found["same"].tolist() == [b"cat", b"dog", "hörse".encode()]


def test_comparisons_and_categories(tmp_path: Path) -> None:
    nodes = [
        node("Equal", "x empty", "missing"),
        node("Unsqueeze", "x axis", "column"),
        ml("OneHotEncoder", "x", "hot", cats_strings=["größer", "a"], zeros=1),
        ml("LabelEncoder", "column", "i", keys_strings=["?"], values_int64s=[4]),
    ]
    outputs = {
        "missing": (TensorProto.BOOL, ["n"]), "hot": (FLOAT, ["n", 2]), "i": (INT, ["n", 1]),
    }  # fmt: skip
    proto = model(nodes, {"x": (STRING, ["n"])}, outputs, empty=([""], str), axis=([1], np.int64))
    found = check(proto, tmp_path, x=WORDS)
    assert np.asarray(found["missing"]).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("StringNormalizer", "x", "y")], "StringNormalizer takes strings that are known"),
        ([node("Identity", "x", "y")], "takes strings that are known only in a run"),
        ([node("Equal", "x x", "y")], "compares two strings that are known only in a run"),
        ([ml("LabelEncoder", "x", "y")], "has no keys or values"),
    ],
)
def test_what_is_refused(nodes: list[Any], why: str) -> None:
    proto = model(nodes, {"x": (STRING, ["n"])}, {"y": (STRING, ["n"])})
    with pytest.raises(ModelImportError, match=why):
        gc.from_onnx(proto)

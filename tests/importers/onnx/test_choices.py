"""Words that are the value of an attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import defs, helper

import graphc as gc
from graphc.errors import ModelImportError
from graphc.importers.onnx.choices import CHOICES
from tests.importers.onnx.models import model

IMAGE = np.zeros((1, 1, 4, 5), np.float32)
ML = ("LinearClassifier", "LinearRegressor", "Normalizer", "TreeEnsembleClassifier")
ML = (*ML, "TreeEnsembleRegressor")
WORDS = [(op, name) for op, words in CHOICES.items() for name in words]


def refusal(op: str, shape: Any = None, weights: Any = None, **attrs: Any) -> str:
    domain = "ai.onnx.ml" if op in ML else ""
    names = ["x", *(weights or {})]
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    shapes = {} if shape is None else {"x": shape}
    known = {name: value for name, value in (weights or {}).items() if name}
    proto = model(
        [node], {"x": IMAGE}, ["y"], known, opset=19, shapes=shapes, domains=["ai.onnx.ml"]
    )
    with pytest.raises(ModelImportError) as caught:
        gc.from_onnx(proto)
    (detail,) = caught.value.details
    return str(detail)


@pytest.mark.parametrize(("op", "name"), WORDS, ids=[f"{op}-{name}" for op, name in WORDS])
def test_unknown_words_are_refused(op: str, name: str) -> None:
    found = refusal(op, **{name: "lanczos"})
    assert found.removeprefix("ai.onnx.ml.").startswith(
        f"{op} has {name} = 'lanczos', which is not one of "
    )
    assert all(word in found for word in CHOICES[op][name])


@pytest.mark.parametrize(("op", "name"), WORDS, ids=[f"{op}-{name}" for op, name in WORDS])
def test_the_defaults_of_onnx_are_known(op: str, name: str) -> None:
    newest = defs.get_schema(op, 10 if op == "Upsample" else 24, "ai.onnx.ml" if op in ML else "")
    if name in newest.attributes:
        default = helper.get_attribute_value(newest.attributes[name].default_value)
        assert default is None or default.decode() in CHOICES[op][name]
    else:
        assert op in ("SpaceToDepth", "Upsample")  # have fewer than their sisters


@pytest.mark.parametrize("shape", [None, ["batch", 1, "height", "width"]], ids=["known", "named"])
def test_resize(shape: Any) -> None:
    scales = {"": None, "scales": np.float32([1, 1, 2, 2])}
    found = refusal("Resize", shape, weights=scales, axes=[0, 1, 2, 7])
    assert found.startswith("Resize has axes = [0, 1, 2, 7], but its input has 4 axes")
    found = refusal("Resize", shape, weights=scales, axes=[2, -1])
    assert found.startswith("Resize has 4 scales for 2 axes")
    found = refusal("Resize", shape, weights=scales, mode=3)
    assert found.startswith("Resize has mode = 3, which is not one of nearest, linear, cubic")

"""Functions that declare operators: what users, editors and the catalogue see of them."""

import inspect
from typing import get_type_hints

import pytest

import graphc as gc
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core import declaring
from graphc.ops.core.declaring import record
from graphc.ops.elementwise.arithmetic import clip
from graphc.ops.scipy_api.special import polygamma


def test_a_declared_function_shows_its_signature_and_docstring() -> None:
    shown = "(x: 'TensorLike', *, name: 'str | None' = None) -> 'Tensor'"
    assert str(inspect.signature(gc.tanh)) == shown
    assert gc.tanh.__name__ == "tanh" and gc.tanh.__doc__.startswith("The hyperbolic tangent")
    assert gc.tanh.__module__ == "graphc.ops.elementwise.transcendental"
    with pytest.raises(TypeError, match="tanh: missing a required argument: 'x'"):
        gc.tanh()


def test_annotations_of_declared_functions_resolve() -> None:
    for function in declaring._BY_FUNCTION:
        assert get_type_hints(function)["return"] is gc.Tensor, function.__qualname__


def test_the_record_says_what_the_function_does() -> None:
    assert record(gc.tanh) is CATALOGUE["Tanh"]
    assert CATALOGUE["Polygamma"].signature == "n, x -> y"
    assert record(clip).signature == "x, lo, hi -> z"
    doc = record(polygamma).doc
    assert "\n" not in doc and "Args" not in doc and "NaN. Floating dtypes. Source:" in doc
    assert record(gc.clip).doc.count("Raises") == 0
    assert record(gc.negative).doc == "-x, elementwise; numeric dtypes."  # it names them itself


def test_a_body_may_give_the_result_of_another_operator() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3,), name="x")
        assert graph.producer(gc.clip(x, 0.0, 1.0, name="a")).op.name == "Clip"
        below = graph.producer(gc.clip(x, hi=1.0, name="b"))
        softmax = graph.producer(gc.nn.softmax(x, name="c"))
    assert (below.op.name, below.name) == ("Minimum", "b")
    assert (softmax.name, softmax.attrs["axis"]) == ("c", 0)

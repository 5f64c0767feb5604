"""Pytrees of variables: their names, values, and assignment."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, ShapeError, UnknownNameError


class Dense(NamedTuple):
    kernel: object
    bias: object


def values() -> dict[str, object]:
    return {
        "params": [Dense(np.ones((2, 3), np.float32), np.zeros(3, np.float32))],
        "step": 4,
        "a key": jax.random.key(0),
    }


def test_names_are_paths() -> None:
    graph = gc.Graph()
    with graph:
        tree = gc.variables(values(), name="model")
    names = ["model/a_key", "model/params/0/kernel", "model/params/0/bias", "model/step"]
    assert [*graph.variables] == names
    assert jax.tree.structure(tree) == jax.tree.structure(values())
    assert tree["params"][0].kernel is graph.variables["model/params/0/kernel"]
    assert tree["params"][0].bias.trainable
    assert not tree["step"].trainable


def test_one_array_is_a_tree() -> None:
    with gc.Graph() as graph:
        assert gc.variables(np.ones(2), name="w").name == "w"
        assert gc.variables(np.ones(2)).name == "variable"
        assert not gc.variables({"w": 1.0}, trainable=False)["w"].trainable
    assert len(graph.variables) == 3


def test_a_session_gives_and_takes_trees() -> None:
    with gc.Graph() as graph:
        tree = gc.variables({"w": np.ones(2, np.float32), "b": [0.0, 1.0]})
    session = gc.Session(graph)
    got = session.get(tree)
    assert jax.tree.map(float, got["b"]) == [0.0, 1.0]
    session.set(tree, {"w": [3.0, 4.0], "b": [5.0, 6.0]})
    assert jax.tree.map(float, session.get(tree)["b"]) == [5.0, 6.0]
    assert session.get({"names": ["w", "b/1"]})["names"][0].tolist() == [3.0, 4.0]
    with pytest.raises(AttributeValueError, match="set: the values are not in the nest"):
        session.set(tree, {"w": [3.0, 4.0]})
    with pytest.raises(ShapeError):
        session.set(tree, {"w": [0.0, 0.0, 0.0], "b": [7.0, 8.0]})
    assert jax.tree.map(float, session.get(tree)["b"]) == [5.0, 6.0]  # all or none
    with pytest.raises(UnknownNameError, match="'c'"):
        session.get(["w", "c"])


def test_trees_are_assigned_at_once() -> None:
    with gc.Graph() as graph:
        tree = gc.variables({"w": np.ones(2, np.float32), "b": [0.0, 1.0]})
        swapped = {"w": tree["w"] * 3.0, "b": tree["b"][::-1]}
        step = gc.assign(tree, swapped)
        with pytest.raises(AttributeValueError, match="assign: the new values are not in the nest"):
            gc.assign(tree, {"w": tree["w"]})
        with pytest.raises(AttributeValueError, match=r"assign: 1\.0 is not a variable"):
            gc.assign([1.0], [2.0])
        with pytest.raises(AttributeValueError, match="assign: no variables"):
            gc.assign([], [])
    session = gc.Session(graph)
    assert session.run(step) is None
    assert session.get(tree)["w"].tolist() == [3.0, 3.0]
    assert jax.tree.map(float, session.get(tree)["b"]) == [1.0, 0.0]

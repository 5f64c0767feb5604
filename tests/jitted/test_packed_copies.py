"""Copies, pickles and unions of packed trees are ordinary trees."""

from __future__ import annotations

import copy
import pickle

import jax
import numpy as np
import pytest

from graphc.errors import StateError
from tests.jitted.test_packed import X, assert_trees_near, donating, step, train


def test_copies_are_ordinary_trees() -> None:
    jitted = donating()
    params, opt_state, _ = train(jitted)
    want, want_state, _ = train(jax.jit(step))
    data = pickle.dumps((params, opt_state))
    assert b"graphc" not in data
    deep = copy.deepcopy({"params": params, "again": params})
    assert deep["params"] is deep["again"]
    shallow = copy.copy(params)
    assert shallow["layers"] is params["layers"]
    kept = np.asarray(params["scale"])
    jitted(params, opt_state, X)
    loaded, loaded_state = pickle.loads(data)
    assert_trees_near(loaded_state, want_state)
    for tree in (loaded, deep["params"]):
        assert type(tree) is dict
        assert_trees_near(tree, want)
        assert np.asarray(tree["scale"]) == kept
    for use in (pickle.dumps, copy.copy, copy.deepcopy, lambda tree: tree | {}):
        with pytest.raises(StateError, match="donated to a later call"):
            use(params)


def test_unions_are_dicts() -> None:
    params, opt_state, _ = train(donating())
    one = np.ones(())
    for tree in (params | {}, {} | params, params | params, params | {"scale": one, "new": one}):
        assert type(tree) is dict
        assert tree["layers"] is params["layers"]
    assert (params | {"scale": one})["scale"] is one
    assert ({"scale": one} | params)["scale"] is params["scale"]
    changed = {"scale": one}
    changed |= params
    assert changed["scale"] is params["scale"]
    for use in (lambda: opt_state | {}, lambda: {} | opt_state, lambda: params | 3):
        with pytest.raises(TypeError, match="unsupported operand"):
            use()

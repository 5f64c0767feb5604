"""Regularizers of norms and attention: which variables they penalize."""

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from tests.near import assert_near

CASES = [
    (nn.BatchNorm, (4, 3), {"training": True}),
    (nn.LayerNorm, (4, 3), {}),
    (lambda **k: nn.GroupNorm(3, **k), (4, 3), {}),
    (nn.InstanceNorm, (2, 4, 3), {}),
]


@pytest.mark.parametrize(("make", "shape", "options"), CASES, ids=["batch", "layer", "group", "in"])
def test_norms(make, shape, options):
    layer = make(scale_regularizer=nn.L2(0.5), offset_regularizer="l1")
    with gc.Graph(seed=0) as graph:
        layer(gc.ones(shape), **options)
        penalty = nn.penalty(layer)
    assert {v.name.rpartition("/")[2] for v in layer.regularized} == {"scale", "offset"}
    session = gc.Session(graph)
    for v in layer.regularized:
        session.set(v, np.full(3, 2.0, "float32"))
    assert_near(np.asarray(session.run(penalty)), 0.5 * 3 * 4 + 0.01 * 3 * 2, 1e-6, 1e-6)


def test_rms_norm():
    layer = nn.RMSNorm(scale_regularizer="l2")
    with gc.Graph(seed=0) as graph:
        layer(gc.ones((4, 3)))
        penalty = nn.penalty(layer)
    assert_near(np.asarray(gc.Session(graph).run(penalty)), 0.01 * 3, 1e-6, 1e-6)


ATTENTION = [
    (lambda **k: nn.MultiHeadAttention(8, 2, **k), lambda f: f(gc.ones((2, 3, 8))), 4, 4),
    (
        lambda **k: nn.AdditiveAttention(8, **k),
        lambda f: f(gc.ones((2, 8)), gc.ones((2, 3, 8))),
        3,
        1,
    ),
    (lambda **k: nn.TransformerBlock(8, 2, **k), lambda f: f(gc.ones((2, 3, 8))), 6, 6),
]


@pytest.mark.parametrize(("make", "call", "kernels", "biases"), ATTENTION)
def test_attention(make, call, kernels, biases):
    layer = make(kernel_regularizer="l2", bias_regularizer=nn.L1(1.0))
    with gc.Graph(seed=0) as graph:
        call(layer)
        penalty = nn.penalty(layer)
    session = gc.Session(graph)
    for v in layer.regularized:
        session.set(v, np.ones(v.shape, "float32"))
    own = {kind: [v for v in layer.regularized if v.name.endswith(kind)] for kind in KINDS}
    assert [len(own[kind]) for kind in KINDS] == [kernels, biases]
    wanted = 0.01 * sum(v.size for v in own["kernel"]) + sum(v.size for v in own["bias"])
    assert_near(np.asarray(session.run(penalty)), wanted, 1e-5, 1e-6)


KINDS = ("kernel", "bias")


def test_no_regularizer_by_default():
    with gc.Graph():
        layer = nn.TransformerBlock(8, 2)
        layer(gc.ones((2, 3, 8)))
    assert not layer.regularized


def test_a_penalty_reaches_the_scale():
    """The gradient of the penalty changes the variable."""
    with gc.Graph(seed=0) as graph:
        layer = nn.LayerNorm(scale_regularizer=nn.L2(0.5))
        layer(gc.ones((4, 3)))
        (slope,) = gc.gradients(nn.penalty(layer), [layer.variables[0]])
    assert_near(np.asarray(gc.Session(graph).run(slope)), np.ones(3), 1e-6, 1e-6)

"""The functions of `gc.nn`: all are public, and losses take only keyword arguments."""

import numpy as np
import pytest

from graphc import nn
from graphc.build import placeholder
from graphc.errors import DTypeError, ShapeError
from graphc.ir.graph import Graph
from tests.near import assert_near
from tests.nn.evaluate import evaluate


def test_all_is_what_there_is() -> None:
    assert len(set(nn.__all__)) == len(nn.__all__)
    for name in nn.__all__:
        assert getattr(nn, name).__doc__ or name == "ACTIVATIONS"


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_activations_by_name(name: str) -> None:
    assert nn.ACTIVATIONS[name] is getattr(nn, name)
    with Graph():
        x = placeholder((None, 3))
        assert nn.Dense(4, activation=name)(x).type.shape == (x.shape[0], 4)


@pytest.mark.parametrize(
    "loss", [nn.softmax_cross_entropy, nn.sparse_softmax_cross_entropy, nn.sigmoid_cross_entropy]
)
def test_losses_take_keywords_only(loss) -> None:
    with Graph():
        x = placeholder((2, 3))
        with pytest.raises(TypeError, match="positional"):
            loss(x, x)


def test_losses_and_lookup_values() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(4, 3)), np.array([0, 2, 1, 2], np.int32)
    with Graph() as graph:
        x, y = placeholder((None, 3), "float64"), placeholder((None,), "int32")
        sparse = nn.sparse_softmax_cross_entropy(logits=x, labels=y, name="sparse")
        full = nn.softmax_cross_entropy(logits=x, labels=nn.one_hot(y, 3, "float64"))
        binary = nn.sigmoid_cross_entropy(logits=x, labels=nn.one_hot(y, 3, "float64"))
        decay = nn.l2_loss(x, name="decay")
        rows = nn.embedding_lookup(x, y)
    assert (sparse.name, decay.name) == ("sparse:0", "decay:0")
    values = evaluate(graph, [sparse, full, binary, decay, rows], {x: logits, y: labels})
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = -log_p[np.arange(4), labels]
    hot = np.eye(3)[labels]
    p = 1 / (1 + np.exp(-logits))
    assert_near(values[0], want, rtol=1e-12)
    assert_near(values[1], want, rtol=1e-12)
    assert_near(values[2], -hot * np.log(p) - (1 - hot) * np.log(1 - p), rtol=1e-9)
    assert_near(values[3], (logits**2).sum() / 2, rtol=1e-12)
    np.testing.assert_array_equal(values[4], logits[labels])


def test_l2_loss_of_integers_is_floating() -> None:
    with Graph():
        assert nn.l2_loss(placeholder((3,), "int32")).dtype == np.float32


def test_bad_operands() -> None:
    with Graph():
        x, y = placeholder((4, 3)), placeholder((5,), "int32")
        with pytest.raises(ShapeError, match=r"(?s)differ, 4 and 5.*at test_functions.py:"):
            nn.sparse_softmax_cross_entropy(logits=x, labels=y)
        with pytest.raises(DTypeError, match=r"(?s)labels must be integers.*test_functions.py:"):
            nn.sparse_softmax_cross_entropy(logits=x, labels=x[:, 0])
        with pytest.raises(DTypeError, match=r"(?s)indices must be integers.*test_functions.py:"):
            nn.embedding_lookup(x, x)

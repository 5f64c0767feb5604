"""Which sizes can be padded, and which node an error names."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.devices.row_proof import RowProof, Rows, prove_rows
from graphc.ops.control.custom_gradient import with_gradient
from tests.laws.harness import functional


def proof(build, shape=("batch", 6), dtype="float32", size="batch", anywhere=True) -> RowProof:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(shape, dtype, name="x")
        found = build(x)
    fetches = list(found) if isinstance(found, (list, tuple)) else [found]
    return prove_rows(functional(graph, fetches, [x]), size, anywhere=anywhere)


def cnn(x):
    x = nn.BatchNorm()(nn.Conv2D(4, 3, activation="relu")(x), training=False)
    return nn.Dense(2)(gc.flatten(nn.max_pool(x, 2), 1))


def steps(x):
    """A loop with as many iterations as the largest value."""
    most = gc.cast(gc.reduce_max(x, name="most"), "int32")
    return gc.while_loop(lambda c: c[0] < most, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]


def doubled(x):
    """A loop with a fixed number of iterations, whose carry starts with zeros."""
    start = gc.zeros(x.shape)
    return gc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, start))[1]


def printed(x):
    with gc.control_dependencies([gc.print("{}", x)]):
        return x * 2


def added(total, row):
    return total + row, total


@gc.function
def centred(x):
    return x - gc.reduce_mean(x, 0, name="middle")


def clipped(x):
    return with_gradient([gc.minimum(x, 1)], [x], lambda xs, dys: [dys[0]])[0]


@gc.function
def scaled(x):
    return x * 2 + gc.zeros(x.shape)


ACCEPTED = {
    "mlp": (lambda x: nn.Dense(3)(nn.relu(nn.Dense(5)(x))), ("batch", 6)),
    "cnn": (cnn, ("batch", 8, 8, 3)),
    "encoder": (lambda x: nn.TransformerBlock(4, 2)(x), ("batch", "time", 4)),
    "lstm": (lambda x: nn.LSTM(4)(x), ("batch", "time", 3)),
    "frozen batch norm": (lambda x: nn.BatchNorm()(x, training=False), ("batch", 6)),
    "softmax over classes": (lambda x: gc.softmax(x, axis=1), ("batch", 6)),
    "sort over classes": (lambda x: gc.sort(x, 1), ("batch", 6)),
    "broadcast zeros": (lambda x: x + gc.zeros(x.shape), ("batch", 6)),
    "loop": (doubled, ("batch", 6)),
    "custom gradient": (clipped, ("batch", 6)),
    "loop over the rows": (lambda x: gc.map_fn(lambda row: row / gc.sum(row), x), ("batch", 6)),
    "function": (scaled, ("batch", 6)),
    "cond": (lambda x: gc.cond(gc.constant(1) > 0, lambda: x + 1, lambda: x * 2), ("batch", 6)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_ordinary_models_are_accepted(name: str) -> None:
    build, shape = ACCEPTED[name]
    found = proof(build, shape)
    assert found.refusal is None
    assert found.inputs == {"x": 0}
    assert found.outputs[0] == Rows(0)


def test_embedding() -> None:
    found = proof(lambda x: nn.Embedding(10, 4)(x), ("batch", "time"), "int32")
    assert found.holds and found.outputs == (Rows(0),)


REFUSED = {
    "batch norm in training": (lambda x: nn.BatchNorm()(x, training=True), "", "adds up all rows"),
    "softmax over the batch": (lambda x: gc.softmax(x, axis=0, name="s"), "s", "needs all rows"),
    "cumsum over the batch": (lambda x: gc.cumsum(x, 0, name="c"), "c", "needs all rows"),
    "sort over the batch": (lambda x: gc.sort(x, 0, name="o"), "o", "needs all rows"),
    "mean over the batch": (lambda x: x - gc.reduce_mean(x, 0, name="m"), "m", "adds up all rows"),
    "maximum": (lambda x: x - gc.reduce_max(x, name="m"), "m", "takes the maximum of all rows"),
    "first row": (lambda x: x - x[0], "Slice", "needs all rows"),
    "reverse": (lambda x: x[::-1], "Reverse", "needs all rows"),
    "without the first row": (lambda x: x[1:], "Slice", "needs all rows"),
    "number of rows": (lambda x: x / x.shape[0], "DimValue", "uses the number of 'batch'"),
    "gram matrix": (lambda x: gc.matmul(x, gc.transpose(x), name="g"), "g", "needs all rows"),
    "merged rows": (lambda x: gc.reshape(x, (2, -1)), "Reshape", "needs all rows"),
    "rows of others": (lambda x: gc.reshape(x, (-1, 4)), "", "cannot be changed alone"),
    "dropout": (lambda x: nn.dropout(x, 0.5), "variable", "assigned"),
    "rows decide the trip count": (steps, "most", "takes the maximum of all rows"),
    "a carry from row to row": (lambda x: gc.scan(added, x[0] * 0, x)[1], "", "needs all rows"),
    "the other rows in a loop": (
        lambda x: gc.map_fn(lambda row: row - gc.reduce_max(x), x),
        "Scan",
        "needs all rows",
    ),
    "mean in a function": (centred, "middle", "adds up all rows"),
    "print": (printed, "Print", "has an effect"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_rows_is_refused_with_the_node(name: str) -> None:
    build, node, reason = REFUSED[name]
    for anywhere in (True, False):
        found = proof(build, anywhere=anywhere)
        assert found.refusal is not None and found.outputs == ()
        assert node in str(found.refusal) and reason in str(found.refusal)


def test_a_refusal_names_the_line_of_the_user() -> None:
    refusal = proof(lambda x: gc.softmax(x, axis=0)).refusal
    assert refusal is not None and refusal.source is not None
    assert refusal.source.code.startswith("refusal = proof(lambda x: gc.softmax(x, axis=0))")
    assert "test_row_proof.py" in str(refusal)


def test_numbered_rows_can_be_padded_but_not_put_anywhere() -> None:
    def numbered(x):
        return x + gc.cast(gc.arange(x.shape[0]), "float32")[:, None]

    assert proof(numbered, anywhere=False).holds
    refusal = proof(numbered).refusal
    assert refusal is not None and refusal.op == "Iota"


@pytest.mark.parametrize(
    ("build", "holds"),
    [
        (lambda x: nn.Dense(3)(gc.tanh(x)), True),
        (lambda x: nn.TransformerBlock(4, 2)(x), False),
        (lambda x: nn.LSTM(4)(x), False),
        (lambda x: gc.reduce_mean(x, 1), False),
    ],
)
def test_a_time_axis_has_its_own_answer(build, holds: bool) -> None:
    found = proof(build, ("batch", "time", 4), size="time")
    assert found.holds is holds
    assert found.inputs == {"x": 1}
    if holds:
        assert found.outputs == (Rows(1),)


def test_a_row_can_be_several_elements_of_an_output() -> None:
    found = proof(lambda x: gc.reshape(x, (-1, 3)))
    assert found.outputs == (Rows(0, 2),)
    (place,) = proof(lambda x: gc.reshape(x, (-1, 4)), ("batch", "time", 4)).outputs
    assert place is not None and (place.axis, str(place.elements)) == (0, "time")


def test_an_output_without_rows() -> None:
    assert proof(lambda x: (x * 2, gc.constant(1.0))).outputs == (Rows(0), None)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (("batch", "batch"), "several axes"),
        (("other", 6), "no input has the size"),
    ],
)
def test_inputs_that_cannot_be_padded(shape, reason: str) -> None:
    refusal = proof(lambda x: x * 2, shape).refusal
    assert refusal is not None and reason in str(refusal)


def test_sizes_of_the_program_do_not_matter() -> None:
    """The proof does not confuse the number of rows with an equal size in the program."""
    for width in (1, 2, 1009, 2003, 4096):
        assert proof(lambda x: x * np.float32(2), ("batch", width)).holds
        assert not proof(lambda x: gc.reshape(x, (2, -1)), ("batch", width)).holds

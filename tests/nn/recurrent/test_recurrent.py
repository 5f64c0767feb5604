"""Recurrent layers compared with NumPy, by sequence; lengths, states, directions, stacks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, DTypeError, GraphcError, GraphError, ShapeError
from tests.near import assert_near
from tests.nn import recurrences

F64 = "float64"
LENGTHS = np.array([4, 1, 0, 3], np.int32)
XS = np.random.default_rng(0).normal(size=(4, 4, 3))
LAYERS = {"simple": nn.SimpleRNN, "gru": nn.GRU, "lstm": nn.LSTM}


def parameters(values: dict[str, Any], cell: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(cell): v for name, v in values.items() if name.startswith(cell)}


def shaken(session: gc.Session) -> dict[str, np.ndarray]:
    """Sets all variables to nonzero numbers, since zero biases would hide errors."""
    rng = np.random.default_rng(7)
    values = {name: rng.normal(size=v.shape) * 0.5 for name, v in session.values().items()}
    session.set_all(values)
    return values


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_every_sequence_is_as_if_alone(kind: str, reverse: bool) -> None:
    step = getattr(recurrences, kind)
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), F64, name="x")
        lengths = gc.placeholder(("batch",), "int32", name="lengths")
        layer = LAYERS[kind](5, reverse=reverse, name="rnn", dtype=F64)
        whole = layer.with_state(x)
        cut = layer.with_state(x, lengths=lengths)
        gone_on = layer.with_state(x, whole[1])
    session = gc.Session(graph)
    p = parameters(shaken(session), "rnn/cell/")
    got = session.run([whole, cut, gone_on], {x: XS, lengths: LENGTHS})
    for row, length in enumerate(LENGTHS):
        start = recurrences.zeros(step, 5)
        outputs, state = recurrences.run(step, p, XS[row], start, reverse)
        some, part = recurrences.run(step, p, XS[row, :length], start, reverse)
        more = recurrences.run(step, p, XS[row], state, reverse)
        padded = np.concatenate([some, np.zeros((4 - length, 5))])
        for (ys, last), want in zip(got, [(outputs, state), (padded, part), more], strict=True):
            assert_near(ys[row], want[0], rtol=1e-10, atol=1e-12)
            for a, b in zip(jax.tree.leaves(last), jax.tree.leaves(want[1]), strict=True):
                assert_near(a[row], b, rtol=1e-10, atol=1e-12)


def test_names_and_first_values_of_variables() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, None, 3), name="x")
        nn.LSTM(2)(x)
        nn.StackedRNN([nn.Bidirectional(nn.GRU(2)), nn.SimpleRNN(4, "relu", name="top")])(x)
    assert {name: v.type.shape for name, v in graph.variables.items()} == {
        "lstm/cell/kernel": (3, 8),
        "lstm/cell/bias": (8,),
        "lstm/cell/recurrent_kernel": (2, 8),
        "stacked_rnn/bidirectional/forward/gru/cell/kernel": (3, 6),
        "stacked_rnn/bidirectional/forward/gru/cell/bias": (6,),
        "stacked_rnn/bidirectional/forward/gru/cell/recurrent_kernel": (2, 6),
        "stacked_rnn/bidirectional/forward/gru/cell/recurrent_bias": (2,),
        "stacked_rnn/bidirectional/backward/gru/cell/kernel": (3, 6),
        "stacked_rnn/bidirectional/backward/gru/cell/bias": (6,),
        "stacked_rnn/bidirectional/backward/gru/cell/recurrent_kernel": (2, 6),
        "stacked_rnn/bidirectional/backward/gru/cell/recurrent_bias": (2,),
        "stacked_rnn/top/cell/kernel": (4, 4),
        "stacked_rnn/top/cell/bias": (4,),
        "stacked_rnn/top/cell/recurrent_kernel": (4, 4),
    }
    values = gc.Session(graph).values()
    assert values["lstm/cell/bias"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_one_body_however_many_steps() -> None:
    with gc.Graph() as graph:
        nn.LSTM(2)(gc.placeholder((2, 100, 3)))
    ops = [node.op.name for node in graph.nodes]
    assert ops.count("Scan") == 1
    assert ops.count("MatMul") == 1  # one product for the inputs of all steps


def test_stacked_both_directions_and_the_last_outputs() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "time", 3), F64, name="x")
        lengths = gc.placeholder(("batch",), "int32", name="lengths")
        both = nn.Bidirectional(nn.LSTM(4, name="a", dtype=F64), name="both")
        top = nn.GRU(5, return_sequences=False, name="top", dtype=F64)
        net = nn.StackedRNN([both, top], name="net")
        y, state = net.with_state(x, lengths=lengths)
        again = net(x, state, lengths)
    session = gc.Session(graph)
    values = shaken(session)
    feeds = {x: XS, lengths: LENGTHS}
    got, last, second = session.run([y, state, again], feeds)
    names = ("net/both/forward/a/cell/", "net/both/backward/a/cell/", "net/top/cell/")
    forward, backward, upper = (parameters(values, name) for name in names)
    lstm, gru = recurrences.lstm, recurrences.gru
    for row, length in enumerate(LENGTHS):
        xs = XS[row, :length]
        states = [recurrences.zeros(lstm, 4), recurrences.zeros(lstm, 4), np.zeros(5)]
        for want in (got, second):
            a, states[0] = recurrences.run(lstm, forward, xs, states[0])
            b, states[1] = recurrences.run(lstm, backward, xs, states[1], reverse=True)
            _, states[2] = recurrences.run(gru, upper, np.concatenate([a, b], -1), states[2])
            assert_near(want[row], states[2], rtol=1e-10, atol=1e-12)
            if want is got:
                for mine, theirs in zip(
                    jax.tree.leaves(last), jax.tree.leaves(states), strict=True
                ):
                    assert_near(mine[row], theirs, rtol=1e-10, atol=1e-12)


def test_a_cell_step_by_step_shares_the_layers_variables() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3, 4), F64, name="x")
        layer = nn.LSTM(5, dtype=F64)
        outputs, last = layer.with_state(x)
        state = layer.initial_state(2)
        steps = []
        for t in range(3):
            y, state = layer.cell(x[:, t], state)
            steps.append(y)
        fetches = [outputs, last, gc.stack(steps, 1), state]
    assert len(graph.variables) == 3
    xs = np.random.default_rng(1).normal(size=(2, 3, 4))
    whole, end, single, final = gc.Session(graph).run(fetches, {x: xs})
    assert_near(whole, single, rtol=1e-12)
    for a, b in zip(end, final, strict=True):
        assert_near(a, b, rtol=1e-12)


def trained(strategy: Any = None) -> tuple[list[float], Any, Any, dict[str, Any]]:
    """Five training steps of a language model with two LSTMs, and its initial values."""
    rng = np.random.default_rng(3)
    with gc.Graph(seed=5) as graph:
        tokens = gc.placeholder(("batch", 7), "int32", name="tokens")
        h = nn.Embedding(6, 4, name="words", dtype=F64)(tokens[:, :-1])
        layers = [nn.LSTM(5, name="one", dtype=F64), nn.LSTM(4, name="two", dtype=F64)]
        h = nn.StackedRNN(layers, name="net")(h)
        logits = nn.Dense(6, name="out", dtype=F64)(h)
        losses = nn.sparse_softmax_cross_entropy(logits=logits, labels=tokens[:, 1:])
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    session = gc.Session(graph, strategy=strategy)
    before = session.values()
    feeds = {"tokens": rng.integers(0, 6, (4, 7)).astype(np.int32)}
    losses = [float(session.run([train, loss], feeds)[1]) for _ in range(5)]
    return losses, before, session.values(), feeds


@pytest.mark.slow
def test_training_equals_hand_written_jax() -> None:
    losses, before, after, feeds = trained()

    def lstm(p, name, xs):
        def step(state, x):
            h, c = state
            z = x @ p[f"{name}/kernel"] + h @ p[f"{name}/recurrent_kernel"] + p[f"{name}/bias"]
            i, f, g, o = jnp.split(z, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((xs.shape[0], p[f"{name}/recurrent_kernel"].shape[0]), xs.dtype)
        return lax.scan(step, (start, start), xs.swapaxes(0, 1))[1].swapaxes(0, 1)

    def reference(p, tokens):
        h = p["words/table"][tokens[:, :-1]]
        h = lstm(p, "net/two/cell", lstm(p, "net/one/cell", h))
        logits = h @ p["out/kernel"] + p["out/bias"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    tx = optax.adam(1e-2)
    with jax.enable_x64(True):
        params = {k: jnp.asarray(v) for k, v in before.items() if "train" not in k}
        state = tx.init(params)

        @jax.jit
        def step(params, state):
            loss, grads = jax.value_and_grad(reference)(params, feeds["tokens"])
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        want = []
        for _ in range(5):
            params, state, loss = step(params, state)
            want.append(float(loss))
    assert_near(losses, want, rtol=1e-10)
    for name, value in params.items():
        assert_near(after[name], value, rtol=1e-7, atol=1e-10)


def test_training_on_two_devices_is_the_same() -> None:
    alone, _, one, _ = trained()
    together, _, two, _ = trained(gc.devices.DataParallel(2))
    assert_near(alone, together, rtol=1e-10)
    for name, value in one.items():
        assert_near(two[name], value, rtol=1e-7, atol=1e-10)


def test_dropout_is_between_the_layers_and_in_training_only() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3, 4), name="x")
        net = nn.StackedRNN([nn.GRU(3), nn.GRU(3), nn.GRU(3)], dropout=0.5)
        net(x, training=True)
        assert [n.op.name for n in graph.nodes].count("Dropout") == 2
        net(x, training=False)
        assert [n.op.name for n in graph.nodes].count("Dropout") == 2
        with pytest.raises(
            AttributeValueError,
            match="training must be True, False or a scalar tensor of bool, it is missing",
        ):
            net(x)


def test_sequential_passes_lengths_on() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4, 4, 3), F64, name="x")
        rnn = nn.GRU(2, return_sequences=False, dtype=F64)
        model = nn.Sequential([nn.Dense(3, dtype=F64), nn.Sequential([rnn]), nn.relu])
        y = model(x, lengths=LENGTHS)
        want = nn.relu(rnn(model.layers[0](x), lengths=LENGTHS))
    a, b = gc.Session(graph).run([y, want], {x: XS})
    np.testing.assert_array_equal(a, b)


def test_a_users_cell() -> None:
    class Leaky(nn.Cell):
        def step(self, projected: Any, state: Any) -> Any:
            with self.scope(projected):
                return 0.5 * state + projected

    with gc.Graph() as graph:
        x = gc.placeholder((1, 3, 2), F64, name="x")
        y = nn.RNN(Leaky(2, nn.initializers.Identity(), dtype=F64))(x)
    assert list(graph.variables) == ["rnn/leaky/kernel", "rnn/leaky/bias"]
    (got,) = gc.Session(graph).run([y], {x: [[[1.0, 2.0], [0.0, 0.0], [4.0, 0.0]]]})
    assert got.tolist() == [[[1.0, 2.0], [0.5, 1.0], [4.25, 0.5]]]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.LSTM(0), AttributeValueError, r"LSTMCell: units must be"),
        (lambda x: nn.RNN(nn.LSTM(3)), AttributeValueError, r"(?s)cell must be a Cell.*nn.LSTM\("),
        (lambda x: nn.LSTM(3)(x[:, 0]), ShapeError, r"must be \[batch, time, features\]"),
        (lambda x: nn.LSTM(3)(x, x), AttributeValueError, r"must be 2 tensors \[batch, 3\]"),
        (lambda x: nn.GRU(3)(x, (x, x)), AttributeValueError, r"must be one tensor \[batch, 3\]"),
        (lambda x: nn.GRU(3)(x, gc.zeros((2, 4))), ShapeError, r"of shape \[batch, 3\], got"),
        (lambda x: nn.GRU(3)(x, gc.zeros((5, 3))), ShapeError, r"2 against 5"),
        (lambda x: nn.GRU(3)(x, lengths=x[:, 0, 0]), DTypeError, r"lengths must be integers"),
        (lambda x: nn.GRU(3)(x, lengths=[[1], [2]]), ShapeError, r"lengths must be of shape"),
        (lambda x: nn.GRU(3)(x, lengths=[1, 2, 3]), ShapeError, r"of shape \[2\], one for each"),
        (lambda x: nn.StackedRNN([]), AttributeValueError, r"one or more, got \[\]"),
        (lambda x: nn.StackedRNN([nn.Dense(3)]), AttributeValueError, r"got \[<Dense"),
        (lambda x: nn.StackedRNN([nn.GRU(3)], 1.0), AttributeValueError, r"rate must lie"),
        (
            lambda x: nn.StackedRNN([nn.GRU(3), nn.GRU(3)])(x, (gc.zeros((2, 3)),)),
            AttributeValueError, r"a tuple of 2, one for each layer",
        ),
        (
            lambda x: nn.StackedRNN([nn.GRU(3, return_sequences=False), nn.GRU(3)])(x),
            ShapeError, r"'stacked_rnn/gru_1': the input must be \[batch, time, features\]",
        ),
        (lambda x: nn.Bidirectional(nn.Dense(3)), AttributeValueError, r"must be an RNN with"),
        (
            lambda x: nn.Bidirectional(nn.GRU(3), nn.GRU(3)),
            AttributeValueError, r"the backward layer must be an RNN with reverse=True",
        ),
    ],
)  # fmt: skip
def test_errors(call, error: type[GraphcError], match: str) -> None:
    with gc.Graph():
        x = gc.placeholder((2, 4, 3), name="x")
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_recurrent.py:" in str(info.value)


def test_a_called_layer_has_no_mirror_image() -> None:
    with gc.Graph():
        rnn = nn.GRU(3)
        rnn(gc.placeholder((2, 4, 3)))
        with pytest.raises(GraphError, match=r"(?s)cannot be made twice.*Bidirectional\(a, b\)"):
            nn.Bidirectional(rnn)

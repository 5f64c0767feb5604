"""The stacked LSTM with buckets, compared with plain JAX on lines without buckets."""

import char_lstm
import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from tests.examples.lstm_in_jax import before, network
from tests.near import assert_near

STEPS = 20
SIZES = {"units": 16, "layers": 2, "batch": 4, "lengths": (8, 24)}


def loss_of(params, lines, counts):
    """The mean over the characters of all lines, with far more padding than in buckets."""

    logits = network(params, before(lines))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, lines)
    real = jnp.arange(lines.shape[1]) < counts[:, None]
    return jnp.where(real, losses, 0).sum() / counts.sum()


@pytest.fixture(scope="module")
def lines():
    found = char_lstm.sources.lines(char_lstm.sources.read(char_lstm.sources.TEST), 24)
    return [row for row, _ in zip(char_lstm.batches(found, 4), range(STEPS), strict=False)]


@pytest.mark.slow
def test_the_training_step_equals_the_same_in_jax(lines) -> None:
    tx = char_lstm.optimizer(STEPS)
    job, _, buckets = char_lstm.make_language(**SIZES, tx=tx)
    session = gc.Session(job.graph)
    trained = [v.name for v in job.graph.variables.values() if v.trainable]
    params = {name: np.array(session.get(name)) for name in trained}
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, lines, counts):
        loss, slopes = jax.value_and_grad(loss_of)(params, lines, counts)
        updates, opt_state = tx.update(slopes, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    fetches = [job.train, job.metrics["loss"]]
    for rows in lines:
        _, mine = buckets.run(session, fetches, {"lines:0": rows})
        padded = np.array([np.pad(row, (0, 40 - len(row))) for row in rows])
        counts = np.array([len(row) for row in rows])
        params, opt_state, loss = step(params, opt_state, padded, counts)
        assert float(mine) == pytest.approx(float(loss), abs=1e-4)
    for name, value in params.items():
        assert_near(session.get(name), value, rtol=1e-7, atol=1e-4, err_msg=name)
    assert session.compile_count == buckets.count == 2


@pytest.mark.slow
def test_padding_has_no_effect(lines) -> None:
    job, _, buckets = char_lstm.make_language(**SIZES)
    session = gc.Session(job.graph)
    mask = "mask_batch_time:0"
    for rows in lines[:3]:
        row = max(rows, key=len)  # alone, it needs no padding
        plain = session.run("loss", {"lines": row[None], mask: np.ones((1, len(row)), bool)})
        padded = buckets.run(session, "loss", {"lines": [row]})
        assert float(plain) == pytest.approx(float(padded), rel=1e-5)


def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    char_lstm.main(["--steps", "60", "--units", "32", "--layers", "1", "--lengths", "32", "64"])
    output = capsys.readouterr().out
    assert "2 compiles for 2 buckets" in output
    assert float(output.split("test bits a character ")[1].split()[0]) < 5.3
